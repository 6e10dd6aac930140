package baseimage_test

import (
	"archive/tar"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/osimage/baseimage"
)

// links is an image of many long links, whose index takes about 4 MiB.
func links(t *testing.T, seed uint64) v1.Image { //nolint:ireturn // that is how go-containerregistry has images
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
	var entries []tar.Header
	for i := range 4000 {
		target := strings.Repeat(fmt.Sprintf("%x", random.Uint64()), 50)
		entries = append(entries, tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: target})
	}
	return imageOf(t, layer(t, entries...))
}

// TestImagesShareOneBudget indexes more images at the same time than there is memory for, each of
// which would fit. Those that find none are tried again, as reconciles do.
func TestImagesShareOneBudget(t *testing.T) {
	t.Parallel()
	const images, fit = 6, 2
	first, err := baseimage.New(baseimage.Options{}).Index(t.Context(), links(t, 0))
	require.NoError(t, err)
	dir := t.TempDir()
	loader := baseimage.New(baseimage.Options{CacheDir: dir, MaxMemory: fit * (first.Bytes() + 2<<20)})
	var readers sync.WaitGroup
	for seed := range images {
		image := links(t, uint64(seed))
		readers.Go(func() {
			for {
				x, err := loader.Index(t.Context(), image)
				if err == nil {
					assert.Equal(t, first.Paths(), x.Paths())
					return
				}
				const text = "the indexes of other images take all memory that there is for indexes, so this one is tried again later"
				if fault.Reason(err) != mcfgv1.ReasonWaitingForTurn || !strings.Contains(err.Error(), text) {
					t.Errorf("it does not wait: %v", err)
					return
				}
			}
		})
	}
	readers.Wait()
	assert.Len(t, names(t, dir), images)
}
