package osindex

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// magic begins every encoded index. Its last byte is the version: it changes with the form and with
// the rules of what is kept, so that what an older program has left in a cache is not taken for
// what this one would have made.
const magic = "LWINDEX\x01"

// What of a node's more is written.
const (
	hasContent = 1 << iota
	hasOrigin
)

// windowBytes is how far back the compressor looks; it and the reader need about so much memory.
const windowBytes = 1 << 20

// Encode writes the index, compressed: a header with the version, then the tree in columns (all
// names, then all attributes, and so on), which compress better than rows. Equal indexes give equal
// bytes.
func (x *Index) Encode(w io.Writer) error {
	if _, err := io.WriteString(w, magic); err != nil {
		return fmt.Errorf("writing an index: %w", err)
	}
	packer, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowBytes),
		zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(true))
	if err != nil {
		return fmt.Errorf("writing an index: %w", err)
	}
	e := &encoder{w: bufio.NewWriter(packer)}
	e.index(x)
	if err := e.w.Flush(); err != nil {
		return fmt.Errorf("writing an index: %w", err)
	}
	if err := packer.Close(); err != nil {
		return fmt.Errorf("writing an index: %w", err)
	}
	return nil
}

// encoder writes numbers and strings. Errors stay in the buffered writer until its Flush.
type encoder struct {
	w       *bufio.Writer
	scratch [binary.MaxVarintLen64]byte
}

func (e *encoder) uint(v int) {
	_, _ = e.w.Write(binary.AppendUvarint(e.scratch[:0], uint64(v))) //nolint:gosec // lengths and numbers of things
}

func (e *encoder) int(v int) { _, _ = e.w.Write(binary.AppendVarint(e.scratch[:0], int64(v))) }

func (e *encoder) text(v string) {
	e.uint(len(v))
	_, _ = e.w.WriteString(v)
}

// index writes all columns.
func (e *encoder) index(x *Index) {
	top := x.top()
	e.uint(x.layers)
	numbers := e.attributes(top)
	column := func(write func(n *node)) {
		_ = top.each(func(n *node) error {
			write(n)
			return nil
		})
	}
	e.uint(x.Paths())
	column(func(n *node) { e.uint(numbers[n.attrs]) })
	column(func(n *node) {
		e.text(n.name)
		if n.kind() == Directory {
			e.uint(len(n.children()))
		}
	})
	column(func(n *node) { e.uint(int(n.layer)) })
	column(func(n *node) {
		if n.kind() == File {
			e.uint(int(n.size))
		}
	})
	column(e.more)
}

// attributes writes all sets of attributes in the order of their first use, and returns their
// numbers.
func (e *encoder) attributes(top *node) map[*attrs]int {
	numbers := map[*attrs]int{}
	var used []*attrs
	_ = top.each(func(n *node) error {
		if _, ok := numbers[n.attrs]; !ok {
			numbers[n.attrs] = len(used)
			used = append(used, n.attrs)
		}
		return nil
	})
	e.uint(len(used))
	for _, a := range used {
		e.uint(int(a.kind))
		e.uint(int(a.mode))
		e.int(a.uid)
		e.int(a.gid)
		e.uint(len(a.xattrs))
		for _, name := range slices.Sorted(maps.Keys(a.xattrs)) {
			e.text(name)
			e.text(a.xattrs[name])
		}
	}
	return numbers
}

// more writes what only some nodes have.
func (e *encoder) more(n *node) {
	switch n.kind() {
	case Symlink:
		e.text(n.more.target)
	case File:
		var m more
		if n.more != nil {
			m = *n.more
		}
		has := 0
		if m.content != nil {
			has |= hasContent
		}
		if m.origin != "" {
			has |= hasOrigin
		}
		e.uint(has)
		if m.content != nil {
			e.text(string(m.content))
		}
		if m.origin != "" {
			e.text(m.origin)
		}
	case Directory, Special:
	}
}
