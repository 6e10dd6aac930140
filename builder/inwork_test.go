package builder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/trust/sign"
)

// deadly is a reader of base images that ends the process with one of them.
type deadly struct {
	maker.BaseImages

	digest string
	kill   func()
}

// Index kills, or reads.
func (d deadly) Index(ctx context.Context, image v1.Image) (*osindex.Index, error) {
	if digest, err := image.Digest(); err == nil && digest.String() == d.digest {
		d.kill()
		return nil, errors.New("the process was killed")
	}
	return d.BaseImages.Index(ctx, image)
}

// process is a Builder that is killed when it reads an image. What it leaves in its folder is in
// the next one's.
func (w *world) process(dir, image string) (b *process, next string) {
	w.t.Helper()
	log, err := inwork.Open(dir)
	require.NoError(w.t, err)
	_, digest, _ := strings.Cut(image, "@")
	next = filepath.Join(w.t.TempDir(), "next")
	return w.builder(func(o *settings) {
		o.InWork = log
		o.Base = deadly{o.Base, digest, func() {
			if _, err := os.Stat(next); err != nil {
				require.NoError(w.t, os.CopyFS(next, os.DirFS(dir)))
			}
		}}
	}), next
}

func TestAnImageThatKillsTwiceIsRefused(t *testing.T) {
	t.Parallel()
	w := layered(t, "small", "large")
	image := w.registry.pushBase(t, "stream/large", "large")
	edit(w, &mcfgv1.MachineOSConfig{}, "large", func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(image) })
	dir := t.TempDir()
	for range 2 {
		assert.NotContains(t, w.says("large", status.Stalled), "True ControllerKilled")
		var b *process
		b, dir = w.process(dir, image)
		_ = w.round(b)
		require.DirExists(t, dir)
	}
	b, next := w.process(dir, image)
	w.settle(b)
	require.NoDirExists(t, next, "the image is not read again")
	assert.Contains(t, w.says("large", status.Stalled),
		`True ControllerKilled the controller was killed 2 times while it worked on MachineOSConfig "large" alone`)
	assert.Equal(t, "True Succeeded", w.says("small", status.Ready), "the others go on")

	edit(w, &mcfgv1.MachineOSConfig{}, "large", func(c *mcfgv1.MachineOSConfig) { c.Annotations = map[string]string{mcfgv1.AnnotationRebuild: ""} })
	b, next = w.process(dir, image)
	_ = w.round(b)
	require.DirExists(t, next, "it is tried again when someone asks for it")
}

// deadlyKeeper ends the process when it states or signs something.
type deadlyKeeper struct{ kill func() }

// Make kills.
func (d deadlyKeeper) Make(context.Context, sbom.Subject) ([]byte, error) {
	d.kill()
	return nil, errors.New("the process was killed")
}

// Sign kills.
func (d deadlyKeeper) Sign(context.Context, sign.Registry, string) (sign.Signature, error) {
	d.kill()
	return sign.Signature{}, errors.New("the process was killed")
}

func TestImageThatCrashesSigningIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*settings, deadlyKeeper){
		"statements": func(o *settings, d deadlyKeeper) { o.SBOMs = d },
		"signatures": func(o *settings, d deadlyKeeper) { o.Signer = d },
	}
	for what, use := range tests {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.add(firstKey().secret())
			start := func(dir string) (b *process, next string) {
				log, err := inwork.Open(dir)
				require.NoError(t, err)
				next = filepath.Join(t.TempDir(), "next")
				return w.builder(w.attesting(nil), func(o *settings) {
					o.InWork = log
					use(o, deadlyKeeper{func() {
						if _, err := os.Stat(next); err != nil {
							require.NoError(t, os.CopyFS(next, os.DirFS(dir)))
						}
					}})
				}), next
			}
			rounds := func(b *process) {
				for range 4 { // what a killed process would not do any more changes nothing
					_ = w.round(b)
				}
			}
			dir := t.TempDir()
			for range 2 {
				var b *process
				b, dir = start(dir)
				rounds(b)
				require.DirExists(t, dir)
			}
			b, next := start(dir)
			rounds(b)
			require.NoDirExists(t, next, "it is not tried again")
			image := w.onlyImage()
			condition := mcfgv1alpha1.ImageSigned
			if what == "statements" {
				condition = mcfgv1alpha1.ImageAttested
			}
			assert.Contains(t, text(image.Status.Conditions, condition),
				"False ControllerKilled the controller was killed 2 times while it worked on the "+what+" of MachineOSImage \""+image.Name+"\" alone")
		})
	}
}
