package packages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Marks of rpm's "ndb" format: of the file, of a slot, and of a value.
const (
	ndbMagic  = 'R' | 'p'<<8 | 'm'<<16 | 'P'<<24
	slotMagic = 'S' | 'l'<<8 | 'o'<<16 | 't'<<24
	blobMagic = 'B' | 'l'<<8 | 'b'<<16 | 'S'<<24
)

// Sizes of the ndb format, in bytes: a header, then slots up to the end of the last slot page, then
// values in blocks.
const (
	ndbHeader    = 32
	ndbSlot      = 16
	ndbSlotPage  = 4096
	ndbBlock     = 16
	ndbBlobHead  = 16
	maxSlotPages = 2048
)

// openNDB reads Packages.db, which openSUSE and its kin have. All numbers are little-endian.
func openNDB(database io.ReaderAt, size int64, _ *io.SectionReader) (blobs, error) {
	var head []byte
	header, err := readAt(database, &head, 0, ndbHeader)
	if err != nil {
		return nil, err
	}
	version, pages := binary.LittleEndian.Uint32(header[4:]), binary.LittleEndian.Uint32(header[12:])
	if binary.LittleEndian.Uint32(header) != ndbMagic || version != 0 {
		return nil, errors.New("it is no database of rpm's format ndb, version 0")
	}
	if pages == 0 || pages > maxSlotPages || int64(pages)*ndbSlotPage > size {
		return nil, fmt.Errorf("it says that it has %d slot pages, and has %d bytes", pages, size)
	}
	return func(yield func([]byte, error) bool) {
		var slots, value []byte
		table, err := readAt(database, &slots, ndbHeader, int(pages)*ndbSlotPage-ndbHeader)
		if err != nil {
			yield(nil, err)
			return
		}
		left := size // no value is part of another
		for ; len(table) > 0; table = table[ndbSlot:] {
			id, block := binary.LittleEndian.Uint32(table[4:]), binary.LittleEndian.Uint32(table[8:])
			if binary.LittleEndian.Uint32(table) != slotMagic {
				yield(nil, errors.New("a slot has no mark"))
				return
			}
			if id == 0 {
				continue
			}
			blob, err := ndbValue(database, size, &value, id, int64(block)*ndbBlock)
			if left -= ndbBlobHead + int64(len(blob)); err == nil && left < 0 {
				err = errors.New("it has values more than once")
			}
			if !yield(blob, err) || err != nil {
				return
			}
		}
	}, nil
}

func ndbValue(database io.ReaderAt, size int64, buffer *[]byte, id uint32, offset int64) ([]byte, error) {
	head, err := readAt(database, buffer, offset, ndbBlobHead)
	if err != nil {
		return nil, err
	}
	length := int64(binary.LittleEndian.Uint32(head[12:]))
	if binary.LittleEndian.Uint32(head) != blobMagic || binary.LittleEndian.Uint32(head[4:]) != id {
		return nil, fmt.Errorf("the value of package %d is not at %d, where its slot says", id, offset)
	}
	if length > maxHeader || offset+ndbBlobHead+length > size {
		return nil, fmt.Errorf("the value of package %d says that it has %d bytes", id, length)
	}
	return readAt(database, buffer, offset+ndbBlobHead, int(length))
}
