package baseimage_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/layerwright/layerwright/osimage/baseimage"
	installedpackages "github.com/layerwright/layerwright/osimage/packages"
)

func TestPackagesAreReadOncePerDatabase(t *testing.T) {
	t.Parallel()
	s, dir := serve(t), t.TempDir()
	below := imageOf(t, layer(t, file(statusAt, installed+"1\n")), layer(t, file("usr/lib/os-release", "ID=debian\n")))
	image := onTopOf(t, below, layer(t, file("etc/motd", "x")))
	var keys []string
	for _, local := range []struct {
		name  string
		reads string
	}{{"the first time", "1 1"}, {"from the cache", "1 1"}} {
		loader := baseimage.New(baseimage.Options{CacheDir: dir})
		pulled := s.remoteOf(t, below)
		list, err := loader.Packages(t.Context(), pulled, plainIndex(t, below))
		require.NoError(t, err)
		assert.Equal(t, []string{installedpackages.Deb}, list.Types)
		assert.Equal(t, "bash", list.Packages[0].Name)
		release, err := loader.OSRelease(t.Context(), pulled, plainIndex(t, below))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"ID": "debian"}, release)
		assert.Equal(t, local.reads, s.counts(t, below), local.name)
		key, err := loader.PackagesKey(t.Context(), pulled, plainIndex(t, below))
		require.NoError(t, err)
		keys = append(keys, key)
	}
	loader := baseimage.New(baseimage.Options{CacheDir: dir})
	_, err := loader.Packages(t.Context(), s.remoteOf(t, image), plainIndex(t, image))
	require.NoError(t, err)
	assert.Equal(t, "1 1 0", s.counts(t, image), "an image with the same database has the same packages")
	key, err := loader.PackagesKey(t.Context(), image, plainIndex(t, image))
	require.NoError(t, err)
	assert.Equal(t, []string{key, key}, keys)

	moved := onTopOf(t, below, layer(t, file(statusAt, installed+"2\n")))
	key, err = loader.PackagesKey(t.Context(), moved, plainIndex(t, moved))
	require.NoError(t, err)
	assert.NotEqual(t, keys[0], key)
	_, err = loader.PackagesKey(t.Context(), moved, plainIndex(t, below))
	require.ErrorContains(t, err, "it has 3 layers, its index 2")

	cached, err := filepath.Glob(filepath.Join(dir, "*.packages"))
	require.NoError(t, err)
	require.Len(t, cached, 1)
	require.NoError(t, os.WriteFile(cached[0], []byte("damaged"), 0o600))
	list, err := loader.Packages(t.Context(), s.remoteOf(t, below), plainIndex(t, below))
	require.NoError(t, err)
	require.Len(t, list.Packages, 1)
	assert.Equal(t, "2 1", s.counts(t, below), "what is damaged is read again")
}

func TestManyWantTheSamePackages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	image := imageOf(t, layer(t, file(statusAt, installed+"1\n")))
	pulled, index := s.remoteOf(t, image), plainIndex(t, image)
	loader := baseimage.New(baseimage.Options{CacheDir: t.TempDir()})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			list, err := loader.Packages(t.Context(), pulled, index)
			if assert.NoError(t, err) {
				assert.Len(t, list.Packages, 1)
			}
		})
	}
	all.Wait()
	assert.Equal(t, "1", s.counts(t, image))
}

// TestTheCacheOfPackagesIsBounded is about what stays on the disk, also behind a process that was
// killed.
func TestTheCacheOfPackagesIsBounded(t *testing.T) {
	t.Parallel()
	dir, clock := t.TempDir(), clocktesting.NewFakePassiveClock(time.Now())
	left := filepath.Join(dir, installedpackages.SpoolPrefix+"123")
	require.NoError(t, os.MkdirAll(filepath.Join(left, ".layer-1"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(left, "status"), []byte("killed"), 0o600))
	loader := baseimage.New(baseimage.Options{CacheDir: dir, MaxCached: 2, Clock: clock})
	for i := range 4 {
		clock.SetTime(clock.Now().Add(time.Minute))
		image := imageOf(t, layer(t, file(statusAt, installed+strconv.Itoa(i)+"\n"), file("usr/lib/os-release", "ID=a"+strconv.Itoa(i))))
		_, err := loader.Packages(t.Context(), image, plainIndex(t, image))
		require.NoError(t, err)
		_, err = loader.OSRelease(t.Context(), image, plainIndex(t, image))
		require.NoError(t, err)
	}
	for _, suffix := range []string{"*.packages", "*.release"} {
		cached, err := filepath.Glob(filepath.Join(dir, suffix))
		require.NoError(t, err)
		assert.Len(t, cached, 2, suffix)
	}
	require.DirExists(t, left, "it may be another process's")

	clock.SetTime(clock.Now().Add(2 * time.Hour))
	broken := imageOf(t, layer(t, file("var/lib/rpm/rpmdb.sqlite", "no database")))
	_, err := loader.Packages(t.Context(), broken, plainIndex(t, broken))
	require.Error(t, err)
	require.NoDirExists(t, left, "nothing has to be cached for that")
}

func TestOSRelease(t *testing.T) {
	t.Parallel()
	loader := baseimage.New(baseimage.Options{})
	for name, content := range map[string]string{"etc/os-release": "ID=a\n# ID=b\nNAME='A B'\n", "usr/lib/os-release": "ID=a\nNAME=\"A B\""} {
		image := imageOf(t, layer(t, file(name, content)))
		release, err := loader.OSRelease(t.Context(), image, plainIndex(t, image))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"ID": "a", "NAME": "A B"}, release)
	}
	image := imageOf(t, layer(t, file("etc/passwd", ""), file("etc/os-release", strings.Repeat("#", 2<<20))))
	release, err := loader.OSRelease(t.Context(), image, plainIndex(t, image))
	require.NoError(t, err)
	assert.Empty(t, release)
}
