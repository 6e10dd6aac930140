package builder

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
)

// with is the rendered MachineConfig of the content that the pool began with, and more of it.
func (w *world) with(suffix, files, users string, change ...func(*mcfgv1.MachineConfig)) *mcfgv1.MachineConfig {
	mc := w.rendered("worker", suffix, "/etc/motd", "one")
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[
		{"path":"/etc/motd","contents":{"source":"data:,one"}}%s]},"passwd":{"users":[%s]}}`, files, users)
	for _, c := range change {
		c(mc)
	}
	return mc
}

func quiet(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"quiet"} }

// change gives the pool a rendered MachineConfig.
func (w *world) change(mc *mcfgv1.MachineConfig) {
	w.t.Helper()
	w.add(mc)
	w.use("worker", mc.Name)
}

// configurations are what nodes get with each image, by the configuration that it was made with.
func (w *world) configurations() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, image := range w.images() {
		out[image.Spec.RenderedMachineConfig] = image.Configuration()
	}
	return out
}

// TestChangesThatNeedNoImage says of the image that is there that it is what the pool asks for:
// nodes get no image of which that is not said.
func TestChangesThatNeedNoImage(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*world) *mcfgv1.MachineConfig{
		"another name of the same content": func(w *world) *mcfgv1.MachineConfig { return w.with("2", "", "") },
		"kernel arguments":                 func(w *world) *mcfgv1.MachineConfig { return w.with("2", "", "", quiet) },
		"SSH keys of a user": func(w *world) *mcfgv1.MachineConfig {
			return w.with("2", "", `{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}`)
		},
		"a file below /var": func(w *world) *mcfgv1.MachineConfig {
			return w.with("2", `,{"path":"/var/lib/app/name","contents":{"source":"data:,x"}}`, "")
		},
		"a file that its author keeps out of images": func(w *world) *mcfgv1.MachineConfig {
			return w.with("2", `,{"path":"/etc/secret","contents":{"source":"data:,x"}}`, "", func(mc *mcfgv1.MachineConfig) {
				metav1.SetMetaDataAnnotation(&mc.ObjectMeta, mcfgv1.AnnotationNodeOnlyContent, `{"files":["/etc/secret"]}`)
			})
		},
	}
	for name, next := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			b := w.builder()
			w.settle(b)
			assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-1"}, w.configurations())
			image := w.osConfig("worker").Status.CurrentImagePullSpec

			w.change(next(w))
			w.settle(b)
			assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-2"}, w.configurations())
			w.use("worker", "rendered-worker-1")
			w.settle(b)
			assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-1"}, w.configurations(), "and back")
			assert.Equal(t, image, w.osConfig("worker").Status.CurrentImagePullSpec)
			assert.Len(t, w.builds(), 1)
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
		})
	}
}

// TestImagesKeepTheirLastConfiguration goes through changes that need an image, and some that need
// none.
func TestImagesKeepTheirLastConfiguration(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	b := w.builder()
	w.settle(b)
	w.change(w.with("2", "", "", quiet))
	w.settle(b)

	file := `,{"path":"/etc/issue","contents":{"source":"data:,x"}}`
	w.change(w.with("3", file, "", quiet))
	require.NoError(t, w.round(b))
	w.change(w.with("4", file, "")) // while the image of 3 is being made
	w.settle(b)
	assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-2", "rendered-worker-3": "rendered-worker-4"}, w.configurations())

	w.use("worker", "rendered-worker-1")
	w.settle(b)
	assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-1", "rendered-worker-3": "rendered-worker-4"}, w.configurations())
	assert.Len(t, w.builds(), 2)
}

// TestOnlyTheImageOfTheBuilderFits has an object of the same image that someone else has made.
func TestOnlyTheImageOfTheBuilderFits(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	b := w.builder()
	w.settle(b)
	foreign := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: w.images()[0].Spec}
	foreign.Spec.RenderedMachineConfig = "rendered-foreign"
	w.add(foreign)
	w.change(w.with("2", "", "", quiet))
	w.settle(b)
	assert.Equal(t, map[string]string{"rendered-worker-1": "rendered-worker-2", "rendered-foreign": "rendered-foreign"}, w.configurations())
}
