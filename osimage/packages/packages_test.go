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
		"/var/lib/dpkg/status":                    []byte(status),
		"/usr/lib/sysimage/fixture-rpm/cri-o":     []byte("cri-o-1.9.6-1.el9.x86_64\n"),
		"/usr/lib/sysimage/fixture-rpm/kernel-rt": []byte("kernel-rt-5.14.0-427.13.1.el9_4.x86_64\n"),
	}, "")
	require.NoError(t, err)
	assert.Equal(t, []string{"/var/lib/dpkg/status", "/usr/lib/sysimage/fixture-rpm"}, list.Databases)
	var got []string
	for _, p := range list.Packages {
		got = append(got, strings.TrimSpace(words(p)))
	}
	assert.Equal(t, []string{
		"deb bash 5.2.15-2+b2 amd64 bash", "rpm cri-o 1.9.6-1.el9 x86_64", "deb held 2:1.0 all", "rpm kernel-rt 5.14.0-427.13.1.el9_4 x86_64",
	}, got)

	assert.Equal(t, []string{Deb, RPM}, list.Types)
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

// ndbOf makes a database of the format ndb.
func ndbOf(values ...[]byte) []byte {
	db := make([]byte, ndbSlotPage)
	for i, n := range []uint32{ndbMagic, 0, 1, 1} {
		binary.LittleEndian.PutUint32(db[4*i:], n)
	}
	for at := ndbHeader; at < ndbSlotPage; at += ndbSlot {
		binary.LittleEndian.PutUint32(db[at:], slotMagic)
	}
	for i, value := range values {
		slot := db[ndbHeader+(2*i+1)*ndbSlot:] // every other one is free
		binary.LittleEndian.PutUint32(slot[4:], u32(i+1))
		binary.LittleEndian.PutUint32(slot[8:], u32(len(db)/ndbBlock))
		for _, n := range []uint32{blobMagic, u32(i + 1), 0, u32(len(value))} {
			db = binary.LittleEndian.AppendUint32(db, n)
		}
		db = append(db, value...)
		db = append(db, make([]byte, (ndbBlock-len(db)%ndbBlock)%ndbBlock)...)
	}
	return db
}

// bdbOf makes a hash table of Berkeley DB with pages of 512 bytes: one for the items, then those of
// the values.
func bdbOf(order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}, values ...[]byte,
) []byte {
	const page, room = 512, 512 - bdbPageHead
	items := make([]byte, page)
	items[25] = bdbHash
	var overflow []byte
	end := page
	place := func(i int, item []byte) {
		end -= len(item)
		copy(items[end:], item)
		order.PutUint16(items[bdbPageHead+2*i:], uint16(u32(end))) //nolint:gosec // a page is small
	}
	for i, value := range values {
		first := u32(2 + len(overflow)/page)
		for rest := value; len(rest) > 0; {
			n := min(room, len(rest))
			p := make([]byte, page)
			p[25] = bdbOverflow
			order.PutUint16(p[22:], uint16(n))
			copy(p[bdbPageHead:], rest[:n])
			if rest = rest[n:]; len(rest) > 0 {
				order.PutUint32(p[16:], u32(2+len(overflow)/page+1))
			}
			overflow = append(overflow, p...)
		}
		place(2*i, []byte{1, 0, 0, 0, byte(i)})
		item := order.AppendUint32([]byte{bdbOffPage, 0, 0, 0}, first)
		place(2*i+1, order.AppendUint32(item, u32(len(value))))
	}
	order.PutUint16(items[20:], uint16(u32(2*len(values)))) //nolint:gosec // a few values
	meta := make([]byte, page)
	order.PutUint32(meta[12:], bdbMagic)
	order.PutUint32(meta[20:], page)
	order.PutUint32(meta[32:], u32(1+len(overflow)/page))
	return bytes.Join([][]byte{meta, items, overflow}, nil)
}

func TestReadNDBAndBDB(t *testing.T) {
	t.Parallel()
	values := [][]byte{header("bash", "5.1", "1"), header("glibc", "2.28", strings.Repeat("long", 500)), header("acl", "2.3", "1")}
	for name, files := range map[string]fake{
		"ndb":               {"/usr/lib/sysimage/rpm/Packages.db": ndbOf(values...)},
		"bdb":               {"/var/lib/rpm/Packages": bdbOf(binary.LittleEndian, values...)},
		"bdb of big-endian": {"/var/lib/rpm/Packages": bdbOf(binary.BigEndian, values...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list, err := Read(t.Context(), files, "")
			require.NoError(t, err)
			require.Len(t, list.Packages, 3)
			assert.Equal(t, "acl", list.Packages[0].Name)
			assert.Equal(t, "2.28-"+strings.Repeat("long", 500), list.Packages[2].Version)
		})
	}
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
		"an empty file":                    {"/var/lib/rpm/rpmdb.sqlite", nil, "unexpected EOF"},
		"something else":                   {"/var/lib/rpm/rpmdb.sqlite", bytes.Repeat([]byte("x"), 4096), "no SQLite database"},
		"a file that is cut off":           {"/var/lib/rpm/rpmdb.sqlite", sqlite[:len(sqlite)/2], "it refers to page"},
		"a database without packages":      {"/var/lib/rpm/rpmdb.sqlite", bytes.ReplaceAll(sqlite, []byte("Packages"), []byte("Packagez")), `no table "Packages"`},
		"a tree that is a circle":          {"/var/lib/rpm/rpmdb.sqlite", circle(sqlite), "too deep"},
		"pages that are of no table":       {"/var/lib/rpm/rpmdb.sqlite", change(sqlite, sqliteHead, 2), "page 1 is no part of a table"},
		"text that is not UTF-8":           {"/var/lib/rpm/rpmdb.sqlite", change(sqlite, 59, 2), "in UTF-8"},
		"ndb of another version":           {"/var/lib/rpm/Packages.db", change(ndbOf(), 4, 9), "version 0"},
		"ndb with more slots than bytes":   {"/var/lib/rpm/Packages.db", change(ndbOf(), 12, 200), "200 slot pages"},
		"ndb with a value of gigabytes":    {"/var/lib/rpm/Packages.db", change(ndbOf(header("a", "1", "1")), 4096+12, 0xff, 0xff, 0xff, 0xff), "4294967295 bytes"},
		"ndb with a slot without its mark": {"/var/lib/rpm/Packages.db", change(ndbOf(), ndbHeader, 0), "no mark"},
		"bdb with pages of no size":        {"/var/lib/rpm/Packages", change(bdbOf(binary.LittleEndian), 20, 1, 0), "pages have 1 bytes"},
		"bdb with a chain to itself":       {"/var/lib/rpm/Packages", change(bdbOf(binary.LittleEndian, bytes.Repeat([]byte("x"), 900)), 2*512+16, 2), "no part of a value"},
		"bdb with a chain of small steps":  {"/var/lib/rpm/Packages", slowChain(), "circle"},
		"bdb with more pages than bytes":   {"/var/lib/rpm/Packages", change(bdbOf(binary.LittleEndian), 32, 0xff, 0xff, 0xff, 0xff), "4294967295 pages"},
		"a header with too many entries":   {"/var/lib/rpm/Packages.db", ndbOf([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}), "4294967295 entries"},
		"a header of no one":               {"/var/lib/rpm/Packages.db", ndbOf(header("", "1", "1")), "which package"},
		"a header that is cut off":         {"/var/lib/rpm/Packages.db", ndbOf([]byte("x")), "cut off"},
		"a package with megabytes of text": {"/var/lib/rpm/Packages.db", ndbOf(slices.Repeat([][]byte{header("a", "1", strings.Repeat("x", maxLine-1))}, 33)...), "33554432 bytes"},
		"a package with a name of a book":  {"/var/lib/rpm/Packages.db", ndbOf(header(strings.Repeat("x", maxLine+1), "1", "1")), "its text has no end within"},
		"ndb with one value many times":    {"/var/lib/rpm/Packages.db", overlapping(), "more than once"},
		"ndb with more keys than packages": {"/var/lib/rpm/Packages.db", manyKeys(), "more than 200000"},
		"a record of another package":      {"/usr/lib/sysimage/fixture-rpm/a", []byte("b-1-1.x86_64"), "which package"},
		"a line without an end":            {"/var/lib/dpkg/status", bytes.Repeat([]byte("x"), maxLine+1), "too long"},
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

// overlapping has a slot for one package many times: reading it takes the longer the larger the
// value is.
func overlapping() []byte {
	db := ndbOf(header("a", "1", strings.Repeat("x", ndbSlotPage)))
	for at := ndbHeader; at < ndbSlotPage; at += ndbSlot {
		copy(db[at:], db[ndbHeader+ndbSlot:][:ndbSlot])
	}
	return db
}

// manyKeys has no packages, and more public keys than there may be packages.
func manyKeys() []byte {
	key := header(publicKey, "1", "1")
	pages := (maxPackages+1)*ndbSlot/ndbSlotPage + 1
	db := make([]byte, pages*ndbSlotPage, pages*ndbSlotPage+(maxPackages+1)*(len(key)+ndbBlobHead+ndbBlock))
	for i, n := range []uint32{ndbMagic, 0, 1, u32(pages)} {
		binary.LittleEndian.PutUint32(db[4*i:], n)
	}
	for i := range (pages*ndbSlotPage - ndbHeader) / ndbSlot {
		slot := db[ndbHeader+i*ndbSlot:]
		binary.LittleEndian.PutUint32(slot, slotMagic)
		binary.LittleEndian.PutUint32(slot[4:], u32(i+1))
		binary.LittleEndian.PutUint32(slot[8:], u32(len(db)/ndbBlock))
		for _, n := range []uint32{blobMagic, u32(i + 1), 0, u32(len(key))} {
			db = binary.LittleEndian.AppendUint32(db, n)
		}
		db = append(db, key...)
		db = append(db, make([]byte, (ndbBlock-len(db)%ndbBlock)%ndbBlock)...)
	}
	return db
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

// slowChain is a value of one page that refers to itself, and has one byte of the megabytes that
// the value is said to have.
func slowChain() []byte {
	db := bdbOf(binary.LittleEndian, []byte("x"))
	binary.LittleEndian.PutUint32(db[2*512+16:], 2)
	binary.LittleEndian.PutUint32(db[512+512-5-12+8:], 1<<25)
	return db
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
	f.Add(ndbOf(header("bash", "5.1", "1")))
	f.Add(bdbOf(binary.LittleEndian, header("bash", "5.1", "1")))
	f.Add([]byte(status))
	base, err := os.ReadFile(filepath.Join("testdata", "rpmdb.sqlite"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(_ *testing.T, content []byte) {
		for _, files := range []fake{
			{"/var/lib/rpm/rpmdb.sqlite": content},
			{"/var/lib/rpm/rpmdb.sqlite": base, "/var/lib/rpm/rpmdb.sqlite-wal": content},
			{"/var/lib/rpm/Packages.db": content},
			{"/var/lib/rpm/Packages": content},
			{"/var/lib/dpkg/status": content},
		} {
			if _, err := Read(context.Background(), files, ""); err != nil { //nolint:usetesting // a fuzz target's context ends with it
				_ = fmt.Sprint(err)
			}
		}
	})
}
