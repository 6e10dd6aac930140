package layer

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"time"
)

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
	// Target is that of a symbolic link, as written, or the path of a hard link's other name, which
	// comes before it.
	Target string
	// Xattrs are extended attributes, by name.
	Xattrs map[string]string

	body body
}

// Content is that of a file, as a whole: WriteTo of the layer needs less memory.
func (e Entry) Content() ([]byte, error) { return e.body.bytes() }

// EntryType is what an entry is.
type EntryType uint8

const (
	// RegularFile is a regular file.
	RegularFile EntryType = iota + 1
	// DirectoryEntry is a directory.
	DirectoryEntry
	// SymbolicLink is a symbolic link.
	SymbolicLink
	// HardLink is a further name of a file that comes before it.
	HardLink
	// Whiteout is an empty file whose name says what of the image below is removed: ".wh." and the
	// name beside it, or ".wh..wh..opq" for everything in its directory.
	Whiteout
)

// Entries are sorted by path, so parents come before what is in them. They must not be changed.
func (l *Layer) Entries() []Entry { return l.entries }

// WriteTo writes the layer as an uncompressed tar archive, always the same bytes: no names of
// owners, no times but the epoch, and extended headers (PAX) only for what does not fit into plain
// ones.
func (l *Layer) WriteTo(w io.Writer) (int64, error) {
	counter := &counter{to: w}
	archive := tar.NewWriter(counter)
	for _, e := range l.entries {
		if err := archive.WriteHeader(e.header()); err != nil {
			return counter.n, fmt.Errorf("writing %q into the layer: %w", e.Path, err)
		}
		if err := e.body.writeTo(archive); err != nil {
			return counter.n, fmt.Errorf("writing %q into the layer: %w", e.Path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return counter.n, fmt.Errorf("writing the layer: %w", err)
	}
	return counter.n, nil
}

// DiffID is the digest of the uncompressed archive, as image configurations list it: "sha256:" and
// 64 hexadecimal digits.
func (l *Layer) DiffID() (string, error) {
	sum := sha256.New()
	if _, err := l.WriteTo(sum); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

func (e Entry) header() *tar.Header {
	h := &tar.Header{
		Name: e.Path, Mode: int64(e.Mode), Uid: e.UID, Gid: e.GID, ModTime: time.Unix(0, 0),
		Size: e.body.size(), Typeflag: tar.TypeReg,
	}
	switch e.Type {
	case DirectoryEntry:
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
	case SymbolicLink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	case HardLink:
		h.Typeflag, h.Linkname = tar.TypeLink, e.Target
	case RegularFile, Whiteout:
	}
	for name, value := range e.Xattrs {
		if h.PAXRecords == nil {
			h.PAXRecords = make(map[string]string, len(e.Xattrs))
		}
		h.PAXRecords["SCHILY.xattr."+name] = value
	}
	return h
}

// counter counts what is written.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err //nolint:wrapcheck // the archive's writer passes it on
}
