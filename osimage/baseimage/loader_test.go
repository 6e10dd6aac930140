package baseimage_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/osimage/osindex"
)

func TestIndexIsThatOfTheLayers(t *testing.T) {
	t.Parallel()
	image := base(t)
	want := encoded(t, plainIndex(t, image))
	s := serve(t)
	tests := map[string]struct {
		image   v1.Image
		options baseimage.Options
	}{
		"of a local image":            {image, baseimage.Options{}},
		"of a remote image":           {s.remoteOf(t, image), baseimage.Options{}},
		"of a remote image, cached":   {s.remoteOf(t, image), baseimage.Options{CacheDir: t.TempDir()}},
		"in a folder that is not yet": {image, baseimage.Options{CacheDir: filepath.Join(t.TempDir(), "a", "b")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loader := baseimage.New(test.options)
			for range 2 {
				x, err := loader.Index(t.Context(), test.image)
				require.NoError(t, err)
				require.Equal(t, want, encoded(t, x))
				require.Equal(t, 4, x.Layers())
			}
		})
	}
}

func TestIndexOfNothing(t *testing.T) {
	t.Parallel()
	x, err := baseimage.New(baseimage.Options{CacheDir: t.TempDir()}).Index(t.Context(), empty.Image)
	require.NoError(t, err)
	require.Zero(t, x.Layers())
}

func TestIndexReadsOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	image := s.remoteOf(t, base(t))
	dir := t.TempDir()
	for range 3 {
		_, err := baseimage.New(baseimage.Options{CacheDir: dir}).Index(t.Context(), image)
		require.NoError(t, err)
		require.Equal(t, "1 1 1 1", s.counts(t, image))
	}
}

func TestIndexReadsOnlyNewLayers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	loader := baseimage.New(baseimage.Options{CacheDir: t.TempDir()})
	_, err := loader.Index(t.Context(), s.remoteOf(t, base(t)))
	require.NoError(t, err)

	content := onTopOf(t, base(t), layer(t, file("usr/bin/tool", "tool")), layer(t, file("usr/bin/.wh.bash", "")))
	image := s.remoteOf(t, content)
	x, err := loader.Index(t.Context(), image)
	require.NoError(t, err)
	require.Equal(t, encoded(t, plainIndex(t, content)), encoded(t, x))
	require.Equal(t, "1 1 1 1 1 1", s.counts(t, image))

	// One that shares only some of the layers has no index of them to begin with.
	other := s.remoteOf(t, imageOf(t, layer(t, file("a", "")), layer(t, file("usr/bin/tool", "tool"))))
	_, err = loader.Index(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, "1 2", s.counts(t, other))
}

func TestIndexReplacesADamagedCache(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, path string){
		"that was cut off": func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Truncate(path, 20)) },
		"that is empty":    func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Truncate(path, 0)) },
		"of another program": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, []byte("LWINDEX\x00old"), 0o600))
		},
		"of another image": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, encoded(t, &osindex.Index{}), 0o600))
		},
		"that has changed bits": changeBits,
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			image := s.remoteOf(t, base(t))
			dir := t.TempDir()
			loader := baseimage.New(baseimage.Options{CacheDir: dir})
			want, err := loader.Index(t.Context(), image)
			require.NoError(t, err)
			path := onlyFile(t, dir)
			good, err := os.ReadFile(path)
			require.NoError(t, err)

			damage(t, path)
			x, err := baseimage.New(baseimage.Options{CacheDir: dir}).Index(t.Context(), image) // it knows nothing else
			require.NoError(t, err)
			require.Equal(t, encoded(t, want), encoded(t, x))
			require.Equal(t, "2 2 2 2", s.counts(t, image))
			again, err := os.ReadFile(onlyFile(t, dir))
			require.NoError(t, err)
			require.Equal(t, good, again)
		})
	}
}

func changeBits(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := len(data) / 2; i < len(data); i++ {
		data[i] ^= 0x55
	}
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func onlyFile(t *testing.T, dir string) string {
	t.Helper()
	files := names(t, dir)
	require.Len(t, files, 1)
	return filepath.Join(dir, files[0])
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

func TestIndexDoesNotNeedItsCache(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	x, err := baseimage.New(baseimage.Options{CacheDir: path}).Index(t.Context(), base(t))
	require.NoError(t, err)
	require.Equal(t, 4, x.Layers())
}

func TestCacheEvictsTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	dir := t.TempDir()
	clock := clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	loader := baseimage.New(baseimage.Options{CacheDir: dir, MaxCached: 2, Clock: clock})
	left := filepath.Join(dir, ".writing-123")
	require.NoError(t, os.WriteFile(left, nil, 0o600))
	require.NoError(t, os.Chtimes(left, clock.Now(), clock.Now()))
	mine := filepath.Join(dir, "README")
	require.NoError(t, os.WriteFile(mine, nil, 0o600))

	images := map[string]v1.Image{}
	use := func(name string) {
		if images[name] == nil {
			images[name] = s.remoteOf(t, imageOf(t, layer(t, file(name, ""))))
		}
		clock.SetTime(clock.Now().Add(25 * time.Minute))
		_, err := loader.Index(t.Context(), images[name])
		require.NoError(t, err)
	}
	use("a")
	use("b")
	require.FileExists(t, left, "another process may be writing it")
	use("a")
	use("c") // b has to go
	require.NoFileExists(t, left)
	require.FileExists(t, mine)
	require.Len(t, names(t, dir), 3)
	loader = baseimage.New(baseimage.Options{CacheDir: dir, MaxCached: 2, Clock: clock}) // it knows what is in the folder
	use("a")
	require.Equal(t, "1", s.counts(t, images["a"]))
	use("b")
	require.Equal(t, "2", s.counts(t, images["b"]))
}

func TestIndexReportsProgress(t *testing.T) {
	t.Parallel()
	image := imageOf(t, layer(t, file("big", strings.Repeat(noise(1<<16), 50))), layer(t, file("small", "")))
	manifest, err := image.Manifest()
	require.NoError(t, err)
	var all []baseimage.Progress
	loader := baseimage.New(baseimage.Options{Progress: func(p baseimage.Progress) { all = append(all, p) }})
	_, err = loader.Index(t.Context(), image)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 5)
	for i, p := range all {
		require.Equal(t, manifest.Config.Digest, p.Image)
		require.Equal(t, 2, p.Layers)
		require.Equal(t, manifest.Layers[p.Layer-1].Size, p.Size)
		require.True(t, i == 0 || p.Layer > all[i-1].Layer || p.Bytes > all[i-1].Bytes)
	}
	last := all[len(all)-1]
	require.Equal(t, 2, last.Layer)
	require.Equal(t, last.Size, last.Bytes)
	require.Zero(t, all[0].Bytes)
}

// noise is text that hardly gets smaller, and less so when it is repeated after more than a
// compressor's window.
func noise(n int) string {
	text := make([]byte, n)
	state := uint32(1)
	for i := range text {
		state = state*1664525 + 1013904223
		text[i] = byte(state >> 24)
	}
	return string(text)
}

// gate holds back the answers for blobs until it is opened.
type gate struct {
	blob    v1.Hash
	reached chan struct{}
	open    chan struct{}
}

// hold makes a registry send the first bytes of a blob, and no more until the gate is opened.
func hold(s *server, blob v1.Hash) *gate {
	g := &gate{blob: blob, reached: make(chan struct{}, 100), open: make(chan struct{})}
	s.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, blob.String()) {
			return false
		}
		select {
		case <-g.open:
			return false
		default:
		}
		g.reached <- struct{}{}
		select {
		case <-g.open:
			return false
		case <-r.Context().Done():
			return true
		}
	})
	return g
}

func TestIndexIsMadeOnceForManyCallers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ref := s.push(t, base(t))
	blobs := digests(t, base(t))
	g := hold(s, blobs[2])
	loader := baseimage.New(baseimage.Options{CacheDir: t.TempDir()})
	const callers = 8
	var wait sync.WaitGroup
	indexes, errs := make([]*osindex.Index, callers), make([]error, callers)
	for n := range callers {
		image := s.pull(t.Context(), t, ref)
		wait.Go(func() {
			indexes[n], errs[n] = loader.Index(t.Context(), image)
		})
	}
	receive(t, g.reached, "the third layer")
	close(g.open)
	wait.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, "1 1 1 1", s.counts(t, base(t)))
	for _, x := range indexes {
		require.Equal(t, encoded(t, indexes[0]), encoded(t, x))
	}
}

// held is a layer that is not sent before the channel is closed.
type held struct {
	v1.Layer
	until <-chan struct{}
}

func (h held) Compressed() (io.ReadCloser, error) {
	<-h.until
	return h.Layer.Compressed()
}

func TestIndexGoesOnWithoutTheCallerWhoBegan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		image := base(t)
		layers, err := image.Layers()
		require.NoError(t, err)
		config, err := image.ConfigFile()
		require.NoError(t, err)
		late := make(chan struct{})
		defer close(late)
		stuck := crafted{image, append([]v1.Layer{held{layers[0], late}}, layers[1:]...), config.RootFS.DiffIDs}

		loader := baseimage.New(baseimage.Options{})
		first, cancel := context.WithCancelCause(t.Context())
		ends := make([]error, 3)
		var wait sync.WaitGroup
		wait.Go(func() { _, ends[0] = loader.Index(first, stuck) })
		synctest.Wait() // it leads
		for n := 1; n < len(ends); n++ {
			wait.Go(func() { _, ends[n] = loader.Index(t.Context(), image) })
		}
		synctest.Wait() // they follow
		cancel(context.Canceled)
		wait.Wait()
		require.ErrorIs(t, ends[0], context.Canceled)
		require.NoError(t, errors.Join(ends[1:]...))
	})
}

// panicking is a layer that ends what reads it for the first time.
type panicking struct {
	v1.Layer

	done *bool
}

func (p panicking) Compressed() (io.ReadCloser, error) {
	if !*p.done {
		return p, nil
	}
	return p.Layer.Compressed()
}

func (p panicking) Read([]byte) (int, error) {
	*p.done = true
	panic("an index out of range")
}

func (p panicking) Close() error { return nil }

func TestNothingStaysOfAnIndexThatPanicked(t *testing.T) {
	t.Parallel()
	image := base(t)
	layers, err := image.Layers()
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	last := len(layers) - 1
	hostile := crafted{image, append(layers[:last:last], panicking{layers[last], new(bool)}), config.RootFS.DiffIDs}
	loader := baseimage.New(baseimage.Options{})
	_, err = loader.Index(t.Context(), hostile)
	require.Error(t, err)
	got, err := loader.Index(t.Context(), hostile)
	require.NoError(t, err)
	whole, err := baseimage.New(baseimage.Options{}).Index(t.Context(), image)
	require.NoError(t, err)
	require.Equal(t, encoded(t, whole), encoded(t, got))
}

// silent is a layer of a registry that sends nothing of it before the channel is closed.
type silent struct {
	held

	registry, image string
}

func (s silent) Source() (image, registry string) { return s.image, s.registry }

func TestImagesAreReadInTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		loader := baseimage.New(baseimage.Options{})
		late := make(chan struct{})
		index := func(registry, image string) error {
			made := imageOf(t, layer(t, file(registry+image, "")))
			layers, err := made.Layers()
			require.NoError(t, err)
			config, err := made.ConfigFile()
			require.NoError(t, err)
			from := silent{held: held{layers[0], late}, registry: registry, image: registry + image}
			_, err = loader.Index(t.Context(), crafted{made, []v1.Layer{from}, config.RootFS.DiffIDs})
			return err
		}
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- index("silent.example", "/os:1") }()
		synctest.Wait()
		err := index("silent.example", "/os:2")
		require.ErrorContains(t, err, `it waits for the turn of image "silent.example/os:1" of registry "silent.example", which is read now`)
		require.Equal(t, fault.Waiting, fault.ClassOf(err))
		go func() { second <- index("other.example", "/os:1") }()
		synctest.Wait()
		require.ErrorContains(t, index("third.example", "/os:1"), `it waits for the turn of image "silent.example/os:1"`)
		close(late)
		require.NoError(t, errors.Join(<-first, <-second))
		require.NoError(t, index("silent.example", "/os:2"))
	})
}

func TestOneRegistryDoesNotReadForAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		made := imageOf(t, layer(t, file("same", "")))
		layers, err := made.Layers()
		require.NoError(t, err)
		config, err := made.ConfigFile()
		require.NoError(t, err)
		late, now := make(chan struct{}), make(chan struct{})
		close(now)
		loader := baseimage.New(baseimage.Options{})
		index := func(registry string, until <-chan struct{}) error {
			from := silent{held: held{layers[0], until}, registry: registry, image: registry + "/os"}
			_, err := loader.Index(t.Context(), crafted{made, []v1.Layer{from}, config.RootFS.DiffIDs})
			return err
		}
		stuck := make(chan error, 1)
		go func() { stuck <- index("silent.example", late) }()
		synctest.Wait()
		require.NoError(t, index("other.example", now))
		close(late)
		require.NoError(t, <-stuck)
	})
}

func TestIndexGoesOnWhereALongTryEnded(t *testing.T) {
	t.Parallel()
	s := serve(t)
	image := s.remoteOf(t, base(t))
	clock := clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	read := 0
	loader := baseimage.New(baseimage.Options{CacheDir: t.TempDir(), Clock: clock, Progress: func(p baseimage.Progress) {
		if p.Bytes == 0 {
			clock.SetTime(clock.Now().Add(time.Minute)) // each layer takes one
			read++
		}
	}})
	blobs := digests(t, base(t))
	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		if read == 3 && strings.HasSuffix(r.URL.Path, blobs[3].String()) {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	_, err := loader.Index(t.Context(), image)
	require.Error(t, err)
	s.set(func(http.ResponseWriter, *http.Request) bool { return false })
	x, err := loader.Index(t.Context(), image)
	require.NoError(t, err)
	require.Equal(t, encoded(t, plainIndex(t, base(t))), encoded(t, x))
	require.Equal(t, 4, read, "each layer was read once")
}

func TestIndexStopsWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	image := base(t)
	manifest, err := image.Manifest()
	require.NoError(t, err)
	for name, blob := range map[string]v1.Hash{
		"while the configuration is awaited": manifest.Config.Digest,
		"while a layer is awaited":           manifest.Layers[1].Digest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			ref := s.push(t, base(t))
			g := hold(s, blob)
			t.Cleanup(func() { close(g.open) })
			ctx, cancel := context.WithCancelCause(t.Context())
			// Its requests don't end with the context: the worst case.
			image := s.pull(context.WithoutCancel(t.Context()), t, ref)
			done := make(chan error, 1)
			dir := t.TempDir()
			go func() {
				_, err := baseimage.New(baseimage.Options{CacheDir: dir}).Index(ctx, image)
				done <- err
			}()
			receive(t, g.reached, "the blob")
			cancel(errStopped)
			require.ErrorIs(t, receive(t, done, "the end"), errStopped)
			require.Empty(t, names(t, dir))
		})
	}
}

var errStopped = errors.New("stopped by the test")

func TestIndexStopsInTheMiddleOfALayer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	image := imageOf(t, layer(t, file("big", noise(3<<20))))
	ref := s.push(t, image)
	reached, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, digests(t, image)[0].String()) {
			return false
		}
		data := compressed(t, image, 0)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data[:1000])
		_ = http.NewResponseController(w).Flush()
		close(reached)
		<-release
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	remote := s.pull(context.WithoutCancel(t.Context()), t, ref)
	done := make(chan error, 1)
	go func() {
		_, err := baseimage.New(baseimage.Options{}).Index(ctx, remote)
		done <- err
	}()
	receive(t, reached, "the first bytes")
	cancel()
	require.ErrorIs(t, receive(t, done, "the end"), context.Canceled)
}
