package packages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Parts of a Berkeley DB of the kind "hash".
const (
	bdbMagic        = 0x061561
	bdbMeta         = 512
	bdbPageHead     = 26
	bdbHashUnsorted = 2 // of a page, as CentOS 5 wrote them
	bdbHash         = 13
	bdbOverflow     = 7
	bdbOffPage      = 3 // of an item: it is on pages of its own
	bdbOffItem      = 12
	minPage         = 512
	maxPage         = 65536
)

// bdb is a Berkeley DB, which RHEL 8 and older have.
type bdb struct {
	file  io.ReaderAt
	order binary.ByteOrder
	page  int
	pages uint32
	// left is how many pages of values may still be read: none is part of two.
	left uint32
}

// openBDB reads Packages. Of its items only those on pages of their own are packages: the others
// are its keys.
func openBDB(database io.ReaderAt, size int64, _ *io.SectionReader) (blobs, error) {
	var buffer []byte
	meta, err := readAt(database, &buffer, 0, bdbMeta)
	if err != nil {
		return nil, err
	}
	db := &bdb{file: database}
	switch uint32(bdbMagic) {
	case binary.LittleEndian.Uint32(meta[12:]):
		db.order = binary.LittleEndian
	case binary.BigEndian.Uint32(meta[12:]):
		db.order = binary.BigEndian
	default:
		return nil, errors.New("it is no hash table of Berkeley DB")
	}
	page := db.order.Uint32(meta[20:])
	if page < minPage || page > maxPage || page&(page-1) != 0 {
		return nil, fmt.Errorf("its pages have %d bytes", page)
	}
	db.page, db.pages = int(page), db.order.Uint32(meta[32:])
	if int64(db.pages) > size/int64(page) {
		return nil, fmt.Errorf("it says that it has %d pages of %d bytes, and has %d bytes", db.pages, page, size)
	}
	db.left = db.pages
	return db.values, nil
}

func (d *bdb) values(yield func([]byte, error) bool) {
	var buffer, part, value []byte
	for number := uint32(1); number <= d.pages; number++ {
		page, err := readAt(d.file, &buffer, int64(number)*int64(d.page), d.page)
		if errors.Is(err, io.ErrUnexpectedEOF) && number == d.pages {
			return // the last page is mostly counted, and not always written
		}
		if err != nil {
			yield(nil, err)
			return
		}
		if kind := page[25]; kind != bdbHash && kind != bdbHashUnsorted {
			continue
		}
		count := int(d.order.Uint16(page[20:]))
		if bdbPageHead+2*count > len(page) {
			yield(nil, fmt.Errorf("page %d says that it has %d items", number, count))
			return
		}
		for i := 1; i < count; i += 2 {
			at := int(d.order.Uint16(page[bdbPageHead+2*i:]))
			if at+bdbOffItem > len(page) || page[at] != bdbOffPage {
				continue
			}
			first, length := d.order.Uint32(page[at+4:]), d.order.Uint32(page[at+8:])
			value, err = d.chain(value[:0], &part, first, length)
			if !yield(value, err) || err != nil {
				return
			}
		}
	}
}

// chain joins the pages of one value.
func (d *bdb) chain(value []byte, buffer *[]byte, first, length uint32) ([]byte, error) {
	if length > maxHeader {
		return nil, fmt.Errorf("a value says that it has %d bytes", length)
	}
	for number := first; number != 0; {
		if d.left == 0 {
			return nil, errors.New("its pages refer to each other in a circle")
		}
		d.left--
		page, err := readAt(d.file, buffer, int64(number)*int64(d.page), d.page)
		if err != nil {
			return nil, err
		}
		n := int(d.order.Uint16(page[22:]))
		if page[25] != bdbOverflow || n == 0 || bdbPageHead+n > len(page) || len(value)+n > int(length) {
			return nil, fmt.Errorf("page %d is no part of a value of %d bytes", number, length)
		}
		value = append(value, page[bdbPageHead:][:n]...)
		number = d.order.Uint32(page[16:])
	}
	if len(value) != int(length) {
		return nil, fmt.Errorf("a value of %d bytes has %d", length, len(value))
	}
	return value, nil
}
