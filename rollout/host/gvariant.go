package host

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// errVariant is of bytes that are no GVariant of the type that they should have.
var errVariant = errors.New("it is not a dictionary as GVariant writes it")

// variantDictionary reads a GVariant of type a{sv}: the values, serialized, with their types.
func variantDictionary(data []byte) (map[string]variant, error) {
	const alignment = 8
	entries, err := variantArray(data, alignment)
	if err != nil {
		return nil, err
	}
	out := map[string]variant{}
	for _, e := range entries {
		key, rest, err := variantPair(e, alignment)
		if err != nil {
			return nil, err
		}
		at := bytes.LastIndexByte(rest, 0) // a type has no such byte
		if at < 0 {
			return nil, errVariant
		}
		out[key] = variant{kind: string(rest[at+1:]), data: rest[:at]}
	}
	return out, nil
}

// variant is a value with its type.
type variant struct {
	kind string
	data []byte
}

// strings are those of an array.
func (v variant) strings() ([]string, error) {
	if v.kind != "as" {
		return nil, errVariant
	}
	list, err := variantArray(v.data, 1)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(list))
	for i, element := range list {
		if out[i], err = variantString(element); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pairs are those of a dictionary of strings.
func (v variant) pairs() (map[string]string, error) {
	if v.kind != "a{ss}" {
		return nil, errVariant
	}
	list, err := variantArray(v.data, 1)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, element := range list {
		key, rest, err := variantPair(element, 1)
		if err != nil {
			return nil, err
		}
		if out[key], err = variantString(rest); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// variantArray takes an array apart whose elements differ in length: where each ends is at its end,
// and each begins at the next multiple of its alignment.
func variantArray(data []byte, alignment int) ([][]byte, error) {
	if len(data) == 0 {
		return nil, nil
	}
	size := offsetSize(len(data))
	if len(data) < size {
		return nil, errVariant
	}
	table := offset(data[len(data)-size:])
	if table > len(data)-size || (len(data)-table)%size != 0 {
		return nil, errVariant
	}
	var out [][]byte
	start := 0
	for at := table; at < len(data); at += size {
		start = aligned(start, alignment)
		end := offset(data[at : at+size])
		if start > end || end > table {
			return nil, errVariant
		}
		out = append(out, data[start:end])
		start = end
	}
	return out, nil
}

// variantPair takes a string, and what comes after it, apart: where the string ends is at the end.
func variantPair(data []byte, alignment int) (first string, second []byte, err error) {
	size := offsetSize(len(data))
	if len(data) < size {
		return "", nil, errVariant
	}
	end, last := offset(data[len(data)-size:]), len(data)-size
	if end > last || aligned(end, alignment) > last {
		return "", nil, errVariant
	}
	first, err = variantString(data[:end])
	return first, data[aligned(end, alignment):last], err
}

func variantString(data []byte) (string, error) {
	text, isString := bytes.CutSuffix(data, []byte{0})
	if !isString {
		return "", errVariant
	}
	return string(text), nil
}

// offsetSize is how many bytes an offset in a container of this size has.
func offsetSize(size int) int {
	switch {
	case size <= 0xff:
		return 1
	case size <= 0xffff:
		return 2
	default:
		return 4
	}
}

func offset(data []byte) int {
	var padded [8]byte
	copy(padded[:], data)
	return int(binary.LittleEndian.Uint32(padded[:]))
}

func aligned(at, alignment int) int { return (at + alignment - 1) / alignment * alignment }
