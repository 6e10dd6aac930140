package packages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
)

// Limits of a package's header. Those of kernels, with thousands of files, have a few MB.
const (
	maxHeader  = 64 << 20
	maxEntries = 1 << 16
)

// Tags of rpm's headers.
const (
	tagName      = 1000
	tagVersion   = 1001
	tagRelease   = 1002
	tagEpoch     = 1003
	tagLicense   = 1014
	tagArch      = 1022
	tagSourceRPM = 1044
)

// Types of values in rpm's headers.
const (
	typeInt32       = 4
	typeString      = 6
	typeStringArray = 8
	typeI18N        = 9
)

// publicKey is the name under which rpm keeps the keys of those who sign packages.
const publicKey = "gpg-pubkey"

// blobs are the values of an rpm database: each is the header of an installed package. A slice is
// valid until the next one. An error is the last that comes.
type blobs = iter.Seq2[[]byte, error]

// unsupported is for the formats that rpm had before SQLite (Berkeley DB of RHEL 8), and that
// openSUSE has (ndb): no stream has them.
func unsupported(string, []string, func(Package) error) error {
	return errors.New("its format is not read: run `rpmdb --define '_db_backend sqlite' --rebuilddb` as the image is built")
}

// readRPM reads a database of SQLite and its journal, whose paths are given in this order.
func readRPM(_ string, paths []string, add func(Package) error) error {
	var parts []*io.SectionReader
	for _, path := range paths {
		file, err := os.Open(path) //nolint:gosec // a copy in our own folder
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() //nolint:gocritic // two files at most, both needed to the end
		info, err := file.Stat()
		if err != nil {
			return err
		}
		parts = append(parts, io.NewSectionReader(file, 0, info.Size()))
	}
	var journal *io.SectionReader
	if len(parts) > 1 && parts[1].Size() > 0 {
		journal = parts[1]
	}
	values, err := openSQLite(parts[0], parts[0].Size(), journal)
	if err != nil {
		return err
	}
	return addAll(values, add)
}

func addAll(values blobs, add func(Package) error) error {
	count := 0
	for blob, err := range values {
		if err != nil {
			return err
		}
		if count++; count > maxPackages { // public keys too: a value may be there many times
			return fmt.Errorf("it has more than %d packages and public keys", maxPackages)
		}
		p, err := parseHeader(blob)
		if err != nil {
			return err
		}
		if p.Name == publicKey {
			continue
		}
		if err := add(p); err != nil {
			return err
		}
	}
	return nil
}

// parseHeader reads what is wanted of a package's header: a number of entries, a number of bytes,
// the entries of 16 bytes each (tag, type, offset, count), and the bytes that the offsets are in.
// All numbers are big-endian.
func parseHeader(blob []byte) (Package, error) {
	const head, entry = 8, 16
	if len(blob) < head {
		return Package{}, errors.New("the header of a package is cut off")
	}
	entries, size := binary.BigEndian.Uint32(blob), binary.BigEndian.Uint32(blob[4:])
	if entries > maxEntries || size > maxHeader || int(entries)*entry+int(size) > len(blob)-head {
		return Package{}, fmt.Errorf("the header of a package says that it has %d entries and %d bytes, and has %d bytes in all", entries, size, len(blob))
	}
	data := blob[head+int(entries)*entry:][:size]
	values := map[uint32]string{}
	for i := range int(entries) {
		e := blob[head+i*entry:][:entry]
		tag, kind, offset := binary.BigEndian.Uint32(e), binary.BigEndian.Uint32(e[4:]), binary.BigEndian.Uint32(e[8:])
		if _, known := values[tag]; known || !isWanted(tag) {
			continue
		}
		value, err := valueAt(data, kind, offset)
		if err != nil {
			return Package{}, fmt.Errorf("the header of a package: tag %d: %w", tag, err)
		}
		values[tag] = value
	}
	p := Package{
		Type: RPM, Name: values[tagName], Version: values[tagVersion] + "-" + values[tagRelease],
		Arch: values[tagArch], Source: values[tagSourceRPM], License: values[tagLicense],
	}
	if epoch := values[tagEpoch]; epoch != "" && epoch != "0" {
		p.Version = epoch + ":" + p.Version
	}
	if p.Name == "" || values[tagVersion] == "" {
		return Package{}, errors.New("the header of a package: it does not say which package it is")
	}
	return p, nil
}

func isWanted(tag uint32) bool {
	switch tag {
	case tagName, tagVersion, tagRelease, tagEpoch, tagLicense, tagArch, tagSourceRPM:
		return true
	default:
		return false
	}
}

// valueAt is the first value of an entry.
func valueAt(data []byte, kind, offset uint32) (string, error) {
	if uint64(offset) > uint64(len(data)) {
		return "", fmt.Errorf("its value is at %d of %d bytes", offset, len(data))
	}
	rest := data[offset:]
	switch kind {
	case typeString, typeStringArray, typeI18N:
		end := bytes.IndexByte(rest[:min(len(rest), maxLine)], 0)
		if end < 0 {
			return "", fmt.Errorf("its text has no end within %d bytes", maxLine)
		}
		return string(rest[:end]), nil
	case typeInt32:
		if len(rest) < 4 { //nolint:mnd // 32 bits
			return "", errors.New("its number is cut off")
		}
		return strconv.FormatUint(uint64(binary.BigEndian.Uint32(rest)), 10), nil
	default:
		return "", fmt.Errorf("its type %d is none that is expected", kind)
	}
}

// readAt reads n bytes at an offset. The bytes are the buffer's.
func readAt(r io.ReaderAt, buffer *[]byte, offset int64, n int) ([]byte, error) {
	if cap(*buffer) < n {
		*buffer = make([]byte, n)
	}
	b := (*buffer)[:n]
	if got, err := r.ReadAt(b, offset); got < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("reading %d bytes at %d: %w", n, offset, err)
	}
	return b, nil
}
