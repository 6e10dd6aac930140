package osindex_test

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/osindex"
)

// FuzzApply applies layers that a text describes, one entry a line: a letter for the type, the
// name, and the target or content; "-" begins another layer. One byte of the last one is damaged.
// An error leaves the index as it was, and a success keeps what an index promises.
func FuzzApply(f *testing.F) {
	f.Add("5 d/\n0 d/a aa\n0 d/sub/b b\n2 l d\n0 etc/passwd root\n-\n0 d/.wh.a\n0 d/sub/.wh..wh..opq\n0 l/x\n1 h d/sub/b", uint16(0), byte(0))
	f.Add("2 l /../d/e\n0 l/x 1\n2 d/m ../n\n0 d/m/y\n2 loop loop\n0 loop/x", uint16(0), byte(0))
	f.Add("0 sysroot/ostree/repo/objects/ab/cd.file x\n1 etc/x sysroot/ostree/repo/objects/ab/cd.file\n0 .wh.etc", uint16(0), byte(0))
	f.Add("0 ./a/../b\n0 //x/.wh.\n5 .\n0 etc/shadow x\n1 etc/y etc/shadow\n3 dev/null\n6 p\n0 .wh..wh.aufs", uint16(600), byte(1))
	f.Fuzz(func(t *testing.T, script string, at uint16, damage byte) {
		x := &osindex.Index{}
		layers := scripted(t, script)
		last := layers[len(layers)-1]
		last[int(at)%len(last)] ^= damage
		for _, data := range layers {
			before := encoded(t, x)
			if err := x.Apply(bytes.NewReader(data)); err != nil {
				require.Equal(t, before, encoded(t, x))
				break
			}
		}
		requireSound(t, x)
	})
}

// scripted makes the archives of a script, without what no archive can hold.
func scripted(t *testing.T, script string) [][]byte {
	t.Helper()
	var layers [][]byte
	for part := range strings.SplitSeq(script, "\n-\n") {
		var entries layer
		for line := range strings.Lines(part) {
			fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
			if len(fields) < 2 || len(fields[0]) != 1 {
				continue
			}
			hdr := tar.Header{Typeflag: fields[0][0], Name: fields[1], Mode: 0o644}
			if len(fields) == 3 {
				hdr.Linkname = fields[2]
			}
			if hdr.Typeflag == tar.TypeReg {
				hdr.Size = int64(len(hdr.Linkname))
			}
			probe := hdr
			if hdr.Typeflag == tar.TypeReg {
				probe.Linkname = ""
			}
			if tar.NewWriter(io.Discard).WriteHeader(&probe) == nil {
				entries = append(entries, hdr)
			}
		}
		layers = append(layers, archive(t, entries...))
	}
	return layers
}

// FuzzDecode decodes whatever it is.
func FuzzDecode(f *testing.F) {
	packer, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	require.NoError(f, err)
	unpacker, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	require.NoError(f, err)
	for _, x := range []*osindex.Index{{}, indexOf(f, encapsulated()...)} {
		plain, err := unpacker.DecodeAll(encoded(f, x)[8:], nil)
		require.NoError(f, err)
		f.Add(plain, true)
		f.Add(encoded(f, x), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, pack bool) {
		if pack { // the checksum would keep the fuzzer out
			data = packer.EncodeAll(data, []byte("LWINDEX\x01"))
		}
		x, err := osindex.Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		requireSound(t, x)
		require.NoError(t, x.Apply(bytes.NewReader(archive(t, file("new/file", "x"), whiteout("etc"), opaque("usr")))))
		requireSound(t, x)
	})
}

// requireSound checks what is true of every index.
func requireSound(t *testing.T, x *osindex.Index) {
	t.Helper()
	count, kept := 1, 0
	for at, entry := range walk(x) {
		count++
		found, ok := x.Lookup(at)
		require.True(t, ok, at)
		require.Equal(t, entry, found)
		content, ok := x.Content(at)
		kept += len(content)
		require.True(t, !ok || (entry.Kind == osindex.File && int64(len(content)) == entry.Size), at)
		require.False(t, ok && strings.HasPrefix(at, "/etc/shadow"), at)
		r, err := x.Resolve(at)
		require.NoError(t, err, at)
		require.Equal(t, osindex.Resolved{Path: at, Entry: entry}, r)
		_, _ = x.Follow(at)
		source, ok := x.Source(at)
		require.Equal(t, entry.Kind == osindex.File, ok)
		require.True(t, !ok || source.Layer < max(x.Layers(), 1))
	}
	require.Equal(t, x.Paths(), count)
	require.LessOrEqual(t, kept, osindex.MaxKept)
	data := encoded(t, x)
	require.Equal(t, data, encoded(t, decoded(t, data)))
}
