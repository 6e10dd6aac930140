package baseimage_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/osimage/baseimage"
)

func symlink(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
}

const (
	installed = "Package: bash\nStatus: install ok installed\nVersion: "
	statusAt  = "var/lib/dpkg/status"
)

func TestPackages(t *testing.T) {
	t.Parallel()
	record := func(name, version string) tar.Header {
		return file("var/lib/dpkg/status.d/"+name, "Package: "+name+"\nVersion: "+version+"\n")
	}
	tests := map[string]struct {
		layers    [][]tar.Header
		want      string // names and versions
		databases []string
		reads     string // how often each layer was asked for
	}{
		"a database in one of three layers": {
			layers: [][]tar.Header{{file("a", "")}, {file(statusAt, installed+"1\n")}, {file("b", "")}}, want: "bash 1",
			databases: []string{"/var/lib/dpkg/status"}, reads: "0 1 0",
		},
		"the newest of two": {
			layers: [][]tar.Header{{file(statusAt, installed+"1\n")}, {file(statusAt, installed+"2\n")}}, want: "bash 2",
			databases: []string{"/var/lib/dpkg/status"}, reads: "0 1",
		},
		"one that a whiteout hides":     {layers: [][]tar.Header{{file(statusAt, installed+"1\n")}, {file("var/lib/dpkg/.wh.status", "")}}, reads: "0 0"},
		"one below an opaque directory": {layers: [][]tar.Header{{file(statusAt, installed+"1\n")}, {file("var/lib/dpkg/.wh..wh..opq", "")}}, reads: "0 0"},
		"a directory that is a symbolic link": {
			layers: [][]tar.Header{{file("usr/lib/dpkg/status", installed+"1\n"), symlink("var/lib/dpkg", "../../usr/lib/dpkg")}}, want: "bash 1",
			databases: []string{"/var/lib/dpkg/status"}, reads: "1",
		},
		"a file that is a symbolic link": {
			layers: [][]tar.Header{{file("usr/status", installed+"1\n"), symlink(statusAt, "../../../usr/status")}}, want: "bash 1",
			databases: []string{"/var/lib/dpkg/status"}, reads: "1",
		},
		"a hard link to an object of OSTree": {
			layers: [][]tar.Header{{file("sysroot/objects/ab", installed+"1\n"), file("sysroot/objects/cd", "x"), hardlink(statusAt, "sysroot/objects/ab")}}, want: "bash 1",
			databases: []string{"/var/lib/dpkg/status"}, reads: "2",
		},
		"many names of one file cost one download": {
			layers:    [][]tar.Header{{file("var/lib/dpkg/status.d/a", installed+"1\n"), symlink("var/lib/dpkg/status.d/b", "a"), symlink("var/lib/dpkg/status.d/c", "a")}},
			databases: []string{"/var/lib/dpkg/status.d"}, want: "bash 1, bash 1, bash 1", reads: "1",
		},
		"records in two layers, one replaced and one gone": {
			layers: [][]tar.Header{
				{record("a", "1-1"), record("b", "1-1"), record("c", "1-1")},
				{record("b", "2-1"), file("var/lib/dpkg/status.d/.wh.c", "")},
			},
			databases: []string{"/var/lib/dpkg/status.d"}, want: "a 1-1, b 2-1", reads: "1 1",
		},
		"none": {layers: [][]tar.Header{{file("etc/passwd", "")}}, reads: "0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			image := imageOf(t)
			for _, headers := range tt.layers {
				image = onTopOf(t, image, layer(t, headers...))
			}
			index := plainIndex(t, image)
			ref := s.push(t, image)
			list, err := baseimage.New(baseimage.Options{}).Packages(t.Context(), s.pull(t.Context(), t, ref), index)
			require.NoError(t, err)
			var got []string
			for _, p := range list.Packages {
				got = append(got, p.Name+" "+p.Version)
			}
			assert.Equal(t, tt.want, strings.Join(got, ", "))
			assert.Equal(t, tt.databases, list.Databases)
			assert.Equal(t, tt.reads, s.counts(t, image), "only layers that have a database are read")
		})
	}
}

func TestPackagesOfABrokenDatabase(t *testing.T) {
	t.Parallel()
	image := imageOf(t, layer(t, file("var/lib/rpm/rpmdb.sqlite", "no database")))
	_, err := baseimage.New(baseimage.Options{}).Packages(t.Context(), image, plainIndex(t, image))
	require.True(t, fault.IsTerminal(err), "%v", err)
	assert.ErrorContains(t, err, `package database "/var/lib/rpm/rpmdb.sqlite" is broken`)
}

func TestCopyFiles(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB: more than ReadFiles takes
	image := imageOf(t, layer(t, file("etc/a", "old"), file("big", big)), layer(t, file("etc/a", "new"), hardlink("etc/b", "etc/a")))
	index := plainIndex(t, image)
	loader := baseimage.New(baseimage.Options{})
	folder := t.TempDir()
	require.NoError(t, loader.CopyFiles(t.Context(), image, index, folder, map[string]string{"/etc/a": "1", "/etc/b": "2", "/big": "3"}))
	for target, want := range map[string]string{"1": "new", "2": "new", "3": big} {
		got, err := os.ReadFile(filepath.Join(folder, target))
		require.NoError(t, err)
		require.Len(t, got, len(want), target)
		assert.Equal(t, want[:3], string(got[:3]), target)
	}
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Len(t, left, 3, "nothing else stays")

	err = loader.CopyFiles(t.Context(), image, index, folder, map[string]string{"/etc/none": "4", "/etc": "5"})
	var missing *baseimage.MissingError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, []string{"/etc", "/etc/none"}, missing.Paths)
	assert.True(t, fault.IsTerminal(err))

	err = loader.CopyFiles(t.Context(), onTopOf(t, image, layer(t, file("x", ""))), index, folder, map[string]string{"/etc/a": "6"})
	require.ErrorContains(t, err, "it has 3 layers, its index 2")
	err = loader.CopyFiles(t.Context(), image, index, filepath.Join(folder, "none"), map[string]string{"/etc/a": "7"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestNewestFile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	image := imageOf(t, layer(t, file("list", "old")), layer(t, file("list", "new")), layer(t, file("other", "")))
	ref := s.push(t, image)
	loader := baseimage.New(baseimage.Options{MaxFileBytes: 10})
	content, err := loader.NewestFile(t.Context(), s.pull(t.Context(), t, ref), "/list")
	require.NoError(t, err)
	assert.Equal(t, "new", string(content))
	assert.Equal(t, "0 1 1", s.counts(t, image), "nothing below it is read")
	content, err = loader.NewestFile(t.Context(), image, "/none")
	require.NoError(t, err)
	assert.Nil(t, content)
	_, err = loader.NewestFile(t.Context(), imageOf(t, layer(t, file("list", "more than ten bytes"))), "/list")
	var large *baseimage.TooLargeError
	require.ErrorAs(t, err, &large)
}
