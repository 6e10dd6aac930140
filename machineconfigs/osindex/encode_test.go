package osindex_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/osindex"
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
