package configs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

func quiet(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"quiet"} }

// configurations are what nodes get with each image, by the configuration that it was made with.
func configurations(w *worldtest.World) map[string]string {
	w.T.Helper()
	out := map[string]string{}
	for _, image := range w.Images() {
		out[image.Spec.RenderedMachineConfig] = image.Configuration()
	}
	return out
}

// TestChangesThatNeedNoImage says of the image that is there that it is what the pool asks for:
// nodes get no image of which that is not said.
func TestChangesThatNeedNoImage(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*worldtest.World) *mcfgv1.MachineConfig{
		"another name of the same content": func(w *worldtest.World) *mcfgv1.MachineConfig { return w.With("2", "", "") },
		"kernel arguments":                 func(w *worldtest.World) *mcfgv1.MachineConfig { return w.With("2", "", "", quiet) },
		"SSH keys of a user": func(w *worldtest.World) *mcfgv1.MachineConfig {
			return w.With("2", "", `{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}`)
		},
		"a file below /var": func(w *worldtest.World) *mcfgv1.MachineConfig {
			return w.With("2", `,{"path":"/var/lib/app/name","contents":{"source":"data:,x"}}`, "")
		},
		"a file that its author keeps out of images": func(w *worldtest.World) *mcfgv1.MachineConfig {
			return w.With("2", `,{"path":"/etc/secret","contents":{"source":"data:,x"}}`, "", func(mc *mcfgv1.MachineConfig) {
				metav1.SetMetaDataAnnotation(&mc.ObjectMeta, mcfgv1.AnnotationNodeOnlyContent, `{"files":["/etc/secret"]}`)
			})
		},
	}
	for name, next := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			b := w.Builder()
			w.Settle(b)
			assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-1"}, configurations(w))
			image := w.OSConfig("worker").Status.CurrentImagePullSpec

			w.Change(next(w))
			w.Settle(b)
			assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-2"}, configurations(w))
			w.Use("worker", "rendered-worker-1")
			w.Settle(b)
			assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-1"}, configurations(w), "and back")
			assert.Equal(t, image, w.OSConfig("worker").Status.CurrentImagePullSpec)
			assert.Len(t, w.Builds(), 1)
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
		})
	}
}

// TestImagesKeepTheirLastConfiguration goes through changes that need an image, and some that need
// none.
func TestImagesKeepTheirLastConfiguration(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	w.Change(w.With("2", "", "", quiet))
	w.Settle(b)

	file := `,{"path":"/etc/issue","contents":{"source":"data:,x"}}`
	w.Change(w.With("3", file, "", quiet))
	require.NoError(t, w.Round(b))
	w.Change(w.With("4", file, "")) // while the image of 3 is being made
	w.Settle(b)
	assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-2", "rendered-worker-3": "rendered-worker-4"}, configurations(w))

	w.Use("worker", "rendered-worker-1")
	w.Settle(b)
	assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-1", "rendered-worker-3": "rendered-worker-4"}, configurations(w))
	assert.Len(t, w.Builds(), 2)
}

// TestOnlyTheImageOfTheBuilderFits has an object of the same image that someone else has made.
func TestOnlyTheImageOfTheBuilderFits(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	foreign := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: w.Images()[0].Spec}
	foreign.Spec.RenderedMachineConfig = "rendered-foreign"
	w.Add(foreign)
	w.Change(w.With("2", "", "", quiet))
	w.Settle(b)
	assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-2", "rendered-foreign": "rendered-foreign"}, configurations(w))
}
