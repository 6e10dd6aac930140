package packages

import (
	"encoding/binary"
	"errors"
	"io"
)

// Parts of SQLite's write-ahead log.
const (
	walMagic     = 0x377f0682 // checksums are of little-endian numbers; one more, of big-endian ones
	walHead      = 32
	walFrameHead = 24
	walSummed    = 8 // of a frame's head
)

// openJournal notes which pages a write-ahead log has newer versions of. An image that was made
// while the database was open has one. It counts up to the last frame that ends a transaction;
// frames behind it, and those whose checksum is wrong, are left over.
func (d *sqlite) openJournal(journal *io.SectionReader) error {
	var buffer []byte
	head, err := readAt(journal, &buffer, 0, walHead)
	if err != nil {
		return nil //nolint:nilerr // SQLite ignores a journal that has not even a head
	}
	magic := binary.BigEndian.Uint32(head)
	if magic&^1 != walMagic || int(binary.BigEndian.Uint32(head[8:])) != d.page {
		return errors.New("it is none of a database with pages of this size")
	}
	sum := walSum{order: binary.LittleEndian}
	if magic&1 == 1 {
		sum.order = binary.BigEndian
	}
	if sum.add(head[:walFrameHead]); !sum.is(head[walFrameHead:]) {
		return nil
	}
	salt := [8]byte(head[16:])
	d.journal, d.wal = journal, map[uint32]int64{}
	begun := map[uint32]int64{}
	for at := int64(walHead); at+walFrameHead+int64(d.page) <= journal.Size(); at += walFrameHead + int64(d.page) {
		frame, err := readAt(journal, &buffer, at, walFrameHead+d.page)
		if err != nil {
			return err
		}
		sum.add(frame[:walSummed])
		sum.add(frame[walFrameHead:])
		if [8]byte(frame[8:]) != salt || !sum.is(frame[16:]) {
			break
		}
		begun[binary.BigEndian.Uint32(frame)] = at + walFrameHead
		if pages := binary.BigEndian.Uint32(frame[4:]); pages > 0 {
			for number, offset := range begun {
				d.wal[number] = offset
			}
			clear(begun)
		}
	}
	return nil
}

// walSum is the running checksum of a write-ahead log.
type walSum struct {
	order  binary.ByteOrder
	s1, s2 uint32
}

func (s *walSum) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		s.s1 += s.order.Uint32(b) + s.s2
		s.s2 += s.order.Uint32(b[4:]) + s.s1
	}
}

func (s *walSum) is(b []byte) bool {
	return s.s1 == binary.BigEndian.Uint32(b) && s.s2 == binary.BigEndian.Uint32(b[4:])
}
