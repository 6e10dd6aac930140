package baseimage

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/osimage/osindex"
)

func TestBudgetNeverGivesMoreThanThereIs(t *testing.T) {
	t.Parallel()
	const limit, readers = 10, 20
	b := newBudget(limit)
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			for tries := 0; ; tries++ {
				g := b.grant(t.Context())
				var err error
				for range limit { // each needs all there is in the end
					if err = g.take(1); err != nil {
						break
					}
					b.mu.Lock()
					assert.LessOrEqual(t, b.taken, limit)
					b.mu.Unlock()
				}
				g.end("", nil)
				if err == nil {
					return
				}
				assert.ErrorIs(t, err, errNoMemory)
			}
		})
	}
	all.Wait()
	assert.Zero(t, b.taken)
	assert.Empty(t, b.open)
}

func TestTheOldestReaderWaits(t *testing.T) {
	t.Parallel()
	b := newBudget(2)
	oldest, other := b.grant(t.Context()), b.grant(t.Context())
	require.NoError(t, other.take(2))
	took := make(chan error)
	go func() { took <- oldest.take(2) }()
	other.end("", nil)
	require.NoError(t, <-took)

	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	late := b.grant(ctx)
	cancel(gone)
	require.ErrorIs(t, late.take(1), gone)
}

// TestAFullBudgetIsWaitedFor has another image take all memory, which fails none.
func TestAFullBudgetIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		loader := New(Options{MaxMemory: 1})
		hog := loader.memory.grant(t.Context())
		require.NoError(t, hog.take(1))
		_, err := loader.Index(t.Context(), small(t))
		require.ErrorIs(t, err, errNoMemory)
		assert.Equal(t, fault.Waiting, fault.ClassOf(err))
		assert.Equal(t, mcfgv1.ReasonWaitingForTurn, fault.Reason(err))
		assert.Equal(t, time.Second, fault.After(err))
	})
}

// slow is a layer that takes almost as long as a turn.
type slow struct{ v1.Layer }

// Compressed comes late.
func (s slow) Compressed() (io.ReadCloser, error) {
	time.Sleep(4*time.Minute + 30*time.Second)
	return s.Layer.Compressed()
}

// of is an image with another layer.
type of struct {
	v1.Image
	layer v1.Layer
}

// Layers is the other layer.
func (o of) Layers() ([]v1.Layer, error) { return []v1.Layer{o.layer}, nil }

func TestMemoryIsWaitedForNoLongerThanTheTurnLasts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		loader := New(Options{MaxMemory: 1})
		loader.memory.taken = 1
		image := small(t)
		layers, err := image.Layers()
		require.NoError(t, err)
		begun, failed := time.Now(), make(chan error)
		go func() {
			_, err := loader.Index(t.Context(), of{image, slow{layers[0]}})
			failed <- err
		}()
		time.Sleep(5 * time.Minute)
		p, err := open(t.Context(), image)
		require.NoError(t, err)
		_, _, err = loader.turns.Take(t.Context(), p.registry, "another")
		require.Error(t, err)
		require.ErrorContains(t, <-failed, "took more than 5m0s to read while others waited")
		require.Less(t, time.Since(begun), 5*time.Minute+10*time.Second)
	})
}

// small is an image of one layer.
func small(t *testing.T) v1.Image { //nolint:ireturn // that is how go-containerregistry has images
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, registrytest.Layer(t, map[string]string{"etc/motd": "hello"}))
	require.NoError(t, err)
	return image
}

func TestMemoryOfAnIndexIsGivenBackWithIt(t *testing.T) {
	t.Parallel()
	b := newBudget(MaxMemory)
	read := func(key string) *osindex.Index {
		g := b.grant(t.Context())
		x := osindex.New(g.take)
		require.NoError(t, g.take(50<<20))
		g.end(key, x)
		return x
	}
	x := read("a")
	assert.Equal(t, x, b.known("a"))
	assert.Nil(t, b.known("b"))
	assert.Equal(t, x.Bytes(), b.taken, "what was not used is given back at once")

	g := b.grant(t.Context())
	require.NoError(t, g.take(90<<20))
	hog := &osindex.Index{}
	runtime.AddCleanup(hog, func(bytes int) { g.give(bytes) }, 90<<20)
	runtime.KeepAlive(hog)
	next := b.grant(t.Context())
	require.NoError(t, next.take(50<<20), "no one holds the other any more")
	assert.Nil(t, b.known("a"), "what no one uses makes room")
}

func TestUnpackedLimit(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]int64{0: 2 << 30, -1: 2 << 30, 10 << 20: 2<<30 + 1000<<20, 1 << 40: 32 << 30, 1<<63 - 1: 32 << 30} {
		assert.Equal(t, want, unpackedLimit(size))
	}
}

func TestCachedIndexWithoutMemoryStaysInTheCache(t *testing.T) {
	t.Parallel()
	c := cache{dir: t.TempDir(), max: 2, clock: clock.RealClock{}}
	require.NoError(t, c.store("a", &osindex.Index{}))
	full := errors.New("full")
	_, _, err := c.longest(logr.Discard(), []string{"a"}, func(int) error { return full })
	require.Equal(t, full, err)
	require.FileExists(t, c.path("a"))
}

func TestLayerThatUnpacksToTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	s := &stream{source: strings.NewReader(""), plain: strings.NewReader(strings.Repeat("x", 100)), sum: sha256.New(), left: 10, tooLarge: &unpackedError{3 << 20}}
	_, err := io.Copy(io.Discard, s)
	require.Error(t, err)
	err = s.explain(t.Context(), err)
	assert.True(t, fault.IsTerminal(err))
	assert.EqualError(t, err, "it unpacks to more than 3 MiB, which is too much for its size: use an image with another layer")
}
