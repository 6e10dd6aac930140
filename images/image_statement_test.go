package images_test

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/test/worldtest"
)

// signedBefore is an image that this cluster built and signed for a pool, and whose build is gone.
func signedBefore(w *worldtest.World, pool, config string) string {
	w.T.Helper()
	image := worldtest.OSImage(w.T, "before", "amd64")
	file, err := image.ConfigFile()
	require.NoError(w.T, err)
	file = file.DeepCopy()
	file.Config.Labels[mcfgv1.ImageLabelMachineConfigPool], file.Config.Labels[mcfgv1.ImageLabelMachineConfig] = pool, config
	image, err = mutate.ConfigFile(image, file)
	require.NoError(w.T, err)
	pinned := w.Registry.Push(w.T, "host/os:before", image)
	w.Signs(worldtest.FirstKey(), pinned)
	return pinned
}

// TestImagesOfBeforeAreNotBroughtBack has someone who may create MachineOSImages, and no more.
func TestImagesOfBeforeAreNotBroughtBack(t *testing.T) {
	t.Parallel()
	const before = "rendered-worker-0"
	tests := map[string]struct {
		// pool and config are what the image was built for, and says what its object says of it.
		pool, config string
		says         mcfgv1alpha1.MachineOSImageSpec
		isAllowed    bool
		want         string
	}{
		"of another pool":            {"infra", before, mcfgv1alpha1.MachineOSImageSpec{MachineConfigPool: "worker", RenderedMachineConfig: before}, true, `was built for pool "infra"`},
		"of another configuration":   {"worker", "rendered-worker-x", mcfgv1alpha1.MachineOSImageSpec{MachineConfigPool: "worker", RenderedMachineConfig: before}, true, `with the configuration "rendered-worker-x"`},
		"without its configuration":  {"worker", before, mcfgv1alpha1.MachineOSImageSpec{MachineConfigPool: "worker"}, true, `with the configuration "rendered-worker-0"`},
		"older than the pool's":      {"worker", before, mcfgv1alpha1.MachineOSImageSpec{MachineConfigPool: "worker", RenderedMachineConfig: before}, false, `which pool "worker" has now`},
		"older, and that is allowed": {"worker", before, mcfgv1alpha1.MachineOSImageSpec{MachineConfigPool: "worker", RenderedMachineConfig: before}, true, "True Signed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.FirstKey().Secret())
			b := w.Builder(w.Signing)
			w.Settle(b)
			image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "replay"}, Spec: tt.says}
			image.Spec.PullSpec = mcfgv1.ImageDigestFormat(signedBefore(w, tt.pool, tt.config))
			if tt.isAllowed {
				image.Annotations = map[string]string{mcfgv1alpha1.AnnotationAllowOlder: ""}
			}
			w.Add(image)
			w.Told()
			signed, _ := w.Look(b, "replay")
			assert.Contains(t, signed, tt.want)
			if tt.want == "True Signed" {
				assert.Contains(t, strings.Join(w.Told(), "\n"), "Warning OlderImageAllowed")
			} else {
				assert.Contains(t, signed, "False NotTrusted")
			}
		})
	}
}

// TestAnObjectForAnImageThatFits is of an image that a build has found to be what another
// configuration asks for.
func TestAnObjectForAnImageThatFits(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing)
	w.Settle(b)
	for config, want := range map[string]string{"rendered-worker-1": "True Signed", "rendered-worker-2": "False NotTrusted"} {
		image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "second-" + config}, Spec: w.Images()[0].Spec}
		image.Spec.RenderedMachineConfig = config
		w.Add(image)
		signed, _ := w.Look(b, image.Name)
		assert.Contains(t, signed, want, config)
	}
}
