package packages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Types of packages, as package URLs spell them.
const (
	RPM = "rpm"
	Deb = "deb"
)

// Limits of what an image may have. Operating systems have a few thousand packages at most, and
// half a megabyte of names, versions and licenses.
const (
	maxPackages = 200_000
	maxText     = 32 << 20
)

// Package is an installed package.
type Package struct {
	// Type is RPM or Deb.
	Type string `json:"type"`
	Name string `json:"name"`
	// Version is [epoch:]version-release for rpm, and what dpkg calls version.
	Version string `json:"version"`
	// Arch is as the database spells it, such as x86_64, amd64 or noarch; empty where it says none.
	Arch string `json:"arch,omitempty"`
	// Source is what the package was built from: the name of a source rpm, or of a source package;
	// empty where it is not known.
	Source string `json:"source,omitempty"`
	// SourceVersion is that of the source package, where a database of dpkg says that it is another
	// one than Version.
	SourceVersion string `json:"sourceVersion,omitempty"`
	// License is as the package states it; dpkg knows none.
	License string `json:"license,omitempty"`
}

func (p *Package) size() int {
	return len(p.Name) + len(p.Version) + len(p.Arch) + len(p.Source) + len(p.SourceVersion) + len(p.License)
}

// List is what an image has.
type List struct {
	// Databases are the paths of the databases that were read; none where the image has none of a
	// known kind.
	Databases []string
	// Types are those of the databases, RPM or Deb, each once.
	Types []string
	// Packages of all of them, sorted by name, version and architecture.
	Packages []Package

	// text is how many bytes all of it has.
	text int
}

// Files are the files of an image.
type Files interface {
	// Sizes are the regular files directly below a directory, symbolic links followed, by name and
	// in bytes; none where there is no such directory.
	Sizes(dir string) map[string]int64
	// Copy writes files of a directory into a folder of this machine, under their names.
	Copy(ctx context.Context, dir string, names []string, folder string) error
}

// Database is one that an image has.
type Database struct {
	// Type is that of its packages, RPM or Deb.
	Type string
	// Path is what it is called: its first file, or the directory that all of its files are in.
	Path string
	// Dir is where its files are, and Names what they are called there, sorted.
	Dir   string
	Names []string

	read readFunc
}

// readFunc adds the packages of a database whose files have been copied into a folder.
type readFunc func(folder string, paths []string, add func(Package) error) error

// BrokenError means that a database cannot be read, now or later.
type BrokenError struct {
	// Path is that of the database in the image.
	Path string
	// Err is what is wrong with it.
	Err error
}

// Error names the database.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("package database %q is broken: %v", e.Path, e.Err)
}

// Unwrap is what is wrong.
func (e *BrokenError) Unwrap() error { return e.Err }

// TooLargeError means that a database is larger than any that package managers write.
type TooLargeError struct {
	// Path is that of the database in the image, Size and Limit are in bytes.
	Path        string
	Size, Limit int64
}

// Error names all.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("package database %q has %d bytes, the limit is %d", e.Path, e.Size, e.Limit)
}

// maxDatabase is the largest database that is copied, in bytes. That of a node's operating system
// has some 30 MB, of a full workstation 200 MB.
const maxDatabase = 256 << 20

// SpoolPrefix begins the names of the folders that databases are copied into. One that stays was
// left by a process that was killed.
const SpoolPrefix = "packages-"

// place is where a database may be.
type place struct {
	kind string
	dir  string
	// names are its files that are read together, the first of which has to be there; none means
	// every file of the directory.
	names []string
	read  readFunc
}

// places are groups of databases: of each group the first that is there counts, since the others
// are mostly links to it or left over.
func places() [][]place {
	var rpm []place
	for _, dir := range []string{"/usr/lib/sysimage/rpm", "/usr/share/rpm", "/var/lib/rpm"} {
		rpm = append(rpm,
			place{RPM, dir, []string{"rpmdb.sqlite", "rpmdb.sqlite-wal"}, readRPM},
			place{RPM, dir, []string{"Packages.db"}, unsupported},
			place{RPM, dir, []string{"Packages"}, unsupported})
	}
	return [][]place{
		rpm,
		{{Deb, "/var/lib/dpkg", []string{"status"}, readStatus}},
		{{Deb, "/var/lib/dpkg/status.d", nil, readStatus}},
	}
}

// Find says which databases an image has. It reads none.
func Find(files Files) []Database {
	var found []Database
	for _, group := range places() {
		for _, p := range group {
			if names := p.present(files.Sizes(p.dir)); len(names) > 0 {
				found = append(found, Database{Type: p.kind, Path: p.path(), Dir: p.dir, Names: names, read: p.read})
				break
			}
		}
	}
	return found
}

// Read lists the packages of an image. Databases are copied into a folder below dir, the system's
// one for temporary files where that is empty; each takes its size on disk while it is read, 256
// MiB at most. Memory is bounded by the largest package's header and the list itself. Errors are a
// BrokenError, a TooLargeError, and those of files and of the disk.
func Read(ctx context.Context, files Files, dir string) (*List, error) {
	list := &List{}
	for _, database := range Find(files) {
		if err := list.read(ctx, files, database, dir); err != nil {
			return nil, fmt.Errorf("listing the packages of an image: %w", err)
		}
	}
	slices.SortFunc(list.Packages, func(a, b Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Arch, b.Arch), cmp.Compare(a.Type, b.Type))
	})
	return list, nil
}

// path is what the database is called.
func (p place) path() string {
	if len(p.names) == 0 {
		return p.dir
	}
	return p.dir + "/" + p.names[0]
}

// present are the files of the database that are there, none where its first one is not.
func (p place) present(sizes map[string]int64) []string {
	var names []string
	for name := range sizes {
		if len(p.names) == 0 || slices.Contains(p.names, name) {
			names = append(names, name)
		}
	}
	if len(p.names) > 0 && !slices.Contains(names, p.names[0]) {
		return nil
	}
	slices.Sort(names)
	return names
}

func (l *List) read(ctx context.Context, files Files, d Database, dir string) error {
	var size int64
	sizes := files.Sizes(d.Dir)
	for _, name := range d.Names {
		size += sizes[name]
	}
	if size > maxDatabase {
		return &TooLargeError{Path: d.Path, Size: size, Limit: maxDatabase}
	}
	folder, err := os.MkdirTemp(dir, SpoolPrefix)
	if err != nil {
		return fmt.Errorf("making room for %q: %w", d.Path, err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if err := files.Copy(ctx, d.Dir, d.Names, folder); err != nil {
		return err
	}
	paths := make([]string, len(d.Names))
	for i, name := range d.Names {
		paths[i] = filepath.Join(folder, name)
	}
	err = d.read(folder, paths, func(found Package) error {
		if len(l.Packages) == maxPackages {
			return fmt.Errorf("it has more than %d packages", maxPackages)
		}
		if l.text += found.size(); l.text > maxText {
			return fmt.Errorf("the names, versions and licenses of its packages have more than %d bytes", maxText)
		}
		l.Packages = append(l.Packages, found)
		return ctx.Err()
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var disk *os.PathError
	if err != nil && !errors.As(err, &disk) {
		err = &BrokenError{Path: d.Path, Err: err}
	}
	if err != nil {
		return err
	}
	l.Databases = append(l.Databases, d.Path)
	if !slices.Contains(l.Types, d.Type) {
		l.Types = append(l.Types, d.Type)
	}
	return nil
}
