package builds_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

const workerRole = "node-role.kubernetes.io/worker"

// inPool makes a node of the pool worker.
func inPool(w *worldtest.World, name, arch string) *corev1.Node {
	w.T.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{workerRole: "", corev1.LabelArchStable: arch}}}
	w.Add(node)
	return node
}

// withArchitectures is a world whose pool worker has nodes, and an OS image for architectures.
func withArchitectures(t *testing.T, containerfile string, offered ...string) (*worldtest.World, *worldtest.StandIn, func(*worldtest.Settings)) {
	t.Helper()
	w, s, use := worldtest.WithContent(t, containerfile)
	worldtest.Edit(w, &mcfgv1.MachineConfigPool{}, "worker", func(p *mcfgv1.MachineConfigPool) {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{workerRole: ""}}
	})
	w.Base = w.Registry.PushBase(t, "stream/os", "many", offered...)
	w.Rerender("worker", "many", "/etc/motd", "one")
	return w, s, use
}

// platforms are those that the pool's image is a list of; none for a single image.
func platforms(w *worldtest.World, image string) []string {
	w.T.Helper()
	found, err := registry.New(registry.Options{}).Resolve(w.T.Context(), image)
	require.NoError(w.T, err)
	var out []string
	for _, p := range found.Platforms {
		out = append(out, p.Architecture)
	}
	return out
}

// architecturesOf are those of the MachineOSImage of an image.
func architecturesOf(w *worldtest.World, image string) []string {
	w.T.Helper()
	var out []string
	for _, object := range w.Images() {
		if string(object.Spec.PullSpec) == image {
			for _, a := range object.Status.Architectures {
				assert.NotEmpty(w.T, a.Digest)
				assert.Positive(w.T, *a.Size)
				out = append(out, a.Architecture.OCI())
			}
		}
	}
	return out
}

// TestArchitecturesFollowTheNodes has nodes of another architecture come and go.
func TestArchitecturesFollowTheNodes(t *testing.T) {
	t.Parallel()
	for name, containerfile := range map[string]string{"content": worldtest.CheapFile, "content on the configuration": worldtest.ConfigsFirst, "configuration": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s, use := withArchitectures(t, containerfile, "amd64", "arm64", "s390x")
			built := func(arch string) string {
				if containerfile == "" {
					return ""
				}
				return "built for " + arch
			}
			inPool(w, "one", "amd64")
			b := w.Builder(use)
			w.Settle(b)
			single := w.Current()
			assert.Empty(t, platforms(w, single), "one architecture is a single image")
			assert.Equal(t, []string{"amd64"}, architecturesOf(w, single))
			assert.Equal(t, built("amd64"), w.Unpacked(single, "amd64", "usr/share/built"))
			assert.Equal(t, "one", w.Unpacked(single, "amd64", "etc/motd"))

			other := inPool(w, "two", "arm64")
			w.Settle(b)
			joined := w.Current()
			require.NotEqual(t, single, joined, "a node that cannot run the image asks for another one")
			assert.Equal(t, []string{"amd64", "arm64"}, platforms(w, joined))
			assert.Equal(t, []string{"amd64", "arm64"}, architecturesOf(w, joined))
			for _, arch := range []string{"amd64", "arm64"} {
				assert.Equal(t, built(arch), w.Unpacked(joined, arch, "usr/share/built"))
				assert.Equal(t, "one", w.Unpacked(joined, arch, "etc/motd"))
			}
			newest := worldtest.Read(w, &mcfgv1.MachineOSBuild{}, w.OSConfig("worker").Status.MachineOSBuild.Name)
			assert.Equal(t, "architecture arm64 added", newest.Status.Why)
			assert.Len(t, newest.Status.Architectures, 2)

			w.Remove(other)
			w.Settle(b)
			assert.Equal(t, joined, w.Current(), "no node restarts because another one went")
			w.Rerender("worker", "more", "/etc/motd", "two")
			w.Settle(b)
			assert.Equal(t, []string{"amd64", "arm64"}, platforms(w, w.Current()), "and it may come back")
			if containerfile == worldtest.CheapFile {
				assert.Equal(t, 2, s.Begun, "another file is no reason to build")
			}

			w.Annotate("worker", mcfgv1.AnnotationRebuild)
			w.Settle(b)
			assert.Empty(t, platforms(w, w.Current()), "a rebuild is for the nodes that there are")
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			w.Settle(b)
			assert.Empty(t, platforms(w, w.Current()))

			w.Remove(w.OSConfig("worker"))
			w.Settle(b)
			assert.Empty(t, w.Tags("host/os"), "everything that was pushed goes")
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
			w, _, use := withArchitectures(t, worldtest.CheapFile, offered...)
			inPool(w, "one", "amd64")
			node := inPool(w, "two", "arm64")
			b := w.Builder(use)
			w.Settle(b)
			said := w.Says("worker", status.Stalled)
			assert.Contains(t, said, `True UnsuitableBaseImage MachineConfig "rendered-worker-many": spec.osImageURL: using image "`+w.Base+`" as a base: it is for amd64`)
			assert.Contains(t, said, `node "two" of pool "worker" is arm64: name an OS image that is for arm64 too, or give that node another pool`)
			assert.Empty(t, w.Builds())

			w.Remove(node)
			w.Settle(b)
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			assert.Equal(t, []string{"amd64"}, architecturesOf(w, w.Current()))

			arch := mcfgv1.Ppc
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile[0].ContainerfileArch = arch })
			w.Settle(b)
			assert.Contains(t, w.Says("worker", status.Stalled), "and spec.containerFile[PPC64LE] is for ppc64le: name an OS image that is for ppc64le too, or remove that Containerfile")
		})
	}
}

// TestEachArchitectureHasItsContainerfile names an architecture that no node of the pool has.
func TestEachArchitectureHasItsContainerfile(t *testing.T) {
	t.Parallel()
	w, s, use := withArchitectures(t, worldtest.CheapFile, "amd64", "arm64", "s390x")
	inPool(w, "one", "amd64")
	own := "FROM os-base-image\nRUN install-on-arm\n"
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Containerfile = append(c.Spec.Containerfile, mcfgv1.MachineOSContainerfile{ContainerfileArch: mcfgv1.Arm64, Content: &own})
	})
	failing := true
	s.Says = func(backend.Spec) backend.State {
		if !failing {
			return backend.State{Phase: backend.Succeeded}
		}
		return backend.State{Phase: backend.Failed, Failure: &backend.Failure{
			Class: fault.Terminal, Reason: "BuildFailed", Message: "Containerfile line 2: RUN install-on-arm: exit status 1", Architecture: mcfgv1.ArchitectureARM64,
		}}
	}
	b := w.Builder(use)
	w.Settle(b)
	assert.Contains(t, w.Says("worker", status.Stalled), "arm64: Containerfile line 2: RUN install-on-arm: exit status 1")
	spec := s.Only()
	require.Len(t, spec.Architectures, 2)
	assert.Contains(t, spec.Architectures[0].Instructions.Containerfile, "RUN install-something")
	assert.Contains(t, spec.Architectures[1].Instructions.Containerfile, "RUN install-on-arm")
	assert.Equal(t, spec.PushSpec+"-amd64", spec.Architectures[0].Instructions.Target)
	assert.Equal(t, spec.PushSpec+"-arm64", spec.Architectures[1].Instructions.Target)
	assert.Equal(t, mcfgv1.ArchitectureARM64, spec.Architectures[1].Architecture)

	failing = false
	w.Annotate("worker", mcfgv1.AnnotationRebuild)
	w.Settle(b)
	assert.Equal(t, []string{"amd64", "arm64"}, platforms(w, w.Current()))
}

func TestImagesOfAnotherRepositoryAreNotJoined(t *testing.T) {
	t.Parallel()
	w, s, use := withArchitectures(t, worldtest.CheapFile, "amd64", "arm64")
	inPool(w, "one", "amd64")
	inPool(w, "two", "arm64")
	s.Says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Succeeded, Image: elsewhere} }
	w.Settle(w.Builder(use))
	assert.Contains(t, w.Says("worker", status.Stalled), `reports that it pushed "`+elsewhere+`"`)
	assert.Empty(t, w.Images())
}

// TestReusedImagesSayTheirArchitectures has another MachineOSConfig take what is in the registry.
func TestReusedImagesSayTheirArchitectures(t *testing.T) {
	t.Parallel()
	for name, offered := range map[string][]string{"a single image": nil, "a list": {"amd64", "arm64"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _, use := withArchitectures(t, "", offered...)
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Retention = &mcfgv1.Retention{ImageDeletion: mcfgv1.Disabled} })
			w.Settle(w.Builder(use))
			image := w.Current()
			before := architecturesOf(w, image)
			w.Remove(w.OSConfig("worker"))
			b := w.Builder(use)
			w.Settle(b)
			w.Add(w.Config("worker"))
			w.Settle(b)
			assert.Equal(t, image, w.Current())
			assert.Equal(t, "Reused", worldtest.EndedBy(w))
			assert.Equal(t, before, architecturesOf(w, image))
		})
	}
}
