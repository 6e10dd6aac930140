//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
)

// The cluster of these tests has a node more than the shared one, whose label says that it is
// arm64. This machine is amd64: the node is a stand-in, and runs amd64 programs all the same, from
// an image that says it is for arm64 and has the files of the one for amd64.
const (
	archCluster  = "e2e-arch"
	standInARM64 = "node2"
)

// testContentOfSeveralArchitectures follows a pool from nodes of one architecture to nodes of two.
func testContentOfSeveralArchitectures(t *testing.T) {
	b := newArchBuilds(t)
	p := b.unasked(t, "several")
	role := "node-role.kubernetes.io/" + p.name
	p.label("node1", role, "")
	p.eventually(func(t *assert.CollectT) {
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: p.name}, pool))
		require.Equal(t, int32(1), pool.Status.MachineCount, "the controller has seen the label")
	})
	noArch, arm64 := "FROM os-base-image\nRUN echo for others > /usr/share/built\n", "FROM os-base-image\nRUN echo for $(echo arm)64 > /usr/share/built\n"
	p.ask(containing(noArch), func(c *mcfgv1.MachineOSConfig) {
		c.Spec.BaseImagePullSecret.Name, c.Spec.RenderedImagePushSecret.Name = stack.PullSecret, stack.PushSecret
	})

	p.eventually(func(t *assert.CollectT) { require.Len(t, p.trusted(t), 1) })
	single := p.readyAs("one")
	assert.Equal(t, types.OCIManifestSchema1, p.head(single), "one architecture is a single image")
	assert.Equal(t, "for others\n", p.inLayers(single, "usr/share/built"))
	assert.Equal(t, []mcfgv1.Architecture{mcfgv1.ArchitectureAMD64}, p.architectures(single))

	p.changeConfig(func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Containerfile = append(c.Spec.Containerfile, mcfgv1.MachineOSContainerfile{ContainerfileArch: mcfgv1.Arm64, Content: &arm64})
	})
	p.label(standInARM64, role, "")
	joined := p.ready(single)
	assert.Equal(t, types.OCIImageIndex, p.head(joined))
	assert.Equal(t, []mcfgv1.Architecture{mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64}, p.architectures(joined))
	for arch, text := range map[string]string{"amd64": "for others\n", "arm64": "for arm64\n"} {
		assert.Equal(t, text, p.of(joined, arch, "usr/share/built"))
		assert.Equal(t, "one", p.of(joined, arch, "etc/motd"))
	}
	node := &corev1.Node{}
	require.NoError(t, p.Get(t.Context(), client.ObjectKey{Name: standInARM64}, node))
	require.Equal(t, "arm64", node.Labels[corev1.LabelArchStable], "it still is")
	p.requireEachSigned(t, joined)

	p.write("another")
	appended := p.ready(joined)
	assert.Equal(t, types.OCIImageIndex, p.head(appended))
	for arch, text := range map[string]string{"amd64": "for others\n", "arm64": "for arm64\n"} {
		assert.Equal(t, text, p.of(appended, arch, "usr/share/built"))
		assert.Equal(t, "another", p.of(appended, arch, "etc/motd"))
	}
	build := &mcfgv1.MachineOSBuild{}
	require.NoError(t, p.Get(t.Context(), client.ObjectKey{Name: p.config(t).Status.MachineOSBuild.Name}, build))
	assert.Contains(t, conditionText(build.Status.Conditions, status.BuildSucceeded), "True ConfigAppended", "nothing is built again")
	assert.Len(t, build.Status.Architectures, 2)

	broken := "FROM os-base-image\nRUN echo broken on this one; exit 3\n"
	p.changeConfig(func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile[1].Content = &broken })
	p.eventually(func(t *assert.CollectT) {
		said := conditionText(p.config(t).Status.Conditions, status.Stalled)
		require.Contains(t, said, "True BuildFailed")
		require.Contains(t, said, "arm64: Containerfile line 2: RUN echo broken on this one; exit 3: exit status 3")
	})
	assert.Equal(t, appended, string(p.config(t).Status.CurrentImagePullSpec), "what the pool has stays")
	p.ranOn(map[string]string{"ARM64": standInARM64})
}

// requireEachSigned makes sure that an image for two architectures, and that for each of them, is
// signed and attested, and that nodes of both which insist on that take them.
func (p *layered) requireEachSigned(t *testing.T, pinned string) {
	t.Helper()
	p.requireVerified(pinned)
	index, err := remote.Index(p.behind(t, pinned), p.registry.Options(t.Context(), "pull")...)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 2)
	node := p.node(t)
	_, err = node.Try("pull", "--quiet", p.pushBase(t))
	require.ErrorContains(t, err, "A signature was required, but no signature exists")
	for _, one := range manifest.Manifests {
		child := repositoryOf(pinned) + "@" + one.Digest.String()
		assert.Equal(t, provenance.BuildTypeImage, p.requireSigned(child).BuildDefinition.BuildType)
		arch := []string{"pull", "--quiet", "--arch", one.Platform.Architecture}
		assert.Equal(t, node.Run(append(arch, pinned)...), node.Run(append(arch, child)...), "it is the same image")
	}
}

// newArchBuilds are builds on a cluster of their own, which comes up with more than its nodes where
// flags say so. They talk to its registry directly, and nodes insist on signatures.
func newArchBuilds(t *testing.T, flags ...string) *builds {
	t.Helper()
	mustCluster(t, append([]string{"--name", archCluster, "up", "--nodes", "2"}, flags...)...)
	t.Cleanup(func() {
		require.NoError(t, command(context.WithoutCancel(t.Context()), "--name", archCluster, "down"))
	})
	s := named(t, archCluster)
	ctrl.SetLogger(logr.Discard())
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{corev1.AddToScheme, admissionv1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	config, err := s.Config()
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	status, err := s.Status(t.Context())
	require.NoError(t, err)
	b := &builds{Client: c, cluster: archCluster, status: status, clients: clientsOf(t, archCluster)}
	b.setArguments(t, func(args []string) []string { return append(args, "--enforce-signatures") })
	b.registry, err = s.Registry(t.Context())
	require.NoError(t, err)
	b.host = b.registry.Host
	references, err := s.PushFixtures(t.Context(), fixtures.Tiny, nil, t.Logf)
	require.NoError(t, err)
	b.base = b.forSeveral(t, references.OS[fixtures.RHEL9])
	b.standIn(t)
	return b
}

// standIn makes a node one for arm64 until the test ends. Its kubelet puts the label right each
// time it writes the status of the node, so that setting it once does not last.
func (b *builds) standIn(t *testing.T) {
	t.Helper()
	const policy = "e2e-arm64"
	rules := admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		ResourceNames: []string{standInARM64}, RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes", "nodes/status"}},
		},
	}}}
	for _, object := range []client.Object{
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy}, Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &rules, ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{
				Expression: `Object{metadata: Object.metadata{labels: {"kubernetes.io/arch": "arm64"}}}`,
			}}},
		}},
		&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy}},
	} {
		require.NoError(t, b.Create(t.Context(), object))
		t.Cleanup(func() { require.NoError(t, b.Delete(context.WithoutCancel(t.Context()), object)) })
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		node := &corev1.Node{}
		require.NoError(collect, b.Get(t.Context(), client.ObjectKey{Name: standInARM64}, node))
		require.Equal(collect, "arm64", node.Labels[corev1.LabelArchStable])
	}, buildPatience, buildTick, "the kubelet writes the status of its node every few seconds")
}

// forSeveral pushes an index of an image for amd64, and of the same files said to be for arm64.
func (b *builds) forSeveral(t *testing.T, ref name.Digest) string {
	t.Helper()
	options := b.registry.Options(t.Context(), "push")
	image, err := remote.Image(ref, options...)
	require.NoError(t, err)
	file, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "amd64", file.Architecture)
	other := file.DeepCopy()
	other.Architecture = "arm64"
	standIn, err := mutate.ConfigFile(image, other)
	require.NoError(t, err)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range []struct {
		arch  string
		image v1.Image
	}{{"amd64", image}, {"arm64", standIn}} {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one.image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: one.arch}},
		})
	}
	require.NoError(t, remote.WriteIndex(ref.Context().Tag("several"), index, options...))
	digest, err := index.Digest()
	require.NoError(t, err)
	return ref.Context().Digest(digest.String()).String()
}

// label gives a node a label until the test ends.
func (p *layered) label(node, key, value string) {
	p.t.Helper()
	n := &corev1.Node{}
	require.NoError(p.t, p.Get(p.t.Context(), client.ObjectKey{Name: node}, n))
	before := n.DeepCopy()
	n.Labels[key] = value
	after := n.DeepCopy()
	require.NoError(p.t, p.Patch(p.t.Context(), n, client.MergeFrom(before)))
	p.t.Cleanup(func() {
		require.NoError(p.t, p.Patch(context.WithoutCancel(p.t.Context()), before.DeepCopy(), client.MergeFrom(after)))
	})
}

// ready waits until the pool is done with another image than the one before, and gives it.
func (p *layered) ready(before string) string {
	p.t.Helper()
	var image string
	p.eventually(func(t *assert.CollectT) {
		config := p.config(t)
		require.Equal(t, "True Succeeded", conditionText(config.Status.Conditions, status.Ready))
		image = string(config.Status.CurrentImagePullSpec)
		require.NotEmpty(t, image)
		require.NotEqual(t, before, image)
	})
	return image
}

// head is what the registry says of an image without showing it.
func (p *layered) head(pinned string) types.MediaType {
	p.t.Helper()
	found, err := remote.Head(p.behind(p.t, pinned), p.registry.Options(p.t.Context(), "pull")...)
	require.NoError(p.t, err)
	return found.MediaType
}

// of is a file in an image's part for an architecture.
func (p *layered) of(pinned, arch, path string) string {
	p.t.Helper()
	options := append(p.registry.Options(p.t.Context(), "pull"), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	image, err := remote.Image(p.behind(p.t, pinned), options...)
	require.NoError(p.t, err)
	digest, err := image.Digest()
	require.NoError(p.t, err)
	return p.inLayers(p.behind(p.t, pinned).Context().Digest(digest.String()).String(), path)
}

// architectures are those of the MachineOSImage.
func (p *layered) architectures(pinned string) []mcfgv1.Architecture {
	p.t.Helper()
	var out []mcfgv1.Architecture
	for _, image := range p.machineOSImages(p.t.Context(), p.t) {
		if string(image.Spec.PullSpec) == pinned {
			for _, a := range image.Status.Architectures {
				out = append(out, a.Architecture)
			}
		}
	}
	return out
}

// ranOn checks on which nodes the pods of a build that failed ran, as far as they are still there.
func (p *layered) ranOn(nodes map[string]string) {
	p.t.Helper()
	var pods corev1.PodList
	require.NoError(p.t, p.List(p.t.Context(), &pods, client.InNamespace(stack.Namespace), client.HasLabels{mcfgv1.LabelEphemeralBuildObject}))
	ran := map[string]string{}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp.IsZero() {
			ran[pod.Annotations[mcfgv1.AnnotationBuildArchitecture]] = pod.Spec.NodeName
		}
	}
	for arch, node := range nodes {
		assert.Equal(p.t, node, ran[arch])
	}
}
