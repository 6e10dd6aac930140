package builder

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
)

const workerRole = "node-role.kubernetes.io/worker"

// inPool makes a node of the pool worker.
func (w *world) inPool(name, arch string) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{workerRole: "", corev1.LabelArchStable: arch}}}
	w.add(node)
	return node
}

// withArchitectures is a world whose pool worker has nodes, and an OS image for architectures.
func withArchitectures(t *testing.T, containerfile string, offered ...string) (*world, *standIn, func(*settings)) {
	t.Helper()
	w, s, use := withContent(t, containerfile)
	edit(w, &mcfgv1.MachineConfigPool{}, "worker", func(p *mcfgv1.MachineConfigPool) {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{workerRole: ""}}
	})
	w.base = w.registry.pushBase(t, "stream/os", "many", offered...)
	w.rerender("worker", "many", "/etc/motd", "one")
	return w, s, use
}

// platforms are those that the pool's image is a list of; none for a single image.
func (w *world) platforms(image string) []string {
	w.t.Helper()
	found, err := registry.New(registry.Options{}).Resolve(w.t.Context(), image)
	require.NoError(w.t, err)
	var out []string
	for _, p := range found.Platforms {
		out = append(out, p.Architecture)
	}
	return out
}

// architecturesOf are those of the MachineOSImage of an image.
func (w *world) architecturesOf(image string) []string {
	w.t.Helper()
	var out []string
	for _, object := range w.images() {
		if string(object.Spec.PullSpec) == image {
			for _, a := range object.Status.Architectures {
				assert.NotEmpty(w.t, a.Digest)
				assert.Positive(w.t, *a.Size)
				out = append(out, a.Architecture.OCI())
			}
		}
	}
	return out
}

func (w *world) current() string {
	w.t.Helper()
	return string(w.osConfig("worker").Status.CurrentImagePullSpec)
}

// TestArchitecturesFollowTheNodes has nodes of another architecture come and go.
func TestArchitecturesFollowTheNodes(t *testing.T) {
	t.Parallel()
	for name, containerfile := range map[string]string{"content": cheapFile, "content on the configuration": configsFirst, "configuration": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s, use := withArchitectures(t, containerfile, "amd64", "arm64", "s390x")
			built := func(arch string) string {
				if containerfile == "" {
					return ""
				}
				return "built for " + arch
			}
			w.inPool("one", "amd64")
			b := w.builder(use)
			w.settle(b)
			single := w.current()
			assert.Empty(t, w.platforms(single), "one architecture is a single image")
			assert.Equal(t, []string{"amd64"}, w.architecturesOf(single))
			assert.Equal(t, built("amd64"), w.unpacked(single, "amd64", "usr/share/built"))
			assert.Equal(t, "one", w.unpacked(single, "amd64", "etc/motd"))

			other := w.inPool("two", "arm64")
			w.settle(b)
			joined := w.current()
			require.NotEqual(t, single, joined, "a node that cannot run the image asks for another one")
			assert.Equal(t, []string{"amd64", "arm64"}, w.platforms(joined))
			assert.Equal(t, []string{"amd64", "arm64"}, w.architecturesOf(joined))
			for _, arch := range []string{"amd64", "arm64"} {
				assert.Equal(t, built(arch), w.unpacked(joined, arch, "usr/share/built"))
				assert.Equal(t, "one", w.unpacked(joined, arch, "etc/motd"))
			}
			newest := read(w, &mcfgv1.MachineOSBuild{}, w.osConfig("worker").Status.MachineOSBuild.Name)
			assert.Equal(t, "architecture arm64 added", newest.Status.Why)
			assert.Len(t, newest.Status.Architectures, 2)

			w.remove(other)
			w.settle(b)
			assert.Equal(t, joined, w.current(), "no node restarts because another one went")
			w.rerender("worker", "more", "/etc/motd", "two")
			w.settle(b)
			assert.Equal(t, []string{"amd64", "arm64"}, w.platforms(w.current()), "and it may come back")
			if containerfile == cheapFile {
				assert.Equal(t, 2, s.ensure, "another file is no reason to build")
			}

			w.annotate("worker", mcfgv1.AnnotationRebuild)
			w.settle(b)
			assert.Empty(t, w.platforms(w.current()), "a rebuild is for the nodes that there are")
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
			w.settle(b)
			assert.Empty(t, w.platforms(w.current()))

			w.remove(w.osConfig("worker"))
			w.settle(b)
			assert.Empty(t, w.tags("host/os"), "everything that was pushed goes")
		})
	}
}

// TestAnArchitectureThatTheImageIsNotFor is told with the node that has it, and is over when that
// goes.
func TestAnArchitectureThatTheImageIsNotFor(t *testing.T) {
	t.Parallel()
	for name, offered := range map[string][]string{"a single image": nil, "a list": {"amd64", "s390x"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _, use := withArchitectures(t, cheapFile, offered...)
			w.inPool("one", "amd64")
			node := w.inPool("two", "arm64")
			b := w.builder(use)
			w.settle(b)
			said := w.says("worker", status.Stalled)
			assert.Contains(t, said, `True UnsuitableBaseImage MachineConfig "rendered-worker-many": spec.osImageURL: using image "`+w.base+`" as a base: it is for amd64`)
			assert.Contains(t, said, `node "two" of pool "worker" is arm64: name an OS image that is for arm64 too, or give that node another pool`)
			assert.Empty(t, w.builds())

			w.remove(node)
			w.settle(b)
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
			assert.Equal(t, []string{"amd64"}, w.architecturesOf(w.current()))

			arch := mcfgv1.Ppc
			w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile[0].ContainerfileArch = arch })
			w.settle(b)
			assert.Contains(t, w.says("worker", status.Stalled), "and spec.containerFile[PPC64LE] is for ppc64le: name an OS image that is for ppc64le too, or remove that Containerfile")
		})
	}
}

// TestEachArchitectureHasItsContainerfile names an architecture that no node of the pool has.
func TestEachArchitectureHasItsContainerfile(t *testing.T) {
	t.Parallel()
	w, s, use := withArchitectures(t, cheapFile, "amd64", "arm64", "s390x")
	w.inPool("one", "amd64")
	own := "FROM os-base-image\nRUN install-on-arm\n"
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Containerfile = append(c.Spec.Containerfile, mcfgv1.MachineOSContainerfile{ContainerfileArch: mcfgv1.Arm64, Content: &own})
	})
	failing := true
	s.says = func(backend.Spec) backend.State {
		if !failing {
			return backend.State{Phase: backend.Succeeded}
		}
		return backend.State{Phase: backend.Failed, Failure: &backend.Failure{
			Class: fault.Terminal, Reason: "BuildFailed", Message: "Containerfile line 2: RUN install-on-arm: exit status 1", Architecture: mcfgv1.ArchitectureARM64,
		}}
	}
	b := w.builder(use)
	w.settle(b)
	assert.Contains(t, w.says("worker", status.Stalled), "arm64: Containerfile line 2: RUN install-on-arm: exit status 1")
	spec := s.only()
	require.Len(t, spec.Architectures, 2)
	assert.Contains(t, spec.Architectures[0].Instructions.Containerfile, "RUN install-something")
	assert.Contains(t, spec.Architectures[1].Instructions.Containerfile, "RUN install-on-arm")
	assert.Equal(t, spec.PushSpec+"-amd64", spec.Architectures[0].Instructions.Target)
	assert.Equal(t, spec.PushSpec+"-arm64", spec.Architectures[1].Instructions.Target)
	assert.Equal(t, mcfgv1.ArchitectureARM64, spec.Architectures[1].Architecture)

	failing = false
	w.annotate("worker", mcfgv1.AnnotationRebuild)
	w.settle(b)
	assert.Equal(t, []string{"amd64", "arm64"}, w.platforms(w.current()))
}

func TestImagesOfAnotherRepositoryAreNotJoined(t *testing.T) {
	t.Parallel()
	w, s, use := withArchitectures(t, cheapFile, "amd64", "arm64")
	w.inPool("one", "amd64")
	w.inPool("two", "arm64")
	s.says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Succeeded, Image: elsewhere} }
	w.settle(w.builder(use))
	assert.Contains(t, w.says("worker", status.Stalled), `reports that it pushed "`+elsewhere+`"`)
	assert.Empty(t, w.images())
}

// TestReusedImagesSayTheirArchitectures has another MachineOSConfig take what is in the registry.
func TestReusedImagesSayTheirArchitectures(t *testing.T) {
	t.Parallel()
	for name, offered := range map[string][]string{"a single image": nil, "a list": {"amd64", "arm64"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _, use := withArchitectures(t, "", offered...)
			w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Retention = &mcfgv1.Retention{ImageDeletion: mcfgv1.Disabled} })
			w.settle(w.builder(use))
			image := w.current()
			before := w.architecturesOf(image)
			w.remove(w.osConfig("worker"))
			b := w.builder(use)
			w.settle(b)
			w.add(w.config("worker"))
			w.settle(b)
			assert.Equal(t, image, w.current())
			assert.Equal(t, "Reused", endedBy(w))
			assert.Equal(t, before, w.architecturesOf(image))
		})
	}
}

func endedBy(w *world) string {
	w.t.Helper()
	reason, _ := objects.FinalOf(read(w, &mcfgv1.MachineOSBuild{}, w.osConfig("worker").Status.MachineOSBuild.Name).Status.Conditions)
	return reason
}
