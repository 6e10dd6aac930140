package packages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Parts of SQLite's file format (https://www.sqlite.org/fileformat2.html).
const (
	sqliteMagic    = "SQLite format 3\x00"
	sqliteHead     = 100
	sqliteUTF8     = 1
	minPage        = 512
	maxPage        = 65536
	tableInterior  = 5
	tableLeaf      = 13
	interiorHead   = 12
	leafHead       = 8
	maxDepth       = 20
	packagesTable  = "Packages"
	maxSchemaValue = 1 << 20
	// usedColumns are those at the begin of a record that anything is wanted of; there may be
	// millions behind them.
	usedColumns = 4
)

var errCutOff = errors.New("a record is cut off")

// sqlite is a database of which whole tables are read.
type sqlite struct {
	file io.ReaderAt
	// wal is where newer versions of pages are in the journal, by number; nil without one.
	journal io.ReaderAt
	wal     map[uint32]int64
	page    int
	// usable is what is left of a page for content.
	usable int
	pages  uint32
	// left is how many pages may still be visited: no page is part of a table twice, so who needs
	// more goes around in circles.
	left int
	// overflow and value are buffers for one row.
	overflow, value []byte
}

// openSQLite reads rpmdb.sqlite, which RHEL 9, Fedora 33 and younger have.
func openSQLite(database io.ReaderAt, size int64, journal *io.SectionReader) (blobs, error) {
	var buffer []byte
	head, err := readAt(database, &buffer, 0, sqliteHead)
	if err != nil {
		return nil, err
	}
	page := int(binary.BigEndian.Uint16(head[16:]))
	if page == 1 {
		page = maxPage
	}
	if string(head[:len(sqliteMagic)]) != sqliteMagic || page < minPage || page&(page-1) != 0 || binary.BigEndian.Uint32(head[56:]) != sqliteUTF8 {
		return nil, errors.New("it is no SQLite database in UTF-8")
	}
	db := &sqlite{file: database, page: page, usable: page - int(head[20])}
	if db.usable < 480 { //nolint:mnd // the format's own minimum
		return nil, fmt.Errorf("its pages have only %d bytes for content", db.usable)
	}
	db.pages = uint32(size / int64(page)) //nolint:gosec // less than 2^30 bytes
	if journal != nil {
		if err := db.openJournal(journal); err != nil {
			return nil, fmt.Errorf("its journal: %w", err)
		}
	}
	root, err := db.rootOf(packagesTable)
	if err != nil {
		return nil, err
	}
	return func(yield func([]byte, error) bool) {
		err := db.rows(root, maxHeader, func(record []byte) error {
			columns, err := columnsOf(record)
			if err == nil && len(columns) < 2 { //nolint:mnd // number and header
				err = errCutOff
			}
			if err != nil {
				return err
			}
			if !yield(columns[1].data, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, err)
		}
	}, nil
}

var errStop = errors.New("enough")

// rootOf finds the page that a table begins on. The schema is a table itself: type, name, table,
// root page, text.
func (d *sqlite) rootOf(table string) (uint32, error) {
	var root uint32
	err := d.rows(1, maxSchemaValue, func(record []byte) error {
		columns, err := columnsOf(record)
		if err != nil || len(columns) < usedColumns {
			return errors.Join(err, errShort(len(columns) < usedColumns)) // up to the root page
		}
		if string(columns[0].data) == "table" && string(columns[1].data) == table {
			root = uint32(columns[3].number()) //nolint:gosec // page checks it
		}
		return nil
	})
	if err == nil && root == 0 {
		err = fmt.Errorf("it has no table %q", table)
	}
	return root, err
}

func errShort(is bool) error {
	if is {
		return errCutOff
	}
	return nil
}

// rows calls use with each record of a table. Larger records than the limit are an error.
func (d *sqlite) rows(root uint32, limit int, use func([]byte) error) error {
	d.left = int(d.pages) + len(d.wal)
	return d.walk(root, 0, limit, use)
}

func (d *sqlite) walk(number uint32, depth, limit int, use func([]byte) error) error {
	if depth > maxDepth {
		return errors.New("its tree is too deep")
	}
	var buffer []byte // one for each level: at most maxDepth pages
	page, err := d.read(number, &buffer)
	if err != nil {
		return err
	}
	at := 0
	if number == 1 {
		at = sqliteHead
	}
	kind, cells := page[at], int(binary.BigEndian.Uint16(page[at+3:]))
	first := at + leafHead
	if kind == tableInterior {
		first = at + interiorHead
	}
	if kind != tableInterior && kind != tableLeaf || first+2*cells > len(page) {
		return fmt.Errorf("page %d is no part of a table", number)
	}
	for i := range cells {
		cell := int(binary.BigEndian.Uint16(page[first+2*i:]))
		if cell+4 > d.usable { //nolint:mnd // the smallest cell
			return fmt.Errorf("page %d has a row at %d", number, cell)
		}
		if kind == tableInterior {
			err = d.walk(binary.BigEndian.Uint32(page[cell:]), depth+1, limit, use)
		} else {
			err = d.row(page[cell:d.usable], limit, use)
		}
		if err != nil {
			return err
		}
	}
	if kind == tableInterior {
		return d.walk(binary.BigEndian.Uint32(page[at+leafHead:]), depth+1, limit, use)
	}
	return nil
}

// row reads the record of a cell: its length, the row's number, and the record, of which only a
// part may be in the cell.
func (d *sqlite) row(cell []byte, limit int, use func([]byte) error) error {
	length, rest, ok := varint(cell)
	if !ok {
		return errCutOff
	}
	if _, rest, ok = varint(rest); !ok {
		return errCutOff
	}
	if length > uint64(limit) { //nolint:gosec // a positive constant
		return fmt.Errorf("a record says that it has %d bytes", length)
	}
	size := int(length) //nolint:gosec // checked above
	local := d.local(size)
	if local > len(rest) {
		return errCutOff
	}
	if local == size {
		return use(rest[:size])
	}
	if local+4 > len(rest) { //nolint:mnd // the number of a page follows
		return errCutOff
	}
	d.value = append(d.value[:0], rest[:local]...)
	for next := binary.BigEndian.Uint32(rest[local:]); len(d.value) < size; {
		page, err := d.read(next, &d.overflow)
		if err != nil {
			return err
		}
		next = binary.BigEndian.Uint32(page)
		d.value = append(d.value, page[4:4+min(d.usable-4, size-len(d.value))]...)
	}
	return use(d.value)
}

// local is how much of a record is in its cell.
func (d *sqlite) local(size int) int {
	whole := d.usable - 35
	if size <= whole {
		return size
	}
	least := (d.usable-12)*32/255 - 23
	if some := least + (size-least)%(d.usable-4); some <= whole {
		return some
	}
	return least
}

// read reads a page.
func (d *sqlite) read(number uint32, buffer *[]byte) ([]byte, error) {
	if d.left--; d.left < 0 {
		return nil, errors.New("its pages refer to each other in a circle")
	}
	if offset, newer := d.wal[number]; newer {
		return readAt(d.journal, buffer, offset, d.page)
	}
	if number == 0 || number > d.pages {
		return nil, fmt.Errorf("it refers to page %d of %d", number, d.pages)
	}
	return readAt(d.file, buffer, int64(number-1)*int64(d.page), d.page)
}

// column is a value of a record.
type column struct {
	kind uint64
	data []byte
}

// number is the value of an integer.
func (c column) number() uint64 {
	const one = 9
	if c.kind == one {
		return 1
	}
	var n uint64
	for _, b := range c.data {
		n = n<<8 | uint64(b)
	}
	return n
}

// columnsOf takes the begin of a record apart: the length of its head, the type of each column, and
// their bytes.
func columnsOf(record []byte) ([]column, error) {
	length, _, ok := varint(record)
	if !ok || length > uint64(len(record)) {
		return nil, errCutOff
	}
	head, body := record[:length], record[length:]
	_, head, _ = varint(head)
	var columns []column
	for len(head) > 0 && len(columns) < usedColumns {
		var kind uint64
		if kind, head, ok = varint(head); !ok {
			return nil, errCutOff
		}
		size, known := sizeOf(kind)
		if !known || size > uint64(len(body)) {
			return nil, errCutOff
		}
		columns = append(columns, column{kind, body[:size]})
		body = body[size:]
	}
	return columns, nil
}

// sizeOf is how many bytes a value of a type has.
func sizeOf(kind uint64) (uint64, bool) {
	const firstText = 12
	switch kind {
	case 0, 8, 9: // NULL, and the constants 0 and 1
		return 0, true
	case 1, 2, 3, 4:
		return kind, true
	case 5:
		return 6, true
	case 6, 7: // a float too
		return 8, true
	case 10, 11: // reserved
		return 0, false
	default: // bytes have even types, text odd ones
		return (kind - firstText) / 2, true
	}
}

// varint reads a number of one to nine bytes, seven bits in each but the ninth.
func varint(b []byte) (n uint64, rest []byte, ok bool) {
	const longest = 9
	for i := range min(len(b), longest) {
		if i == longest-1 {
			return n<<8 | uint64(b[i]), b[longest:], true
		}
		n = n<<7 | uint64(b[i]&0x7f)
		if b[i] < 0x80 {
			return n, b[i+1:], true
		}
	}
	return 0, nil, false
}
