package osindex

import (
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Limits of an index. An image beyond them is refused: it is no operating system, and an index has
// to fit into memory.
const (
	// MaxBytes is about how much memory the paths of an index take, with the targets of links.
	// Those of operating systems take 10 to 20 MiB.
	MaxBytes = 48 << 20
	// MaxLayers is the number of layers that can be applied; container runtimes end at a few
	// hundred.
	MaxLayers = 1024
	// MaxPathBytes and MaxNameBytes are Linux's own limits of a path and of one of its parts.
	MaxPathBytes = 4096
	MaxNameBytes = 255
	// MaxKept is the number of bytes of contents that an index keeps altogether. What comes later
	// is there without its content.
	MaxKept = 4 << 20
	// MaxLinks is the number of symbolic links after which Linux gives up following.
	MaxLinks = 40
	// maxXattrs is the number of bytes of distinct extended attributes; the other limits are about
	// one file's, as Linux's are.
	maxXattrs     = 8 << 20
	maxXattrCount = 1024
	maxXattrName  = 255
	maxXattrValue = 64 << 10
	// maxAttrs is the number of different sets of mode, owner and extended attributes. An operating
	// system has some hundred.
	maxAttrs = 1 << 14
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
	// Mode is the permission bits with setuid, setgid and sticky, as in a tar header (at most
	// 0o7777).
	Mode uint32
	UID  int
	GID  int
	// Size of a File in bytes.
	Size int64
	// Target of a Symlink, as it was written.
	Target string
	// Xattrs are the extended attributes as PAX records carry them, by name without the prefix
	// "SCHILY.xattr.". Those that sign a file's bytes (security.ima, security.evm) are left out:
	// they are many, and die with any change.
	Xattrs map[string]string
	// Layer is the number of the layer that has the entry's content, from 0. [Index.Source] says
	// under which name.
	Layer int
}

// Source is where in an image the bytes of a file are.
type Source struct {
	// Layer is the number of the layer, from 0.
	Layer int
	// Name is what the layer calls the file, without "/" at either end. It is the file's path,
	// unless a hard link to a lower layer or a symbolic link within the layer lead there. The
	// layer's entry may be a hard link to another one of the layer, and where the layer has the
	// name more than once, the last entry counts.
	Name string
}

// Index is what an image's paths are. Its zero value is that of an image without layers. Any number
// of goroutines may read it while none applies a layer.
type Index struct {
	root   *node
	layers int
	// attrs has each distinct set of attributes once: an image has a few dozen of them.
	attrs  map[attrsKey]*attrs
	xattrs int // bytes in attrs
	paths  int
	bytes  int // that the nodes take
	kept   int

	room    Room
	granted int
}

// Room grants memory before it is used, a number of bytes more each time, or says why there is
// none. It may wait.
type Room func(bytes int) error

// RoomError says that there is no room for more of an index.
type RoomError struct {
	// Err is what Room said.
	Err error
}

// Error is what Room said.
func (e *RoomError) Error() string { return e.Err.Error() }

// Unwrap is what Room said.
func (e *RoomError) Unwrap() error { return e.Err }

// roomStep is how much is asked for at once, in bytes.
const roomStep = 2 << 20

// New is an index of an image without layers that asks room for memory.
func New(room Room) *Index { return &Index{room: room} }

// need makes sure that there is room for a number of bytes altogether.
func (x *Index) need(bytes int) error {
	for x.room != nil && bytes > x.granted {
		if err := x.room(roomStep); err != nil {
			return &RoomError{err}
		}
		x.granted += roomStep
	}
	return nil
}

// Apply lays the next layer, an uncompressed tar stream, over what is there, with whiteouts. It
// reads up to the archive's end, which may be before the stream's. After an error the index is as
// it was before.
//
// The result is what an overlay of the unpacked layers shows. A directory over a directory keeps
// what is below it; all else replaces what was there. A whiteout (".wh.name") and an opaque marker
// (".wh..wh..opq") hide what lower layers have, never what their own layer adds, in whichever order
// it does (OCI image specification, "Image Layer Filesystem Changeset"). Directories that a layer
// doesn't name but has entries below are as they were, or root's with mode 0755 where there was
// none: also where there was a symbolic link, which is replaced, not followed. A hard link takes
// over its target's entry.
func (x *Index) Apply(layer io.Reader) error {
	d, err := x.read(layer)
	if err != nil {
		return err
	}
	x.lay(d)
	return nil
}

// Layers is the number of layers applied.
func (x *Index) Layers() int { return x.layers }

// Paths is the number of paths, the root included.
func (x *Index) Paths() int { return max(x.paths, 1) }

// Bytes is about how much memory the index takes.
func (x *Index) Bytes() int { return x.bytes + x.kept + x.xattrs }

// Lookup gives the entry at exactly this path, following no link.
func (x *Index) Lookup(path string) (Entry, bool) {
	n := x.node(path)
	if n == nil {
		return Entry{}, false
	}
	return n.entry(), true
}

// Children gives the names directly below a directory, sorted, with their entries. The path is that
// of a Lookup: there are none below a symbolic link.
func (x *Index) Children(dir string) iter.Seq2[string, Entry] {
	return func(yield func(string, Entry) bool) {
		n := x.node(dir)
		if n == nil {
			return
		}
		for _, child := range n.children() {
			if !yield(child.name, child.entry()) {
				return
			}
		}
	}
}

// Content gives the bytes of a file that the index keeps: accounts, presets, units, and small files
// of /etc. A file that is there but whose content is not kept has to be read from layer Entry.Layer
// of the image. The path is that of a Lookup. The bytes are the index's own and must not be
// changed.
//
// Kept are files up to 64 KiB that are accounts (passwd and group in /etc and /usr/lib), presets
// (*.preset in a systemd/system-preset) and units with their drop-ins (anything in a
// systemd/system), and files of /etc up to 16 KiB that everyone may read, without keys,
// certificates and databases (/etc/pki, /etc/ssl, /etc/selinux, /etc/udev, host keys). Shadow files
// are never kept. [MaxKept] bounds all together.
func (x *Index) Content(path string) ([]byte, bool) {
	n := x.node(path)
	if n == nil || n.more == nil || n.more.content == nil {
		return nil, false
	}
	return n.more.content, true
}

// Source tells where the bytes of a file are; false if the path is no File. The path is that of a
// Lookup.
func (x *Index) Source(path string) (Source, bool) {
	n := x.node(path)
	if n == nil || n.kind() != File {
		return Source{}, false
	}
	source := Source{Layer: int(n.layer), Name: strings.Join(lexical(path), "/")}
	if n.more != nil && n.more.origin != "" {
		source.Name = n.more.origin
	}
	return source, true
}

// node is what is at exactly this path, nil if nothing is.
func (x *Index) node(path string) *node {
	n := x.top()
	for _, name := range lexical(path) {
		if n = n.child(name); n == nil {
			return nil
		}
	}
	return n
}

// top is the root, which every image has.
func (x *Index) top() *node {
	if x.root == nil {
		a := impliedAttrs()
		return &node{attrs: &a}
	}
	return x.root
}

// lexical splits a path as its text says, whatever is there.
func lexical(path string) []string {
	var parts []string
	for _, part := range split(path) {
		if part != ".." {
			parts = append(parts, part)
		} else if len(parts) > 0 {
			parts = parts[:len(parts)-1]
		}
	}
	return parts
}

// split gives the parts of a path that mean something.
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(part string) bool { return part == "" || part == "." })
}

// entry is the node for the outside, sharing nothing that could be changed.
func (n *node) entry() Entry {
	e := Entry{
		Kind: n.attrs.kind, Mode: n.attrs.mode, UID: n.attrs.uid, GID: n.attrs.gid,
		Size: n.size, Xattrs: maps.Clone(n.attrs.xattrs), Layer: int(n.layer),
	}
	if n.more != nil {
		e.Target = n.more.target
	}
	return e
}
