package configs_test

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
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/test/worldtest"
	"github.com/layerwright/layerwright/trust/sign"
)

// deadly is a reader of base images that ends the process with one of them.
type deadly struct {
	configlayer.BaseImages

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
func process(w *worldtest.World, dir, image string) (b *worldtest.Process, next string) {
	w.T.Helper()
	log, err := inwork.Open(dir)
	require.NoError(w.T, err)
	_, digest, _ := strings.Cut(image, "@")
	next = filepath.Join(w.T.TempDir(), "next")
	return w.Builder(func(o *worldtest.Settings) {
		o.InWork = log
		o.Base = deadly{o.Base, digest, func() {
			if _, err := os.Stat(next); err != nil {
				require.NoError(w.T, os.CopyFS(next, os.DirFS(dir)))
			}
		}}
	}), next
}

func TestAnImageThatKillsTwiceIsRefused(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "small", "large")
	image := w.Registry.PushBase(t, "stream/large", "large")
	worldtest.Edit(w, &mcfgv1.MachineOSConfig{}, "large", func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(image) })
	dir := t.TempDir()
	for range 2 {
		assert.NotContains(t, w.Says("large", status.Stalled), "True ControllerKilled")
		var b *worldtest.Process
		b, dir = process(w, dir, image)
		_ = w.Round(b)
		require.DirExists(t, dir)
	}
	b, next := process(w, dir, image)
	w.Settle(b)
	require.NoDirExists(t, next, "the image is not read again")
	assert.Contains(t, w.Says("large", status.Stalled),
		`True ControllerKilled the controller was killed 2 times while it worked on MachineOSConfig "large" alone`)
	assert.Equal(t, "True Succeeded", w.Says("small", status.Ready), "the others go on")

	worldtest.Edit(w, &mcfgv1.MachineOSConfig{}, "large", func(c *mcfgv1.MachineOSConfig) { c.Annotations = map[string]string{mcfgv1.AnnotationRebuild: ""} })
	b, next = process(w, dir, image)
	_ = w.Round(b)
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
	tests := map[string]func(*worldtest.Settings, deadlyKeeper){
		"statements": func(o *worldtest.Settings, d deadlyKeeper) { o.SBOMs = d },
		"signatures": func(o *worldtest.Settings, d deadlyKeeper) { o.Signer = d },
	}
	for what, use := range tests {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.FirstKey().Secret())
			start := func(dir string) (b *worldtest.Process, next string) {
				log, err := inwork.Open(dir)
				require.NoError(t, err)
				next = filepath.Join(t.TempDir(), "next")
				return w.Builder(w.Attesting(nil), func(o *worldtest.Settings) {
					o.InWork = log
					use(o, deadlyKeeper{func() {
						if _, err := os.Stat(next); err != nil {
							require.NoError(t, os.CopyFS(next, os.DirFS(dir)))
						}
					}})
				}), next
			}
			rounds := func(b *worldtest.Process) {
				for range 4 { // what a killed process would not do any more changes nothing
					_ = w.Round(b)
				}
			}
			dir := t.TempDir()
			for range 2 {
				var b *worldtest.Process
				b, dir = start(dir)
				rounds(b)
				require.DirExists(t, dir)
			}
			b, next := start(dir)
			rounds(b)
			require.NoDirExists(t, next, "it is not tried again")
			image := w.OnlyImage()
			condition := mcfgv1alpha1.ImageSigned
			if what == "statements" {
				condition = mcfgv1alpha1.ImageAttested
			}
			assert.Contains(t, worldtest.Text(image.Status.Conditions, condition),
				"False ControllerKilled the controller was killed 2 times while it worked on the "+what+" of MachineOSImage \""+image.Name+"\" alone")
		})
	}
}
