package osindex_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/osindex"
)

// manyFiles is a layer with about as many paths as a CoreOS image has: 100,000.
func manyFiles(tb testing.TB) []byte {
	tb.Helper()
	var entries layer
	for i := range 100 {
		for j := range 50 {
			at := fmt.Sprintf("usr/share/package-%03d/folder-%02d/", i, j)
			entries = append(entries, dir(at, 0o755), symlink(at+"link", "../other"))
			for k := range 18 {
				entries = append(entries, withMode(file(fmt.Sprintf("%sfile-%02d.%d", at, k, i*j), ""), 0o644))
			}
		}
	}
	return archive(tb, entries...)
}

// BenchmarkApply indexes 100,000 paths. B/path is the memory that the index keeps, and MB the
// encoded index.
func BenchmarkApply(b *testing.B) {
	data := manyFiles(b)
	b.ReportAllocs()
	b.ResetTimer()
	var x *osindex.Index
	for b.Loop() {
		x = &osindex.Index{}
		require.NoError(b, x.Apply(bytes.NewReader(data)))
	}
	b.ReportMetric(float64(len(encoded(b, x)))/1e6, "MB-encoded")
	with := heap()
	paths := x.Paths()
	runtime.KeepAlive(x)
	x = nil
	b.ReportMetric(float64(with-heap())/float64(paths), "B/path")
}

// BenchmarkDecode reads the index of 100,000 paths back.
func BenchmarkDecode(b *testing.B) {
	x := &osindex.Index{}
	require.NoError(b, x.Apply(bytes.NewReader(manyFiles(b))))
	data := encoded(b, x)
	b.ReportAllocs()
	for b.Loop() {
		decoded(b, data)
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
