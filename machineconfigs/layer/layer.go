package layer

import "io"

// Layer is a finished layer.
type Layer struct {
	entries []Entry
}

// Entry is one entry of the archive.
type Entry struct {
	// Path has no slash at either end.
	Path string
	Type EntryType
	// Mode is the permission bits with setuid, setgid and sticky.
	Mode     uint32
	UID, GID int
	// Target is that of a symbolic link, as written, or the path of a hard link's other name, which comes before it.
	Target string
	// Content is that of a file. It must not be changed.
	Content []byte
	// Xattrs are extended attributes, by name.
	Xattrs map[string]string
}

// EntryType is what an entry is.
type EntryType uint8

const (
	// File is a regular file. A file whose name starts with ".wh." removes what is below, see Whiteout.
	RegularFile EntryType = iota + 1
	// DirectoryEntry is a directory.
	DirectoryEntry
	// SymbolicLink is a symbolic link.
	SymbolicLink
	// HardLink is a further name of a file that comes before it.
	HardLink
	// Whiteout removes the path whose name follows ".wh." from the image below.
	Whiteout
)

// Entries are sorted by path, so parents come before what is in them. They must not be changed.
func (l *Layer) Entries() []Entry { return l.entries }

// WriteTo writes the layer as an uncompressed tar archive, always the same bytes.
func (l *Layer) WriteTo(w io.Writer) (int64, error) { panic("stub") }

// DiffID is the digest of the uncompressed archive, as image configurations list it: "sha256:" and 64 hexadecimal digits.
func (l *Layer) DiffID() string { panic("stub") }
