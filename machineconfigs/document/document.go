package document

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	vjson "github.com/coreos/vcontext/json"
	"github.com/coreos/vcontext/path"
	"github.com/coreos/vcontext/tree"

	"github.com/layerwright/layerwright/machineconfigs/dataurl"
)

// StandIn takes the place of a data URL while Ignition reads a configuration; the number of the
// data URL follows.
const StandIn = "data:,content-"

// Document is the JSON of spec.config. Nearly all of it are data URLs, which Ignition reads rune by
// rune, several times. So they are taken out before, and put back after; this package checks them
// itself, once. Places are those in the original all the same.
type Document struct {
	original []byte
	// Small is the JSON with stand-ins.
	Small []byte
	Cuts  []cut
	tree  tree.Node
}

// cut is one data URL that was taken out; starts and ends are those of the text between the quotes.
type cut struct {
	Content              string
	start, end           int
	smallStart, smallEnd int
}

// New reads a document.
func New(raw []byte) *Document {
	d := &Document{original: raw, Small: raw}
	cuts, ok := findContents(raw)
	if !ok || len(cuts) == 0 {
		return d
	}
	small := make([]byte, 0, 1024)
	last := 0
	for i := range cuts {
		c := &cuts[i]
		small = append(small, raw[last:c.start]...)
		c.smallStart = len(small)
		small = append(small, StandIn...)
		small = strconv.AppendInt(small, int64(i), 10)
		c.smallEnd = len(small)
		last = c.end
	}
	small = append(small, raw[last:]...)
	d.Small, d.Cuts = small, cuts
	return d
}

// findContents finds the values of keys "source" that are plainly written data URLs. It knows no
// more of JSON than its strings: in what is not JSON it may find anything, which then is no better
// JSON with stand-ins. It reports false where a stand-in could be taken for a text of the
// document's own.
func findContents(raw []byte) (cuts []cut, ok bool) {
	if bytes.Contains(raw, []byte(StandIn)) {
		return nil, false
	}
	for at := 0; ; {
		text, next, escaped := nextString(raw, at)
		if next < 0 {
			return cuts, true
		}
		if escaped && resemblesStandIn(text) {
			return nil, false
		}
		at = next
		if string(text) != "source" {
			continue
		}
		colon := skipSpace(raw, at)
		if colon >= len(raw) || raw[colon] != ':' {
			continue
		}
		value := skipSpace(raw, colon+1)
		if value >= len(raw) || raw[value] != '"' {
			continue
		}
		content, next, escaped := nextString(raw, value)
		if next < 0 || escaped || !isPlainDataURL(content) {
			continue // read again as any other string
		}
		cuts = append(cuts, cut{Content: string(content), start: value + 1, end: next - 1})
		at = next
	}
}

// nextString finds the next JSON string: the text between its quotes, the index behind it (-1 if
// there is none), and whether it has escapes.
func nextString(raw []byte, at int) (text []byte, next int, escaped bool) {
	open := bytes.IndexByte(raw[at:], '"')
	if open < 0 {
		return nil, -1, false
	}
	start := at + open + 1
	for from, quote := start, -1; ; {
		if quote < from {
			found := bytes.IndexByte(raw[from:], '"')
			if found < 0 {
				return nil, -1, false
			}
			quote = from + found
		}
		backslash := bytes.IndexByte(raw[from:quote], '\\')
		if backslash < 0 {
			return raw[start:quote], quote + 1, escaped
		}
		escaped = true
		from += backslash + 2
		if from > len(raw) {
			return nil, -1, false
		}
	}
}

func skipSpace(raw []byte, at int) int {
	for at < len(raw) && strings.IndexByte(" \t\r\n", raw[at]) >= 0 {
		at++
	}
	return at
}

// resemblesStandIn reports whether a string with escapes, once they are resolved, starts like a
// stand-in.
func resemblesStandIn(text []byte) bool {
	if len(text) == 0 || (text[0] != StandIn[0] && text[0] != '\\') {
		return false
	}
	var resolved string
	err := json.Unmarshal(append(append([]byte{'"'}, text...), '"'), &resolved)
	return err == nil && strings.HasPrefix(resolved, StandIn)
}

// isPlainDataURL reports whether the text means the same in JSON and outside, and is a data URL
// whose data this package can read. Whether the characters are those of base64 is found out when it
// is decoded.
func isPlainDataURL(text []byte) bool {
	header := text[:min(len(text), dataurl.MaxHeader)]
	url, ok := dataurl.Split(string(header))
	if !ok {
		return false
	}
	// What is cut out is never seen as JSON, which has no control characters in its strings,
	// whatever key they stand under.
	for _, c := range text[len(header)-len(url.Data):] {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// Restore gives the content that a stand-in is for; other texts are given back.
func (d *Document) Restore(source string) string {
	digits, isStandIn := strings.CutPrefix(source, StandIn)
	if !isStandIn || len(d.Cuts) == 0 {
		return source
	}
	i, err := strconv.Atoi(digits)
	if err != nil || i < 0 || i >= len(d.Cuts) {
		return source
	}
	return d.Cuts[i].Content
}

// Place gives line and column, from 1, in the original for an offset in the small document.
func (d *Document) Place(offset int) (line, column int) {
	at := max(0, offset)
	for _, c := range d.Cuts {
		if c.smallStart > offset {
			break
		}
		if offset < c.smallEnd {
			at = c.start
			break
		}
		at = offset - c.smallEnd + c.end
	}
	before := d.original[:min(at, len(d.original))]
	return bytes.Count(before, []byte{'\n'}) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

// Offset is the reverse of how Ignition counts lines and columns in the small document.
func (d *Document) Offset(line, column int) int {
	at := 0
	for ; line > 1; line-- {
		newline := bytes.IndexByte(d.Small[at:], '\n')
		if newline < 0 {
			break
		}
		at += newline + 1
	}
	return min(at+max(0, column-1), len(d.Small))
}

// Find gives the place of a path, or of as much of it as the document has; 0 where the document is
// no JSON.
func (d *Document) Find(p string) (line, column int) {
	root := d.root()
	if root == nil {
		return 0, 0
	}
	segments := PathSegments(p)
	for {
		node, err := root.Get(path.New("json", segments...))
		if err == nil {
			return d.Place(startOf(node))
		}
		segments = segments[:len(segments)-1]
	}
}

// startOf is the offset of a value's first byte; the library gives that behind the bracket for
// objects and lists.
func startOf(node tree.Node) int {
	start := int(node.GetMarker().StartP.Index)
	switch node.(type) {
	case tree.MapNode, tree.SliceNode:
		start--
	}
	return start
}

// PathAt gives the path of the innermost value that starts before the offset and ends at it, or
// behind.
func (d *Document) PathAt(offset int) string {
	var segments []any
	for node := d.root(); node != nil; {
		segment, child := childAt(node, int64(offset))
		if child == nil {
			break
		}
		segments = append(segments, segment)
		node = child
	}
	return PathString(segments)
}

func childAt(node tree.Node, offset int64) (segment any, child tree.Node) {
	holds := func(n tree.Node) bool {
		m := n.GetMarker()
		return m.StartP != nil && m.EndP != nil && m.StartP.Index < offset && offset <= m.EndP.Index+1
	}
	switch n := node.(type) {
	case tree.MapNode:
		for key, child := range n.Children {
			if holds(child) {
				return key, child
			}
		}
	case tree.SliceNode:
		for i, child := range n.Children {
			if holds(child) {
				return i, child
			}
		}
	}
	return nil, nil
}

// root is read when the first mistake is found.
func (d *Document) root() tree.Node {
	if d.tree == nil && json.Valid(d.Small) {
		d.tree, _ = vjson.UnmarshalToContext(d.Small) // nil where it cannot be read
	}
	return d.tree
}

// PathString writes a path as people do: storage.files[3].contents.source.
func PathString(segments []any) string {
	var b strings.Builder
	for _, segment := range segments {
		switch s := segment.(type) {
		case int:
			b.WriteString("[" + strconv.Itoa(s) + "]")
		case tree.Key:
			writeKey(&b, string(s))
		case string:
			writeKey(&b, s)
		}
	}
	return b.String()
}

func writeKey(b *strings.Builder, key string) {
	if b.Len() > 0 {
		b.WriteByte('.')
	}
	b.WriteString(key)
}

// PathSegments is the reverse of pathString, for keys without dots and brackets.
func PathSegments(p string) []any {
	if p == "" {
		return nil
	}
	var segments []any
	for _, part := range strings.Split(p, ".") {
		key, indices, _ := strings.Cut(part, "[")
		segments = append(segments, key)
		for indices != "" {
			var digits string
			digits, indices, _ = strings.Cut(indices, "]")
			if i, err := strconv.Atoi(digits); err == nil {
				segments = append(segments, i)
			}
			indices = strings.TrimPrefix(indices, "[")
		}
	}
	return segments
}
