package osindex_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/osindex"
)

func TestEncodeIsTheSameForTheSameImage(t *testing.T) {
	t.Parallel()
	layers := append(encapsulated(), layer{
		withRecords(file("etc/x", "1"), "SCHILY.xattr.user.b", "2", "SCHILY.xattr.user.a", "1"), file("etc/x", "1"), symlink("a", "b"),
	}, layer{hardlink("z", "etc/x"), whiteout("etc/x")})
	whole := indexOf(t, layers...)
	require.Equal(t, encoded(t, whole), encoded(t, indexOf(t, layers...)), "made twice")
	require.Equal(t, encoded(t, whole), encoded(t, decoded(t, encoded(t, whole))), "read back")

	for n := range layers {
		x := decoded(t, encoded(t, indexOf(t, layers[:n]...)))
		for _, entries := range layers[n:] {
			require.NoError(t, x.Apply(bytes.NewReader(archive(t, entries...))))
		}
		require.Equal(t, encoded(t, whole), encoded(t, x), "continued after %d layers", n)
	}
}

func TestDecodeKeepsEverything(t *testing.T) {
	t.Parallel()
	x := indexOf(t, encapsulated()...)
	y := decoded(t, encoded(t, x))
	require.Empty(t, cmp.Diff(list(x), list(y)))
	require.Equal(t, x.Layers(), y.Layers())
	require.Equal(t, x.Paths(), y.Paths())
	root, _ := x.Lookup("/")
	again, _ := y.Lookup("/")
	require.Equal(t, root, again)
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	good := encoded(t, indexOf(t, encapsulated()...))
	tests := map[string]struct {
		data []byte
		want string
	}{
		"nothing":              {nil, "reading an index: no header: EOF"},
		"half a header":        {good[:4], "reading an index: no header: unexpected EOF"},
		"another file":         {[]byte("apiVersion: v1\nkind: List\n"), "not an index, or one of another version"},
		"another version":      {append([]byte("LWINDEX\xff"), good[8:]...), "not an index, or one of another version"},
		"a header alone":       {good[:8], "it ends early"},
		"something at the end": {append(bytes.Clone(good), good[8:]...), "something follows it"},
		"text at the end":      {append(bytes.Clone(good), "text"...), "something follows it"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, err := osindex.Decode(bytes.NewReader(test.data))
			require.Nil(t, x)
			var format *osindex.FormatError
			require.ErrorAs(t, err, &format)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// TestDecodeErrors is about what a checksum can't tell: someone's own bytes, well
// packed.
func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	// Numbers below 128 are one byte; identities are twice as big, for their sign.
	const file, directory, link = "\x01\xa4\x03\x00\x00\x00", "\x02\xed\x03\x00\x00\x00", "\x03\xff\x03\x00\x00\x00"
	all := "\x03" + directory + file + link
	tests := map[string]struct{ payload, want string }{
		"no root":                           {"\x01" + all + "\x00", "it has no root"},
		"no attributes":                     {"\x01\x00\x01\x00", "it has no root"},
		"attributes of nothing":             {"\x01\x01\x00\x00\x00\x00\x00", "attributes of nothing"},
		"an unknown kind":                   {"\x01\x01\x05\x00\x00\x00\x00", "a number is too big"},
		"a mode out of range":               {"\x01\x01\x02\x80\x20\x00\x00\x00", "a number is too big"},
		"too many layers":                   {"\x81\x08" + all, "a number is too big"},
		"a number without an end":           {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "it ends early"},
		"too many paths":                    {"\x01" + all + "\xff\xff\xff\x7f", "a number is too big"},
		"more paths than there are":         {"\x01" + all + "\xff\x01\x00", "it ends early"},
		"attributes that are not there":     {"\x01" + all + "\x01\x03", "a number is too big"},
		"a root that is a file":             {"\x01" + all + "\x01\x01", "its root is no directory"},
		"a root with a name":                {"\x01" + all + "\x01\x00\x01a\x00\x00", "an impossible name"},
		"a path without a name":             {"\x01" + all + "\x02\x00\x01\x00\x01\x00", "an impossible name"},
		"a name with a slash":               {"\x01" + all + "\x02\x00\x01\x00\x01\x03a/b", "an impossible name"},
		"a name that is the parent's":       {"\x01" + all + "\x02\x00\x01\x00\x01\x02..", "an impossible name"},
		"a name that is too long":           {"\x01" + all + "\x02\x00\x01\x00\x01\x80\x02" + long(256), "a number is too big"},
		"names that are not in order":       {"\x01" + all + "\x03\x00\x01\x01\x00\x02\x01b\x01a", "names are not in order"},
		"a name twice":                      {"\x01" + all + "\x03\x00\x01\x01\x00\x02\x01a\x01a", "names are not in order"},
		"more children than paths":          {"\x01" + all + "\x02\x00\x01\x00\x02\x01a", "a number is too big"},
		"a child that another has":          {"\x01" + all + "\x03\x00\x00\x01\x00\x02\x01a\x01\x01b", "a directory lacks something"},
		"paths that no one has":             {"\x01" + all + "\x02\x00\x01\x00\x00", "paths without a parent"},
		"paths of no layer":                 {"\x00" + all + "\x02\x00\x01\x00\x01\x01a\x00\x00\x00\x00", "paths without a layer"},
		"a layer that is not there":         {"\x01" + all + "\x01\x00\x00\x00\x01", "a number is too big"},
		"a link that leads nowhere":         {"\x01" + all + "\x02\x00\x02\x00\x01\x01a\x00\x00\x00", "a symbolic link without a target"},
		"a content of another size":         {"\x01" + all + "\x02\x00\x01\x00\x01\x01a\x00\x00\x02\x01\x01x", "contents that an index does not keep"},
		"more about a file than there is":   {"\x01" + all + "\x02\x00\x01\x00\x01\x01a\x00\x00\x00\x04", "a number is too big"},
		"a size that no file has":           {"\x01" + all + "\x02\x00\x01\x00\x01\x01a\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a number is too big"},
		"something after the last path":     {"\x01" + all + "\x01\x00\x00\x00\x00\x00", "something follows it"},
		"an attribute that is not finished": {"\x01\x01\x02\x00\x00\x00\x01\x05ab", "it ends early"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			packer, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<20))
			require.NoError(t, err)
			_, err = osindex.Decode(bytes.NewReader(packer.EncodeAll([]byte(test.payload), []byte("LWINDEX\x01"))))
			var format *osindex.FormatError
			require.ErrorAs(t, err, &format)
			require.ErrorContains(t, err, test.want)
		})
	}
	t.Run("a directory that is deeper than any path", func(t *testing.T) {
		t.Parallel()
		const deep = 3000
		payload := "\x01" + all + "\xb9\x17" + strings.Repeat("\x00", deep+1) + "\x00\x01" + strings.Repeat("\x01d\x01", deep)
		packer, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<20))
		require.NoError(t, err)
		_, err = osindex.Decode(bytes.NewReader(packer.EncodeAll([]byte(payload), []byte("LWINDEX\x01"))))
		require.ErrorContains(t, err, "an impossible name")
	})
	t.Run("a window that would take too much memory", func(t *testing.T) {
		t.Parallel()
		packer, err := zstd.NewWriter(nil, zstd.WithWindowSize(64<<20), zstd.WithSingleSegment(false))
		require.NoError(t, err)
		var buffer bytes.Buffer
		buffer.WriteString("LWINDEX\x01")
		packer.Reset(&buffer)
		_, err = packer.Write(bytes.Repeat([]byte("x"), 70<<20))
		require.NoError(t, err)
		require.NoError(t, packer.Close())
		_, err = osindex.Decode(&buffer)
		require.ErrorIs(t, err, zstd.ErrWindowSizeExceeded)
	})
}

func TestDecodeNoticesDamage(t *testing.T) {
	t.Parallel()
	good := encoded(t, indexOf(t, encapsulated()...))
	for n := range good {
		_, err := osindex.Decode(bytes.NewReader(good[:n]))
		require.Error(t, err, "cut to %d bytes", n)
		bad := bytes.Clone(good)
		bad[n] ^= 0x10
		x, err := osindex.Decode(bytes.NewReader(bad))
		if err == nil { // a bit of the compression that means nothing
			require.Equal(t, good, encoded(t, x), "byte %d changed", n)
		}
	}
}

func TestDecodePassesOnReadErrors(t *testing.T) {
	t.Parallel()
	good := encoded(t, indexOf(t, encapsulated()...))
	for _, n := range []int{0, 5, 8, 20, len(good) - 1} {
		_, err := osindex.Decode(io.MultiReader(bytes.NewReader(good[:n]), failing{}))
		require.ErrorIs(t, err, io.ErrClosedPipe, "after %d bytes", n)
	}
}

func TestEncodePassesOnWriteErrors(t *testing.T) {
	t.Parallel()
	x := indexOf(t, encapsulated()...)
	size := len(encoded(t, x))
	for _, n := range []int{0, 7, 8, 9, size - 1} {
		require.ErrorIs(t, x.Encode(&limited{left: n}), errFull, "after %d bytes", n)
	}
	require.NoError(t, x.Encode(&limited{left: size}))
}

var errFull = errors.New("no space")

type limited struct{ left int }

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errFull
	}
	l.left -= len(p)
	return len(p), nil
}
