package layer

import (
	"bytes"
	"encoding/base64"
	"io"
	"slices"

	"github.com/layerwright/layerwright/machineconfigs"
)

// body is what a file holds, in pieces, one after the other. Compressed ones are never in memory as
// a whole.
type body []piece

// piece is a part of a body: one of its fields is set.
type piece struct {
	data     []byte
	contents *machineconfigs.Contents
	// encoded is written in base64.
	encoded body
}

func (p piece) size() int64 {
	switch {
	case p.contents != nil:
		return p.contents.Size
	case p.encoded != nil:
		const from, to = 3, 4
		return (p.encoded.size() + from - 1) / from * to
	}
	return int64(len(p.data))
}

func (p piece) writeTo(w io.Writer) error {
	switch {
	case p.contents != nil:
		_, err := p.contents.WriteTo(w)
		return err
	case p.encoded != nil:
		encoder := base64.NewEncoder(base64.StdEncoding, w)
		if err := p.encoded.writeTo(encoder); err != nil {
			return err
		}
		return encoder.Close()
	}
	_, err := w.Write(p.data)
	return err
}

// size is how many bytes the body has.
func (b body) size() (size int64) {
	for _, p := range b {
		size += p.size()
	}
	return size
}

// writeTo writes all pieces.
func (b body) writeTo(w io.Writer) error {
	for _, p := range b {
		if err := p.writeTo(w); err != nil {
			return err
		}
	}
	return nil
}

// bytes gives the body as one.
func (b body) bytes() ([]byte, error) {
	var all bytes.Buffer
	all.Grow(int(b.size()))
	err := b.writeTo(&all)
	return all.Bytes(), err
}

// bodyOf is a body of bytes that are there.
func bodyOf(data ...[]byte) body {
	var b body
	for _, d := range slices.DeleteFunc(data, func(d []byte) bool { return len(d) == 0 }) {
		b = append(b, piece{data: d})
	}
	return b
}
