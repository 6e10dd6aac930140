package baseimage_test

import (
	"archive/tar"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/osimage/osindex"
)

func readFiles(t *testing.T, s *server, layers [][]tar.Header, paths ...string) (map[string]string, string, error) {
	t.Helper()
	image := imageOf(t)
	for _, headers := range layers {
		image = onTopOf(t, image, layer(t, headers...))
	}
	found, err := baseimage.New(baseimage.Options{}).ReadFiles(t.Context(), s.remoteOf(t, image), plainIndex(t, image), paths)
	texts := map[string]string{}
	for path, content := range found {
		texts[path] = string(content)
	}
	return texts, s.counts(t, image), err
}

func TestReadFiles(t *testing.T) {
	t.Parallel()
	object := "sysroot/ostree/repo/objects/ab/cd.file"
	big := strings.Repeat("x", 1<<20)
	tests := map[string]struct {
		layers [][]tar.Header
		paths  []string
		want   map[string]string
		reads  string // how often each layer was read
	}{
		"nothing at all": {
			layers: [][]tar.Header{{file("a", "1")}}, want: map[string]string{}, reads: "0",
		},
		"what the index keeps": {
			layers: [][]tar.Header{{file("etc/passwd", "root")}}, paths: []string{"/etc/passwd"},
			want: map[string]string{"/etc/passwd": "root"}, reads: "0",
		},
		"from the layers that have them only": {
			layers: [][]tar.Header{{file("a", "1")}, {file("./b", "2"), file("b2", "")}, {file("/c", "3"), file("d", "4")}, {file("e", "5")}},
			paths:  []string{"/d", "c", "/b", "/b2", "/x/../d"}, want: map[string]string{"/b": "2", "/b2": "", "c": "3", "/d": "4", "/x/../d": "4"}, reads: "0 1 1 0",
		},
		"the upper one of two": {
			layers: [][]tar.Header{{file("a", "1")}, {file("a", "2")}}, paths: []string{"/a"}, want: map[string]string{"/a": "2"}, reads: "0 1",
		},
		"the last of a layer": {
			layers: [][]tar.Header{{file("a", "1"), file("b", ""), file("a", "2")}}, paths: []string{"/a"}, want: map[string]string{"/a": "2"}, reads: "1",
		},
		"a hard link right after its target": {
			layers: [][]tar.Header{{file("a", "1"), hardlink("b", "./a"), hardlink("c", "a")}}, paths: []string{"/c", "/b"},
			want: map[string]string{"/b": "1", "/c": "1"}, reads: "1",
		},
		"a hard link long after its target": {
			layers: [][]tar.Header{{file("a", "1"), file("x", "2"), hardlink("b", "a")}}, paths: []string{"/b"}, want: map[string]string{"/b": "1"}, reads: "2",
		},
		"a hard link to a hard link": {
			layers: [][]tar.Header{{file("a", "1"), file("x", "2"), hardlink("b", "a"), hardlink("c", "b")}}, paths: []string{"/c", "/a"},
			want: map[string]string{"/a": "1", "/c": "1"}, reads: "2",
		},
		"a hard link that replaces a file": {
			layers: [][]tar.Header{{file("a", "1"), file("b", "2"), file("x", ""), hardlink("b", "a")}}, paths: []string{"/b"},
			want: map[string]string{"/b": "1"}, reads: "2",
		},
		"a file that replaces a hard link": {
			layers: [][]tar.Header{{file("a", "1"), file("x", ""), hardlink("b", "a"), file("b", "2")}}, paths: []string{"/b"},
			want: map[string]string{"/b": "2"}, reads: "2",
		},
		"a hard link to a file of a lower layer": {
			layers: [][]tar.Header{{file("a", "1")}, {hardlink("b", "a")}, {file(".wh.a", "")}}, paths: []string{"/b"},
			want: map[string]string{"/b": "1"}, reads: "1 0 0",
		},
		"a file behind a symbolic link of its layer": {
			layers: [][]tar.Header{{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "d"}, file("l/a", "1")}}, paths: []string{"/d/a"},
			want: map[string]string{"/d/a": "1"}, reads: "1",
		},
		"of an encapsulated OSTree commit": {
			layers: [][]tar.Header{{file("etc/x", "")}, {file(object, "1"), hardlink("usr/a", object), hardlink("usr/b", object)}},
			paths:  []string{"/usr/b", "/usr/a"}, want: map[string]string{"/usr/a": "1", "/usr/b": "1"}, reads: "0 1",
		},
		"as big as is allowed": {
			layers: [][]tar.Header{{file("a", big)}}, paths: []string{"/a"}, want: map[string]string{"/a": big}, reads: "1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, reads, err := readFiles(t, serve(t), test.layers, test.paths...)
			require.NoError(t, err)
			require.Equal(t, test.want, found)
			require.Equal(t, test.reads, reads)
		})
	}
}

func TestReadFilesRefuses(t *testing.T) {
	t.Parallel()
	layers := [][]tar.Header{{
		file("a", "1"), file("big", strings.Repeat("x", 1<<20+1)), {Name: "l", Typeflag: tar.TypeSymlink, Linkname: "a"}, {Name: "d/", Typeflag: tar.TypeDir},
	}}
	t.Run("names that are no files, before it reads anything", func(t *testing.T) {
		t.Parallel()
		_, reads, err := readFiles(t, serve(t), layers, "/z", "/a", "/l", "/d", "/no", "/z")
		var missing *baseimage.MissingError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, []string{"/d", "/l", "/no", "/z"}, missing.Paths)
		require.EqualError(t, err, `reading files of an image: the image has no such file: "/d", "/l", "/no", "/z"`)
		require.True(t, fault.IsTerminal(err))
		require.Equal(t, "0", reads)
	})
	t.Run("files that are too big", func(t *testing.T) {
		t.Parallel()
		_, reads, err := readFiles(t, serve(t), layers, "/a", "/big")
		var big *baseimage.TooLargeError
		require.ErrorAs(t, err, &big)
		require.Equal(t, &baseimage.TooLargeError{Path: "/big", Size: 1<<20 + 1, Limit: 1 << 20}, big)
		require.True(t, fault.IsTerminal(err))
		require.Equal(t, "0", reads)
	})
	t.Run("the index of another image", func(t *testing.T) {
		t.Parallel()
		other := plainIndex(t, imageOf(t, layer(t, file("a", "")), layer(t)))
		_, err := baseimage.New(baseimage.Options{}).ReadFiles(t.Context(), imageOf(t, layer(t, file("a", ""))), other, []string{"/a"})
		require.ErrorContains(t, err, "it has 1 layers, its index 2")
	})
	t.Run("the index of another image with as many layers", func(t *testing.T) {
		t.Parallel()
		other := plainIndex(t, imageOf(t, layer(t, file("b", "1"))))
		_, err := baseimage.New(baseimage.Options{}).ReadFiles(t.Context(), imageOf(t, layer(t, file("a", ""))), other, []string{"/b"})
		var missing *baseimage.MissingError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, []string{"/b"}, missing.Paths)
	})
	t.Run("files that turn out to be too big", func(t *testing.T) {
		t.Parallel()
		other := plainIndex(t, imageOf(t, layer(t, file("a", "1"))))
		loader := baseimage.New(baseimage.Options{MaxFileBytes: 3})
		_, err := loader.ReadFiles(t.Context(), imageOf(t, layer(t, file("a", "1234"))), other, []string{"/a"})
		var big *baseimage.TooLargeError
		require.ErrorAs(t, err, &big)
		require.True(t, fault.IsTerminal(err))
		require.NotContains(t, err.Error(), "broken")
	})
}

func TestReadFilesGivesUpOnLongChainsOfLinks(t *testing.T) {
	t.Parallel()
	headers := []tar.Header{file("f0", "1")}
	for n := range 6 {
		headers = append(headers, hardlink(fmt.Sprintf("f%d", n+1), fmt.Sprintf("f%d", n)))
	}
	image := imageOf(t, layer(t, append(headers, file("x", ""))...))
	index := plainIndex(t, image)
	// From the end to the beginning, no link follows its target.
	backwards := append([]tar.Header{file("f0", "1"), file("x", "")}, headers[1:]...)
	found, err := baseimage.New(baseimage.Options{}).ReadFiles(t.Context(), imageOf(t, layer(t, backwards...)), index, []string{"/f6"})
	var missing *baseimage.MissingError
	require.ErrorAs(t, err, &missing)
	require.Nil(t, found)
}

func TestReadFilesBelievesOnlyVerifiedBytes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	image := imageOf(t, layer(t, file("a", "good"), file("b", noise(4000))))
	index := plainIndex(t, image)
	remote := s.remoteOf(t, image)
	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, digests(t, image)[0].String()) {
			return false
		}
		_, _ = w.Write(flipped(compressed(t, image, 0), -2000)) // in the second file
		return true
	})
	found, err := baseimage.New(baseimage.Options{}).ReadFiles(t.Context(), remote, index, []string{"/a"})
	require.Error(t, err)
	require.True(t, fault.IsTransient(err))
	require.Nil(t, found)
}

func TestReadFilesDoesNotShareTheIndexesBytes(t *testing.T) {
	t.Parallel()
	image := imageOf(t, layer(t, file("etc/passwd", "root")))
	index := plainIndex(t, image)
	found, err := baseimage.New(baseimage.Options{}).ReadFiles(t.Context(), image, index, []string{"/etc/passwd"})
	require.NoError(t, err)
	found["/etc/passwd"][0] = 'X'
	content, _ := index.Content("/etc/passwd")
	require.Equal(t, "root", string(content))
	require.IsType(t, &osindex.Index{}, index)
}
