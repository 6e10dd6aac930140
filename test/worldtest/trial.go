package worldtest

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/machineconfigs"
)

// Streams of a pool that tries the newer.
const (
	OldStream = "rhel-9"
	NewStream = "rhel-10"
)

// PushStream pushes the OS image of a major version, with an os-release, a kernel and packages, and
// gives it by digest.
func (w *World) PushStream(major string, more map[string]string) string {
	w.T.Helper()
	image := OSImage(w.T, "el"+major, "amd64")
	files := map[string]string{
		"etc/os-release":                       "ID=rhel\nPLATFORM_ID=\"platform:el" + major + "\"\nPRETTY_NAME=\"Enterprise Linux " + major + "\"\n",
		"etc/motd":                             "welcome to " + major + "\n",
		"usr/lib/modules/" + major + "/config": "",
		"var/lib/dpkg/status":                  "Package: bash\nStatus: install ok installed\nVersion: " + major + "\n",
	}
	maps.Copy(files, more)
	image = Must(mutate.AppendLayers(image, registrytest.Layer(w.T, files)))
	return w.Registry.Push(w.T, "stream/os:el"+major, image)
}

// Trying is a world with a pool on the older of two streams, whose image is there, and a
// MachineConfig that may be in the way.
func Trying(t *testing.T, config string, changes ...func(*Settings)) (*World, *Process) {
	t.Helper()
	w := New(t)
	before, after := w.PushStream("9", map[string]string{"usr/lib/systemd/system/tuned.service": "[Unit]\n"}), w.PushStream("10", nil)
	set := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.OSImageStreamName}}
	set.Status.SetStreams([]mcfgv1.OSImageStreamSet{
		{Name: OldStream, OSImage: mcfgv1.ImageDigestFormat(before)}, {Name: NewStream, OSImage: mcfgv1.ImageDigestFormat(after)},
	}, OldStream)
	mc := &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "50-mine", Labels: map[string]string{mcfgv1.LabelRole: "worker"}},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(config)}},
	}
	rendered := Must(machineconfigs.Render(machineconfigs.Options{Pool: "worker", Images: machineconfigs.Images{OSImage: before}}, []*mcfgv1.MachineConfig{mc}))
	pool := NewPool("worker", rendered.MachineConfig.Name)
	pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{mcfgv1.LabelRole: "worker"}}
	pool.Status.OSImageStream.Name = OldStream
	w.Add(set, mc, rendered.MachineConfig, pool, w.Config("worker"))
	b := w.Builder(changes...)
	w.Settle(b)
	w.Told()
	w.Writes = nil
	return w, b
}

// Motd is a configuration with a file that the base image has too.
const Motd = `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","overwrite":true,"contents":{"source":"data:,mine"}}]}}`

// Try asks for a trial of a stream, or for none where it is empty.
func (w *World) Try(stream string) {
	w.T.Helper()
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		if metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationTryStream, stream); stream == "" {
			delete(c.Annotations, mcfgv1.AnnotationTryStream)
		}
		c.Generation--
	})
}

// ReconcileTrial reconciles the trial, and gives what the status says then.
func (w *World) ReconcileTrial(b *Process) (*mcfgv1.StreamTrial, ctrl.Result, error) {
	w.T.Helper()
	result, err := b.trials.Reconcile(w.T.Context(), Request("worker"))
	return w.OSConfig("worker").Status.StreamTrial, result, err
}

// TriedAgain makes another reconcile of the same trial.
func (w *World) TriedAgain(b *Process) *mcfgv1.StreamTrial {
	w.T.Helper()
	trial, _, err := w.ReconcileTrial(b)
	require.NoError(w.T, err)
	return trial
}

// ContentImages are the content images that are there. The registry of the tests keeps tags of
// images that were deleted.
func (w *World) ContentImages() []string {
	var images []string
	for tag, digest := range w.Registry.Tags(w.T, "host/os") {
		if strings.HasPrefix(tag, "content-") && w.Registry.Has(w.T, w.Registry.Host+"/host/os@"+digest) {
			images = append(images, digest)
		}
	}
	return images
}

// TryingContent is trying with content that a stand-in has built already.
func TryingContent(t *testing.T) (*World, *Process, *StandIn) {
	t.Helper()
	var s *StandIn
	w, b := Trying(t, Motd, func(o *Settings) {
		o.Backends = AsJobs(&lateBackend{of: func() backends.Backend { return s }})
	})
	s = NewStandIn(w)
	w.Containerfile(CheapFile)
	w.Settle(b)
	return w, b, s
}

// lateBackend is a backend that is made after its user.
type lateBackend struct{ of func() backends.Backend }

// Ensure begins a build.
func (l *lateBackend) Ensure(ctx context.Context, spec backend.Spec) error {
	return l.of().Ensure(ctx, spec)
}

// Observe observes a build.
func (l *lateBackend) Observe(ctx context.Context, key backend.Key) (backend.State, error) {
	return l.of().Observe(ctx, key)
}

// Remove removes a build.
func (l *lateBackend) Remove(ctx context.Context, key backend.Key) error {
	return l.of().Remove(ctx, key)
}
