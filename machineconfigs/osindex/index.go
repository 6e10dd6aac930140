package osindex

import (
	"io"
	"iter"
)

// Kind is what a path is.
type Kind uint8

const (
	// File is a regular file, or a hard link to one.
	File Kind = iota + 1
	// Directory is a directory.
	Directory
	// Symlink is a symbolic link.
	Symlink
	// Special is a device, a pipe or a socket.
	Special
)

// Entry is one path of an image.
type Entry struct {
	Kind Kind
	// Mode is the permission bits with setuid, setgid and sticky, as in a tar header (at most 0o7777).
	Mode uint32
	UID  int
	GID  int
	// Size of a File in bytes.
	Size int64
	// Target of a Symlink, as it was written.
	Target string
	// Xattrs are the extended attributes as PAX records carry them, by name without the prefix "SCHILY.xattr.".
	Xattrs map[string]string
	// Layer is the number of the layer that has the entry's content, from 0.
	Layer int
}

// Resolved is where a path leads.
type Resolved struct {
	// Path is absolute and clean, with no symbolic link among its parents as far as they exist.
	Path string
	// Entry is what is there; its Kind is 0 if nothing is.
	Entry Entry
}

// Exists tells whether the image has the path.
func (r Resolved) Exists() bool { return r.Entry.Kind != 0 }

// Index is what an image's paths are. Its zero value is that of an image without layers.
type Index struct{}

// Apply lays the next layer, an uncompressed tar stream, over what is there, with whiteouts.
func (x *Index) Apply(layer io.Reader) error { panic("stub") }

// Layers is the number of layers applied.
func (x *Index) Layers() int { panic("stub") }

// Lookup gives the entry at exactly this path, following no link.
func (x *Index) Lookup(path string) (Entry, bool) { panic("stub") }

// Resolve follows the symbolic links among the parents of an absolute path, as the kernel would with the image as root, and not
// that of its last part. Where a parent does not exist, the rest is taken as it is written. Errors: a cycle of links, a parent
// that is no directory.
func (x *Index) Resolve(path string) (Resolved, error) { panic("stub") }

// Follow is Resolve that also follows the last part.
func (x *Index) Follow(path string) (Resolved, error) { panic("stub") }

// Children gives the names directly below a directory, sorted, with their entries.
func (x *Index) Children(dir string) iter.Seq2[string, Entry] { panic("stub") }

// Content gives the bytes of a file that the index keeps: accounts, presets, units, and small files of /etc. A file that is
// there but whose content is not kept has to be read from layer Entry.Layer of the image. The path is that of a Lookup.
func (x *Index) Content(path string) ([]byte, bool) { panic("stub") }

// Encode writes the index, compressed; Decode reads it back.
func (x *Index) Encode(w io.Writer) error { panic("stub") }

// Decode reads an index that Encode wrote. Anything else is an error.
func Decode(r io.Reader) (*Index, error) { panic("stub") }
