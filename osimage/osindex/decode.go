package osindex

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	// maxEncoded bounds what an encoded index may unpack to.
	maxEncoded = 256 << 20
	// maxDepth is how deep a path of MaxPathBytes can be.
	maxDepth = MaxPathBytes/2 + 1
	// maxPaths is how many paths there can be within MaxBytes.
	maxPaths = MaxBytes / nodeBytes
	// maxText is how long all names, targets, contents and attributes can be together.
	maxText = MaxBytes + MaxKept + maxXattrs
)

// FormatError says that what was to be decoded is no index, one of another version, or a damaged
// one.
type FormatError struct {
	// Problem is what is wrong.
	Problem string
	// Err is what the reader said, where it did.
	Err error
}

// Error says what is wrong.
func (e *FormatError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("reading an index: %s: %v", e.Problem, e.Err)
	}
	return "reading an index: " + e.Problem
}

// Unwrap is what the reader said.
func (e *FormatError) Unwrap() error { return e.Err }

// Decode reads an index that Encode wrote. Anything else is a [FormatError]: other data, another
// version, a damaged or cut-off copy. It reads all of r and takes no more memory than an index
// within the limits needs, whatever r says. More layers can be applied to the result.
func Decode(r io.Reader) (*Index, error) { return DecodeIn(r, nil) }

// DecodeIn is Decode that asks room for memory before it is used, unless that is nil. So does the
// result. What room says is in a [RoomError].
func DecodeIn(r io.Reader, room Room) (*Index, error) {
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, &FormatError{Problem: "no header", Err: err}
	}
	if string(head) != magic {
		return nil, &FormatError{Problem: "not an index, or one of another version"}
	}
	unpacker, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(windowBytes), zstd.WithDecoderMaxMemory(maxEncoded))
	if err != nil {
		return nil, &FormatError{Problem: "not readable", Err: err}
	}
	defer unpacker.Close()
	d := &decoder{r: bufio.NewReader(io.LimitReader(unpacker, maxEncoded)), into: New(room)}
	x, err := d.index()
	if err != nil {
		return nil, err
	}
	if _, err := d.r.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, &FormatError{Problem: "something follows it", Err: err}
	}
	return x, nil
}

// decoder reads numbers and strings. After the first error all it reads is empty.
type decoder struct {
	r     *bufio.Reader
	into  *Index
	read  int // bytes of text
	nodes int // bytes of nodes
	err   error
}

func (d *decoder) fail(problem string, err error) {
	if d.err == nil {
		d.err = &FormatError{Problem: problem, Err: err}
	}
}

// uint reads a number up to limit.
func (d *decoder) uint(limit int) int {
	if d.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(d.r)
	if err != nil {
		d.fail("it ends early", err)
		return 0
	}
	if v > uint64(limit) { //nolint:gosec // limits are positive
		d.fail("a number is too big", nil)
		return 0
	}
	return int(v) //nolint:gosec // at most limit
}

func (d *decoder) int() int {
	if d.err != nil {
		return 0
	}
	v, err := binary.ReadVarint(d.r)
	if err != nil {
		d.fail("it ends early", err)
	}
	return int(v)
}

// text reads at most limit bytes. What it takes before it knows that they are there is little.
func (d *decoder) text(limit int) []byte {
	length := d.uint(min(limit, maxText-d.read))
	d.need(length)
	text := make([]byte, length)
	d.read += len(text)
	if _, err := io.ReadFull(d.r, text); err != nil {
		d.fail("it ends early", err)
		return nil
	}
	return text
}

// need makes sure that there is room for more text.
func (d *decoder) need(length int) {
	if err := d.into.need(d.nodes + d.read + length); err != nil {
		d.fail("there is no room for it", err)
	}
}

// maxFileSize is the size of a file that no file system exceeds.
const maxFileSize = 1<<63 - 1

// index reads all columns.
func (d *decoder) index() (*Index, error) {
	x := d.into
	x.layers = d.uint(MaxLayers)
	nodes := d.tree(d.attributes(x))
	if len(nodes) > 1 && x.layers == 0 {
		d.fail("paths without a layer", nil)
	}
	for _, n := range nodes {
		n.layer = int32(d.uint(max(x.layers-1, 0))) //nolint:gosec // at most MaxLayers
	}
	for _, n := range nodes {
		if n.kind() == File {
			n.size = int64(d.uint(maxFileSize))
		}
	}
	for _, n := range nodes {
		d.more(x, n)
	}
	if d.err != nil {
		return nil, d.err
	}
	x.root = nodes[0]
	if x.count(); x.bytes > MaxBytes {
		return nil, &FormatError{Problem: "it is too large", Err: errTooLarge}
	}
	return x, nil
}

// attributes reads the sets of attributes.
func (d *decoder) attributes(x *Index) []*attrs {
	var all []*attrs
	for range d.uint(maxAttrs) {
		a := attrs{
			kind: Kind(d.uint(int(Special))), //nolint:gosec // at most Special
			mode: uint32(d.uint(modeBits)),   //nolint:gosec // twelve bits
			uid:  d.int(), gid: d.int(),
		}
		for range d.uint(maxXattrCount) {
			if d.err != nil {
				break
			}
			if a.xattrs == nil {
				a.xattrs = map[string]string{}
			}
			name := string(d.text(maxXattrName))
			a.xattrs[name] = string(d.text(maxXattrValue))
		}
		if a.kind == 0 {
			d.fail("attributes of nothing", nil)
		}
		known, err := x.intern(a)
		if err != nil {
			d.fail("attributes", err)
		}
		if d.err != nil {
			return nil
		}
		all = append(all, known)
	}
	return all
}

// tree reads which paths there are, and of what kind. The nodes are in the order of each.
func (d *decoder) tree(all []*attrs) []*node {
	count := d.uint(maxPaths)
	if count == 0 || len(all) == 0 {
		d.fail("it has no root", nil)
		return nil
	}
	d.nodes = count * nodeBytes
	d.need(0)
	var nodes []*node
	for range count {
		n := &node{attrs: all[d.uint(len(all)-1)]}
		if d.err != nil {
			return nil
		}
		nodes = append(nodes, n)
	}
	if nodes[0].kind() != Directory {
		d.fail("its root is no directory", nil)
		return nil
	}
	if rest := d.names(nodes, 0); len(rest) > 0 {
		d.fail("paths without a parent", nil)
	}
	return nodes
}

// names reads the name of the first of the nodes and of all below it, and returns the nodes that
// come after.
func (d *decoder) names(nodes []*node, depth int) []*node {
	n, rest := nodes[0], nodes[1:]
	n.name = string(d.text(MaxNameBytes))
	if (depth == 0) != (n.name == "") || strings.Contains(n.name, "/") || n.name == "." || n.name == ".." || depth > maxDepth {
		d.fail("an impossible name", nil)
	}
	if n.kind() != Directory {
		return rest
	}
	below := d.uint(len(rest))
	if below == 0 {
		return rest
	}
	d.nodes += moreBytes
	n.more = &more{below: make([]*node, 0, min(below, 1024))}
	for range below {
		if d.err != nil || len(rest) == 0 {
			d.fail("a directory lacks something", nil)
			return nil
		}
		child := rest[0]
		rest = d.names(rest, depth+1)
		if last := len(n.more.below); last > 0 && n.more.below[last-1].name >= child.name {
			d.fail("names are not in order", nil)
		}
		n.more.below = append(n.more.below, child)
	}
	return rest
}

// more reads what only some nodes have.
func (d *decoder) more(x *Index, n *node) {
	switch n.kind() {
	case Symlink:
		d.nodes += moreBytes
		n.more = &more{target: string(d.text(MaxPathBytes))}
		if n.more.target == "" {
			d.fail("a symbolic link without a target", nil)
		}
	case File:
		has := d.uint(hasContent | hasOrigin)
		if has&hasContent != 0 {
			n.extra().content = d.text(maxSystemFile)
			if x.kept += len(n.more.content); x.kept > MaxKept || int64(len(n.more.content)) != n.size {
				d.fail("contents that an index does not keep", nil)
			}
		}
		if has&hasOrigin != 0 {
			n.extra().origin = string(d.text(MaxPathBytes))
		}
	case Directory, Special:
	}
}
