package packages

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fake is an image's files, by path.
type fake map[string][]byte

func (f fake) Sizes(dir string) map[string]int64 {
	sizes := map[string]int64{}
	for name, content := range f {
		if path.Dir(name) == dir {
			sizes[path.Base(name)] = int64(len(content))
		}
	}
	return sizes
}

func (f fake) Copy(_ context.Context, dir string, names []string, folder string) error {
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(folder, name), f[dir+"/"+name], 0o600); err != nil {
			return err
		}
	}
	return nil
}

func testdata(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return content
}

// words is a package in one line.
func words(p Package) string {
	return strings.Join([]string{p.Type, p.Name, p.Version, p.Arch, p.Source, p.License}, " ")
}

func find(t *testing.T, list *List, name string) string {
	t.Helper()
	for _, p := range list.Packages {
		if p.Name == name {
			return words(p)
		}
	}
	return ""
}

const status = `Package: bash
Status: install ok installed
Architecture: amd64
Version: 5.2.15-2+b2
Source: bash (5.2.15-2)
Description: GNU Bourne Again SHell
 Package: not-this-one

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: held
Status: hold ok installed
Architecture: all
Version: 2:1.0
`

// The database was made by SQLite with pages of 512 bytes, so that its tree has two levels and rows
// of several pages. Its journal updates kernel-core and adds runc.
func TestReadSQLite(t *testing.T) {
	t.Parallel()
	database, journal := testdata(t, "rpmdb.sqlite"), testdata(t, "rpmdb.sqlite-wal")
	for _, dir := range []string{"/usr/lib/sysimage/rpm", "/usr/share/rpm", "/var/lib/rpm"} {
		list, err := Read(t.Context(), fake{dir + "/rpmdb.sqlite": database}, "")
		require.NoError(t, err)
		assert.Equal(t, []string{dir + "/rpmdb.sqlite"}, list.Databases)
		assert.Len(t, list.Packages, 42, "a key is no package")
		assert.Equal(t, "rpm kernel-core 5.14.0-427.13.1.el9_4 x86_64 kernel-5.14.0-427.13.1.el9_4.src.rpm GPL-2.0-only", find(t, list, "kernel-core"))
		assert.Equal(t, "rpm shadow-utils 2:4.9-8.el9 x86_64 shadow-utils-4.9-8.el9.src.rpm BSD-3-Clause", find(t, list, "shadow-utils"))
		assert.Equal(t, "rpm lib39 1.39-1.el9 noarch  MIT", find(t, list, "lib39"))
	}
	read := func(journal []byte) *List {
		list, err := Read(t.Context(), fake{"/var/lib/rpm/rpmdb.sqlite": database, "/var/lib/rpm/rpmdb.sqlite-wal": journal}, "")
		require.NoError(t, err)
		return list
	}
	with := read(journal)
	assert.Len(t, with.Packages, 43)
	assert.Contains(t, find(t, with, "kernel-core"), "503.11.1.el9_5", "the journal is newer")
	assert.Equal(t, "rpm runc 4:1.1.12-2.el9 x86_64 runc-1.1.12-2.el9.src.rpm ASL 2.0", find(t, with, "runc"))
	assert.Len(t, read(nil).Packages, 42, "an empty journal is none")
	assert.Len(t, read(journal[:20]).Packages, 42, "nor is one without a head")
	assert.Len(t, read(journal[:len(journal)-1]).Packages, 42, "a transaction without its end never was")
	torn := bytes.Clone(journal)
	torn[walHead+walFrameHead+100] ^= 1
	assert.Len(t, read(torn).Packages, 42, "what does not add up is left over")
}

func TestReadText(t *testing.T) {
	t.Parallel()
	list, err := Read(t.Context(), fake{
		"/var/lib/dpkg/status":      []byte(status),
		"/var/lib/rpm/rpmdb.sqlite": testdata(t, "rpmdb.sqlite"),
	}, "")
	require.NoError(t, err)
	assert.Equal(t, []string{"/var/lib/rpm/rpmdb.sqlite", "/var/lib/dpkg/status"}, list.Databases)
	assert.Len(t, list.Packages, 42+2)
	assert.True(t, slices.IsSortedFunc(list.Packages, func(a, b Package) int { return strings.Compare(a.Name, b.Name) }))
	assert.Equal(t, "deb bash 5.2.15-2+b2 amd64 bash ", words(list.Packages[0]))
	assert.Equal(t, "deb held 2:1.0 all", strings.TrimSpace(find(t, list, "held")))

	assert.Equal(t, []string{RPM, Deb}, list.Types)
	assert.Equal(t, "5.2.15-2", list.Packages[0].SourceVersion)
	var found []string
	for _, d := range Find(fake{"/var/lib/dpkg/status": nil, "/var/lib/rpm/rpmdb.sqlite": nil, "/var/lib/rpm/rpmdb.sqlite-wal": nil}) {
		found = append(found, d.Type+" "+d.Path+" "+strings.Join(d.Names, " "))
	}
	assert.Equal(t, []string{"rpm /var/lib/rpm/rpmdb.sqlite rpmdb.sqlite rpmdb.sqlite-wal", "deb /var/lib/dpkg/status status"}, found)

	list, err = Read(t.Context(), fake{
		"/var/lib/dpkg/status.d/base":         []byte("Package: base-files\nVersion: 12\nArchitecture: amd64\n"),
		"/var/lib/dpkg/status.d/base.md5sums": []byte("0123  etc/issue\n"),
	}, "")
	require.NoError(t, err)
	require.Len(t, list.Packages, 1, "images without dpkg say no status")
	assert.Equal(t, "base-files", list.Packages[0].Name)
}

func TestReadNothing(t *testing.T) {
	t.Parallel()
	list, err := Read(t.Context(), fake{"/etc/passwd": nil, "/var/lib/rpm/rpmdb.sqlite-shm": []byte("x")}, "")
	require.NoError(t, err)
	assert.Empty(t, list.Databases)
	assert.Empty(t, list.Packages)
}

// u32 is a small number as databases have it.
func u32(n int) uint32 { return uint32(n) } //nolint:gosec // tests have small databases

// header makes the header of a package.
func header(name, version, release string) []byte {
	var entries, data []byte
	for tag, value := range map[uint32]string{tagName: name, tagVersion: version, tagRelease: release, tagArch: "x86_64"} {
		for _, n := range []uint32{tag, typeString, u32(len(data)), 1} {
			entries = binary.BigEndian.AppendUint32(entries, n)
		}
		data = append(data, value+"\x00"...)
	}
	blob := binary.BigEndian.AppendUint32(nil, u32(len(entries)/16))
	blob = binary.BigEndian.AppendUint32(blob, u32(len(data)))
	return append(append(blob, entries...), data...)
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	sqlite := testdata(t, "rpmdb.sqlite")
	change := func(content []byte, at int, to ...byte) []byte {
		changed := bytes.Clone(content)
		copy(changed[at:], to)
		return changed
	}
	tests := map[string]struct {
		path    string
		content []byte
		message string
	}{
		"an empty file":                   {"/var/lib/rpm/rpmdb.sqlite", nil, "unexpected EOF"},
		"something else":                  {"/var/lib/rpm/rpmdb.sqlite", bytes.Repeat([]byte("x"), 4096), "no SQLite database"},
		"a file that is cut off":          {"/var/lib/rpm/rpmdb.sqlite", sqlite[:len(sqlite)/2], "it refers to page"},
		"a database without packages":     {"/var/lib/rpm/rpmdb.sqlite", bytes.ReplaceAll(sqlite, []byte("Packages"), []byte("Packagez")), `no table "Packages"`},
		"a tree that is a circle":         {"/var/lib/rpm/rpmdb.sqlite", circle(sqlite), "too deep"},
		"pages that are of no table":      {"/var/lib/rpm/rpmdb.sqlite", change(sqlite, sqliteHead, 2), "page 1 is no part of a table"},
		"text that is not UTF-8":          {"/var/lib/rpm/rpmdb.sqlite", change(sqlite, 59, 2), "in UTF-8"},
		"Berkeley DB":                     {"/var/lib/rpm/Packages", []byte("x"), "its format is not read"},
		"ndb":                             {"/usr/lib/sysimage/rpm/Packages.db", []byte("x"), "its format is not read"},
		"packages with megabytes of text": {"/var/lib/dpkg/status", bytes.Repeat([]byte("Package: a\nVersion: "+strings.Repeat("x", maxLine-100)+"\n\n"), 33), "33554432 bytes"},
		"a line without an end":           {"/var/lib/dpkg/status", bytes.Repeat([]byte("x"), maxLine+1), "too long"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(t.Context(), fake{tt.path: tt.content}, "")
			var broken *BrokenError
			require.ErrorAs(t, err, &broken)
			require.ErrorContains(t, err, tt.message)
			assert.Contains(t, broken.Path, path.Dir(tt.path))
		})
	}
}

func TestHeadersOfPackages(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		values  [][]byte
		message string
	}{
		"too many entries":            {[][]byte{{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}}, "4294967295 entries"},
		"of no one":                   {[][]byte{header("", "1", "1")}, "which package"},
		"cut off":                     {[][]byte{[]byte("x")}, "cut off"},
		"a name of a book":            {[][]byte{header(strings.Repeat("x", maxLine+1), "1", "1")}, "its text has no end within"},
		"more keys than packages may": {slices.Repeat([][]byte{header(publicKey, "1", "1")}, maxPackages+1), "more than 200000"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values := func(yield func([]byte, error) bool) {
				for _, value := range tt.values {
					if !yield(value, nil) {
						return
					}
				}
			}
			err := addAll(values, func(Package) error { return nil })
			require.ErrorContains(t, err, tt.message)
		})
	}
}

// Databases are whatever someone put into an image: none may take more memory than its largest
// part.
func TestReadNeedsLittleMemory(t *testing.T) {
	t.Parallel()
	var fields strings.Builder
	for i := range 100_000 {
		_, _ = fmt.Fprintf(&fields, "X-%d: 1\n", i)
	}
	kept := 0
	path := filepath.Join(t.TempDir(), "status")
	require.NoError(t, os.WriteFile(path, []byte("Package: a\nVersion: 1\n"+fields.String()), 0o600))
	require.NoError(t, eachParagraph(path, func(fields map[string]string) error {
		kept = len(fields)
		assert.Equal(t, "a", fields["package"])
		return nil
	}))
	assert.LessOrEqual(t, kept, 5, "fields that no one asks for are not kept")

	record := append([]byte{0x84, 0x80, 0x02}, make([]byte, 4<<14)...) // its head has 65538 bytes, and each is a NULL
	columns, err := columnsOf(record[:65538])
	require.NoError(t, err)
	assert.LessOrEqual(t, len(columns), 5, "nor are columns")
}

// counting counts how often it is looked where the files are.
type counting struct {
	fake
	looks *int
}

func (c counting) Sizes(dir string) map[string]int64 {
	*c.looks++
	return c.fake.Sizes(dir)
}

func TestReadLooksOnceForAllFiles(t *testing.T) {
	t.Parallel()
	looks := func(n int) int {
		files, looks := fake{}, 0
		for i := range n {
			files[fmt.Sprint("/var/lib/dpkg/status.d/", i)] = []byte("Package: a\nVersion: 1\n")
		}
		_, err := Read(t.Context(), counting{files, &looks}, "")
		require.NoError(t, err)
		return looks
	}
	assert.Equal(t, looks(1), looks(9))
}

// circle makes the first child of the tree's root the root itself.
func circle(database []byte) []byte {
	const page = 512
	changed := bytes.Clone(database)
	for at := page; at < len(changed); at += page {
		if changed[at] == tableInterior {
			cell := at + int(binary.BigEndian.Uint16(changed[at+interiorHead:]))
			binary.BigEndian.PutUint32(changed[cell:], uint32(at/page+1))
		}
	}
	return changed
}

var errDisk = errors.New("no space left")

// stuck can't copy.
type stuck struct{ fake }

func (stuck) Copy(context.Context, string, []string, string) error { return errDisk }

// huge says that its files are large.
type huge struct{ fake }

func (h huge) Sizes(dir string) map[string]int64 {
	sizes := h.fake.Sizes(dir)
	for name := range sizes {
		sizes[name] = maxDatabase + 1
	}
	return sizes
}

func TestReadErrorClasses(t *testing.T) {
	t.Parallel()
	files := fake{"/var/lib/dpkg/status": []byte(status)}
	_, err := Read(t.Context(), stuck{files}, "")
	require.ErrorIs(t, err, errDisk)
	var broken *BrokenError
	require.NotErrorAs(t, err, &broken, "the database is not to blame")

	_, err = Read(t.Context(), huge{files}, "")
	var large *TooLargeError
	require.ErrorAs(t, err, &large)
	assert.Equal(t, "/var/lib/dpkg/status", large.Path)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDisk)
	_, err = Read(ctx, files, "")
	require.ErrorIs(t, err, errDisk)
}

func TestReadLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	_, err := Read(t.Context(), fake{"/var/lib/dpkg/status": []byte(status), "/var/lib/rpm/rpmdb.sqlite": testdata(t, "rpmdb.sqlite")}, temporary)
	require.NoError(t, err)
	_, err = Read(t.Context(), fake{"/var/lib/rpm/rpmdb.sqlite": []byte("x")}, temporary)
	require.Error(t, err)
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func FuzzDatabases(f *testing.F) {
	for _, name := range []string{"rpmdb.sqlite", "rpmdb.sqlite-wal"} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte(status))
	base, err := os.ReadFile(filepath.Join("testdata", "rpmdb.sqlite"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(_ *testing.T, content []byte) {
		for _, files := range []fake{
			{"/var/lib/rpm/rpmdb.sqlite": content},
			{"/var/lib/rpm/rpmdb.sqlite": base, "/var/lib/rpm/rpmdb.sqlite-wal": content},
			{"/var/lib/dpkg/status": content},
		} {
			if _, err := Read(context.Background(), files, ""); err != nil { //nolint:usetesting // a fuzz target's context ends with it
				_ = fmt.Sprint(err)
			}
		}
	})
}
