package builder_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/runs"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

func TestAMachineOSConfigBecomesAnImage(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder())

	builds := w.Builds()
	require.Len(t, builds, 1)
	build := builds[0]
	assert.Regexp(t, `^worker-[0-9a-f]{32}$`, build.Name)
	assert.Equal(t, w.Registry.Host+"/host/os:"+build.Name, string(build.Spec.RenderedImagePushSpec))
	assert.Equal(t, "rendered-worker-1", build.Spec.MachineConfig.Name)
	assert.Equal(t, map[string]string{
		mcfgv1.LabelOnClusterLayering: "", mcfgv1.LabelTargetMachineConfigPool: "worker", mcfgv1.LabelMachineOSConfig: "worker",
		mcfgv1.LabelRenderedMachineConfig: "rendered-worker-1", mcfgv1.LabelRenderedImagePushSecret: "push",
	}, build.Labels)
	assert.Equal(t, []string{mcfgv1.FinalizerBuildImage, metav1.FinalizerDeleteDependents}, build.Finalizers)
	config := w.OSConfig("worker")
	assert.True(t, metav1.IsControlledBy(&build, config))

	st := build.Status
	assert.Equal(t, "True ConfigAppended", strings.Join(strings.Fields(worldtest.Text(st.Conditions, status.BuildSucceeded))[:2], " "))
	assert.Equal(t, []mcfgv1.BuildInput{mcfgv1.BuildInputFirstBuild}, st.ChangedInputs)
	assert.Equal(t, "first build of the pool", st.Why)
	assert.Equal(t, "worker-"+st.BuildKey, build.Name)
	assert.NotEmpty(t, st.ContentKey)
	assert.True(t, st.BuildEnd.After(st.BuildStart.Time))
	assert.Equal(t, "1s", st.Duration)
	assert.Nil(t, st.Architectures)

	image := string(st.DigestedImagePushSpec)
	assert.Equal(t, w.Registry.Host+"/host/os@"+w.Registry.DigestOf(t, string(build.Spec.RenderedImagePushSpec)), image)
	assert.Equal(t, st.DigestedImagePushSpec.Digest(), w.Registry.DigestOf(t, w.Registry.Host+"/host/os:worker"), "the pool's own tag")
	assert.Equal(t, "one", w.Unpacked(image, "amd64", "etc/motd"))

	assert.Equal(t, image, string(config.Status.CurrentImagePullSpec))
	assert.Equal(t, st.DigestedImagePushSpec.Short(), config.Status.ShortDigest)
	assert.Equal(t, build.Name, config.Status.MachineOSBuild.Name)
	assert.Equal(t, "rhel-10", config.Status.OSImageStream.Name)
	assert.Equal(t, build.Name, config.Annotations[mcfgv1.AnnotationCurrentMachineOSBuild])
	assert.Equal(t, config.Generation, config.Status.ObservedGeneration)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))

	images := w.Images()
	require.Len(t, images, 1)
	assert.Equal(t, image, string(images[0].Spec.PullSpec))
	assert.Equal(t, w.Base, string(images[0].Spec.BaseOSImagePullSpec))
	assert.Equal(t, "rendered-worker-1", images[0].Spec.RenderedMachineConfig)
	assert.Equal(t, "worker", images[0].Spec.MachineConfigPool)
	assert.Equal(t, st.DigestedImagePushSpec.Short(), images[0].Status.ShortDigest)
	require.Len(t, images[0].Status.Architectures, 1)
	assert.Equal(t, mcfgv1.Amd64, mcfgv1.ContainerfileArch(images[0].Status.Architectures[0].Architecture))
	assert.Equal(t, st.DigestedImagePushSpec.Digest(), images[0].Status.Architectures[0].Digest)
	assert.Positive(t, *images[0].Status.Architectures[0].Size)
	assert.Equal(t, w.Base, string(images[0].Status.PreviousImagePullSpec), "the pool had no image")
	pulls := *images[0].Status.Architectures[0].PullSize
	assert.Positive(t, pulls)
	assert.Less(t, pulls, *images[0].Status.Architectures[0].Size, "nodes that run the base image have the rest")

	pool := w.Pool("worker").GetConditions()
	assert.Equal(t, "True BuildSuccess Build succeeded for pool worker", worldtest.Text(pool, "BuildSuccess"))
	assert.Equal(t, "False BuildSuccess Build succeeded for pool worker", worldtest.Text(pool, "ImageBuildDegraded"))
	assert.Equal(t, "False BuildSuccess", worldtest.Text(pool, "Building"))

	told := w.Told()
	require.Len(t, told, 2)
	assert.Equal(t, "Normal BuildStarted The build has begun: first build of the pool", told[0])
	assert.Contains(t, told[1], "Normal BuildCompleted The image is "+image)
}

func TestLabelsOfTheImage(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder())
	build := w.Builds()[0]
	found, err := ggcr.Image(w.Registry.Parse(t, string(build.Status.DigestedImagePushSpec)))
	require.NoError(t, err)
	config, err := found.ConfigFile()
	require.NoError(t, err)
	_, digest, _ := strings.Cut(w.Base, "@")
	assert.Equal(t, map[string]string{
		"machineconfig": "rendered-worker-1", "machineconfigpool": "worker", "baseOSContainerImage": w.Base,
		"layerwright.io/build-key": build.Status.BuildKey, "layerwright.io/content-key": build.Status.ContentKey, "layerwright.io/base-digest": digest,
		"io.openshift.os.streamclass": "rhel-10", "containers.bootc": "1",
	}, config.Config.Labels)
	manifest, err := found.Manifest()
	require.NoError(t, err)
	assert.Equal(t, digest, manifest.Annotations["org.opencontainers.image.base.digest"])
	assert.Equal(t, build.Status.BuildKey, manifest.Annotations["layerwright.io/build-key"])
	assert.Equal(t, "rendered-worker-1", manifest.Annotations["layerwright.io/machineconfig"])
	assert.Equal(t, "worker", manifest.Annotations["layerwright.io/machineconfigpool"])
}

func TestSeveralArchitectures(t *testing.T) {
	t.Parallel()
	w := worldtest.New(t)
	w.Base = w.Registry.PushBase(t, "stream/os", "both", "amd64", "arm64", "riscv64")
	w.Add(w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), w.Config("worker"))
	w.Settle(w.Builder())
	build := w.Builds()[0]
	require.Len(t, build.Status.Architectures, 2)
	image := string(build.Status.DigestedImagePushSpec)
	for i, arch := range []string{"amd64", "arm64"} {
		assert.Equal(t, "one", w.Unpacked(image, arch, "etc/motd"))
		got := build.Status.Architectures[i]
		assert.Equal(t, mcfgv1.ArchitectureSucceeded, got.State)
		assert.Equal(t, arch, got.Architecture.OCI())
		found, err := ggcr.Image(w.Registry.Parse(t, image), ggcr.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		require.NoError(t, err)
		digest, err := found.Digest()
		require.NoError(t, err)
		assert.Equal(t, digest.String(), got.DigestedImagePushSpec.Digest())
	}
}

func TestAChangedFileIsAnotherImage(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	first := w.OSConfig("worker").Status.CurrentImagePullSpec
	w.Told()
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	config := w.OSConfig("worker")
	assert.NotEqual(t, first, config.Status.CurrentImagePullSpec)
	assert.Equal(t, "two", w.Unpacked(string(config.Status.CurrentImagePullSpec), "amd64", "etc/motd"))
	build := worldtest.Read(w, &mcfgv1.MachineOSBuild{}, config.Status.MachineOSBuild.Name)
	assert.Equal(t, []mcfgv1.BuildInput{mcfgv1.BuildInputMachineConfig}, build.Status.ChangedInputs)
	assert.Equal(t, "file /etc/motd changed", build.Status.Why)
	assert.Equal(t, "Normal BuildStarted The build has begun: file /etc/motd changed", w.Told()[0])
	assert.Len(t, w.Builds(), 2)

	// And back again: the image is there, and so is its build.
	w.Writes = nil
	w.Use("worker", "rendered-worker-1")
	w.Settle(b)
	assert.Equal(t, first, w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Len(t, w.Builds(), 2)
	assert.NotContains(t, fmt.Sprint(w.Writes), "create")
}

// TestABaseImageThatLayerwrightMade has the image of one pool as the base of another pool's: its
// configuration goes, and does not count.
func TestABaseImageThatLayerwrightMade(t *testing.T) {
	t.Parallel()
	w := worldtest.New(t)
	b := w.Builder()
	older := w.Rendered("older", "1", "/etc/motd", "older")
	older.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[
		{"path":"/etc/motd","contents":{"source":"data:,older"}},{"path":"/usr/bin/rpm-ostree","append":[{"source":"data:,%20older"}]}]}}`)
	w.Add(older, worldtest.NewPool("older", "rendered-older-1"), w.Config("older"))
	w.Settle(b)
	made := w.OSConfig("older").Status.CurrentImagePullSpec
	require.Equal(t, "older", w.Unpacked(string(made), "amd64", "etc/motd"))

	newer := func(pool, base string) *mcfgv1.MachineConfig {
		rendered := w.Rendered(pool, "1", "", "")
		rendered.Spec.OSImageURL = base
		rendered.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[
			{"path":"/etc/motd","overwrite":false,"contents":{"source":"data:,newer"}},{"path":"/usr/bin/rpm-ostree","append":[{"source":"data:,%20newer"}]}]}}`)
		return rendered
	}
	w.Add(newer("newer", string(made)), worldtest.NewPool("newer", "rendered-newer-1"), w.Config("newer"))
	w.Add(newer("straight", w.Base), worldtest.NewPool("straight", "rendered-straight-1"), w.Config("straight"))
	w.Settle(b)
	layers := map[string][]v1.Hash{}
	for _, pool := range []string{"newer", "straight"} {
		image := string(w.OSConfig(pool).Status.CurrentImagePullSpec)
		require.NotEmpty(t, image, "%s: %s", pool, w.Says(pool, status.Stalled))
		found, err := ggcr.Image(w.Registry.Parse(t, image))
		require.NoError(t, err)
		config, err := found.ConfigFile()
		require.NoError(t, err)
		layers[pool] = config.RootFS.DiffIDs
		assert.Equal(t, "newer", w.Unpacked(image, "amd64", "etc/motd"), "overwrite: false is about the OS image's own files")
		assert.Equal(t, "release one amd64 newer", w.Unpacked(image, "amd64", "usr/bin/rpm-ostree"), "and append too")
	}
	assert.Equal(t, layers["straight"], layers["newer"], "the same layers as over the OS image itself")
}

// TestTheWayBack wants an image again that was made before the newest one.
func TestTheWayBack(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	first := w.OSConfig("worker").Status.CurrentImagePullSpec
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	require.NotEqual(t, first.Digest(), w.Registry.DigestOf(t, w.Registry.Host+"/host/os:worker"))
	w.Use("worker", "rendered-worker-1")
	w.Settle(b)
	assert.Equal(t, first, w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, first.Digest(), w.Registry.DigestOf(t, w.Registry.Host+"/host/os:worker"), "the pool's tag is on its image")
	assert.Len(t, w.Builds(), 2)
}

// onMovedBase is a world with an image whose base, a tag, has moved since.
func onMovedBase(t *testing.T) (*worldtest.World, *worldtest.Process, mcfgv1.ImageDigestFormat) {
	t.Helper()
	w := worldtest.New(t)
	config := w.Config("worker")
	config.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(w.Registry.Host + "/stream/os:moving")
	w.Registry.PushBase(t, "stream/os", "moving")
	w.Add(w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), config)
	b := w.Builder()
	w.Settle(b)
	first := w.OSConfig("worker").Status.CurrentImagePullSpec
	w.Registry.Push(t, "stream/os:moving", worldtest.OSImage(t, "moved", "amd64"))
	return w, b, first
}

func TestABaseImageThatMoved(t *testing.T) {
	t.Parallel()
	w, b, first := onMovedBase(t)
	w.Settle(b)
	assert.Equal(t, first, w.OSConfig("worker").Status.CurrentImagePullSpec, "a tag is not asked for all the time")
	w.Clock.SetTime(w.Clock.Now().Add(wanted.Idle))
	w.Settle(b)
	now := w.OSConfig("worker").Status
	assert.NotEqual(t, first, now.CurrentImagePullSpec)
	assert.Contains(t, worldtest.Read(w, &mcfgv1.MachineOSBuild{}, now.MachineOSBuild.Name).Status.Why, "base image digest changed from sha256:")
	assert.Equal(t, []mcfgv1.BuildInput{mcfgv1.BuildInputBaseImage}, worldtest.Read(w, &mcfgv1.MachineOSBuild{}, now.MachineOSBuild.Name).Status.ChangedInputs)
}

func TestImagesAreCheckedOnDemand(t *testing.T) {
	t.Parallel()
	w, b, first := onMovedBase(t)
	ask := func() {
		w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationCheckImages, "")
		})
	}

	ask()
	w.Registry.Answer(worldtest.Failing(http.MethodHead, http.StatusBadGateway))
	_ = w.Round(b)
	assert.Contains(t, w.OSConfig("worker").Annotations, mcfgv1.AnnotationCheckImages, "a registry that does not answer is asked again")

	w.Registry.Answer(nil)
	w.Settle(b)
	assert.NotContains(t, w.OSConfig("worker").Annotations, mcfgv1.AnnotationCheckImages)
	assert.NotEqual(t, first, w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Contains(t, strings.Join(w.Told(), "\n"), "Normal ImagesChecked The registries were asked again, as the annotation requests: the base image is ")
}

// TestNamesAreNoInputs renames everything that has a name, and gets no new image.
func TestNamesAreNoInputs(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *worldtest.World){
		"a rendered MachineConfig of the same content": func(w *worldtest.World) { w.Rerender("worker", "renamed", "/etc/motd", "one") },
		"a push secret": func(w *worldtest.World) {
			w.Add(w.Secret("other", "hunter2"))
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.RenderedImagePushSecret.Name = "other" })
		},
		"a pull secret": func(w *worldtest.World) {
			w.Add(w.Secret("other", "hunter2"))
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseImagePullSecret.Name = "other" })
		},
		"no pull secret": func(w *worldtest.World) {
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseImagePullSecret = nil })
		},
		"the tag of the push spec": func(w *worldtest.World) {
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
				c.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(w.Registry.Host + "/host/os:other")
			})
		},
		"what only nodes apply": func(w *worldtest.World) {
			mc := w.Rendered("worker", "arguments", "/etc/motd", "one")
			mc.Spec.KernelArguments = []string{"quiet"}
			w.Add(mc)
			w.Use("worker", mc.Name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			b := w.Builder()
			w.Settle(b)
			before := w.OSConfig("worker").Status
			w.Registry.Forget()
			change(w)
			w.Settle(b)
			after := w.OSConfig("worker").Status
			assert.Equal(t, before.CurrentImagePullSpec, after.CurrentImagePullSpec)
			require.Len(t, w.Builds(), 1)
			assert.Equal(t, w.Pool("worker").Spec.Configuration.Name, w.Builds()[0].Labels[mcfgv1.LabelRenderedMachineConfig], "the pool's present one leads to it")
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			for _, r := range w.Registry.Forget() {
				assert.False(t, strings.HasPrefix(r, "PUT"), r)
			}
		})
	}
}

func TestSecondImageReadsNoLayerAgain(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	image := w.Registry.Parse(t, string(w.OSConfig("worker").Status.CurrentImagePullSpec))
	before := worldtest.Must(worldtest.Must(ggcr.Image(image)).Manifest())
	w.Registry.Forget()
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	asked := strings.Join(w.Registry.Forget(), "\n")
	require.Contains(t, asked, "POST /v2/host/os/blobs/uploads/", "there is a further image")
	for _, layer := range before.Layers {
		assert.NotContains(t, asked, "HEAD /v2/host/os/blobs/"+layer.Digest.String())
	}
}

func TestAnImageThatIsThereIsReused(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder())
	build := w.Builds()[0]
	image := build.Status.DigestedImagePushSpec
	// The build is lost, as in a cluster that was made anew, and the rendered MachineConfig is
	// another one of the same content.
	worldtest.Edit(w, &mcfgv1.MachineOSBuild{}, build.Name, func(b *mcfgv1.MachineOSBuild) { b.Finalizers = nil })
	w.Remove(&build)
	w.Rerender("worker", "renamed", "/etc/motd", "one")
	w.Registry.Forget()
	w.Settle(w.Builder())
	again := w.Builds()[0]
	assert.Equal(t, build.Name, again.Name)
	assert.Equal(t, "True Reused the registry had the image already", worldtest.Text(again.Status.Conditions, status.BuildSucceeded))
	assert.Equal(t, image, again.Status.DigestedImagePushSpec)
	assert.True(t, again.Status.BuildEnd.After(again.Status.BuildStart.Time))
	assert.Equal(t, image, w.OSConfig("worker").Status.CurrentImagePullSpec)
	for _, r := range w.Registry.Forget() {
		assert.False(t, strings.HasPrefix(r, "POST") && !strings.HasSuffix(r, "uploads/"), r)
	}
}

func TestAnImageThatTheInstallerHadBuilt(t *testing.T) {
	t.Parallel()
	w := worldtest.New(t)
	config := w.Config("worker")
	image := w.Registry.PushBase(t, "installer/os", "before")
	config.Annotations = map[string]string{mcfgv1.AnnotationPreBuiltImage: image}
	w.Add(w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), config)
	b := w.Builder()
	w.Settle(b)
	build := w.Builds()[0]
	assert.Equal(t, "True PreBuiltImageSeeded the installer had built the image", worldtest.Text(build.Status.Conditions, status.BuildSucceeded))
	assert.Equal(t, "true", build.Labels[mcfgv1.LabelPreBuiltImage])
	assert.Equal(t, image, string(w.OSConfig("worker").Status.CurrentImagePullSpec))
	assert.Equal(t, "True PreBuiltImageSeeded the installer had built "+image, w.Says("worker", mcfgv1.ConfigSeeded))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.NotContains(t, w.OSConfig("worker").Annotations, mcfgv1.AnnotationPreBuiltImage, "it has been followed")
	assert.False(t, w.Registry.Has(t, string(build.Spec.RenderedImagePushSpec)), "nothing is pushed")

	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	assert.NotEqual(t, image, string(w.OSConfig("worker").Status.CurrentImagePullSpec))
	assert.Equal(t, "none", w.Says("worker", mcfgv1.ConfigSeeded), "the current image is ours")

	w.Remove(w.OSConfig("worker"))
	w.Settle(b)
	assert.Empty(t, w.Builds())
	assert.True(t, w.Registry.Has(t, image), "it is not ours to delete")
}

func TestAnImageThatTheInstallerNamesWrongly(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ image, says string }{
		"no digest": {"registry.example.com/os:latest", "True Invalid annotation " + mcfgv1.AnnotationPreBuiltImage + " has to name an image by its digest"},
		"gone":      {"@sha256:" + strings.Repeat("0", 64), "True ImageNotFound annotation " + mcfgv1.AnnotationPreBuiltImage + ": "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.New(t)
			config := w.Config("worker")
			image := test.image
			if strings.HasPrefix(image, "@") {
				image = w.Registry.Host + "/installer/os" + image
			}
			config.Annotations = map[string]string{mcfgv1.AnnotationPreBuiltImage: image}
			w.Add(w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), config)
			w.Settle(w.Builder())
			assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildFailed), test.says)
			assert.Contains(t, w.Says("worker", status.Stalled), "True ")
			assert.Contains(t, w.OSConfig("worker").Annotations, mcfgv1.AnnotationPreBuiltImage)
		})
	}
}

// TestForeignImageUnderTheTagIsReplaced pushes something else under the tag of the wanted image.
func TestForeignImageUnderTheTagIsReplaced(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	require.NoError(t, w.Round(b))
	build := w.Builds()[0]
	require.NoError(t, ggcr.Write(w.Registry.Parse(t, string(build.Spec.RenderedImagePushSpec)), worldtest.OSImage(t, "evil", "amd64")))
	w.Settle(b)
	build = w.Builds()[0]
	assert.Contains(t, worldtest.Text(build.Status.Conditions, status.BuildSucceeded), "True ConfigAppended")
	assert.Equal(t, "one", w.Unpacked(string(build.Spec.RenderedImagePushSpec), "amd64", "etc/motd"))
}

func TestDeletedImageIsRebuilt(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	first := w.Builds()[0]
	require.NoError(t, ggcr.Delete(w.Registry.Parse(t, image)))
	w.Clock.SetTime(w.Clock.Now().Add(wanted.Idle))
	w.Settle(b)
	assert.True(t, w.Registry.Has(t, image), "the same inputs give the same digest")
	assert.Equal(t, image, string(w.OSConfig("worker").Status.CurrentImagePullSpec))
	build := w.Builds()[0]
	assert.NotEqual(t, first.UID, build.UID)
	assert.Equal(t, []mcfgv1.BuildInput{mcfgv1.BuildInputImageMissing}, build.Status.ChangedInputs)
	assert.Equal(t, "the registry had lost the image", build.Status.Why)
}

// TestARegistryThatHangsIsSeen has a registry take requests and not answer them, after a change.
func TestARegistryThatHangsIsSeen(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder(func(o *worldtest.Settings) { o.SlowAfter = 20 * time.Millisecond })
	w.Settle(b)
	require.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	released := make(chan struct{})
	w.Registry.Answer(func(http.ResponseWriter, *http.Request) bool {
		<-released
		return false
	})
	w.Rerender("worker", "other", "/etc/motd", "other")
	ended := make(chan error, 1)
	go func() { ended <- w.Round(b) }()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		conditions := w.OSConfig("worker").Status.Conditions
		assert.Contains(c, worldtest.Text(conditions, status.Reconciling), "a registry takes long to answer")
		assert.False(c, status.IsTrue(conditions, status.Ready))
	}, 10*time.Second, 10*time.Millisecond)
	close(released)
	require.NoError(t, <-ended)
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.Equal(t, "other", w.Unpacked(string(w.OSConfig("worker").Status.CurrentImagePullSpec), "amd64", "etc/motd"))
}

// TestAGoneImageIsNotPublished goes back to an image that was there a moment ago, and has been
// deleted since.
func TestAGoneImageIsNotPublished(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	rendered := w.Pool("worker").Spec.Configuration.Name
	image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	w.Rerender("worker", "other", "/etc/motd", "other")
	w.Settle(b)
	require.NotEqual(t, image, string(w.OSConfig("worker").Status.CurrentImagePullSpec))
	require.NoError(t, ggcr.Delete(w.Registry.Parse(t, image)))
	w.Use("worker", rendered)
	w.Settle(b)
	assert.Equal(t, image, string(w.OSConfig("worker").Status.CurrentImagePullSpec))
	assert.True(t, w.Registry.Has(t, image), "it is made again before it is said to be the current one")
}

// TestImagesMoveToAnotherRepository moves a pool's images to another repository and back, with
// a rebuild in each.
func TestImagesMoveToAnotherRepository(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	first := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	_, digest, _ := strings.Cut(first, "@")
	other := strings.Replace(first, "/host/os@", "/elsewhere/os@", 1)
	to := func(repository string) {
		t.Helper()
		w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
			c.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(w.Registry.Host + "/" + repository + ":latest")
		})
		w.Settle(b)
		assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	}
	current := func() string { return string(w.OSConfig("worker").Status.CurrentImagePullSpec) }

	to("elsewhere/os")
	require.Equal(t, other, current(), "the same image, where it is wanted")
	assert.True(t, w.Registry.Has(t, other))
	assert.Len(t, w.Images(), 2, "each has an object")
	w.Annotate("worker", mcfgv1.AnnotationRebuild)
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.Equal(t, other, current())

	to("host/os")
	require.Equal(t, first, current(), "and back")
	w.Annotate("worker", mcfgv1.AnnotationRebuild)
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))

	w.Remove(w.OSConfig("worker"))
	w.Settle(b)
	for _, image := range []string{first, other} {
		assert.False(t, w.Registry.Has(t, image), "%s goes with the MachineOSConfig", image)
	}
	assert.Empty(t, w.Images(), digest)
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	for _, key := range []string{mcfgv1.AnnotationRebuild, mcfgv1.AnnotationRebuildImage} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			b := w.Builder()
			w.Settle(b)
			first := w.Builds()[0]
			for range 2 { // a second request is followed as the first
				w.Told()
				w.Annotate("worker", key)
				w.Settle(b)
				build := w.Builds()[0]
				assert.NotEqual(t, first.UID, build.UID)
				assert.Equal(t, []mcfgv1.BuildInput{mcfgv1.BuildInputRebuildRequested}, build.Status.ChangedInputs)
				assert.Contains(t, worldtest.Text(build.Status.Conditions, status.BuildSucceeded), "ConfigAppended", "nothing is reused")
				assert.NotContains(t, w.OSConfig("worker").Annotations, key)
				assert.NotContains(t, build.Annotations, mcfgv1.AnnotationRebuild)
				assert.Contains(t, strings.Join(w.Told(), "\n"), "Normal RebuildRequested The image is built again")
				assert.True(t, w.Registry.Has(t, string(build.Status.DigestedImagePushSpec)))
				assert.Len(t, w.Images(), 1)
				first = build
			}
		})
	}
}

// TestANewerBuildTakesOver changes the configuration while an image is being made.
func TestANewerBuildTakesOver(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Registry.Answer(worldtest.Failing(http.MethodPut, http.StatusServiceUnavailable))
	for range 3 {
		_ = w.Round(b)
	}
	old := w.Builds()[0]
	assert.Equal(t, "Building", w.States()[old.Name])
	assert.Contains(t, worldtest.Text(old.Status.Conditions, status.Reconciling), "True Retrying")
	w.Registry.Answer(nil)
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	states := w.States()
	assert.Equal(t, "Interrupted", states[old.Name])
	current := w.OSConfig("worker").Status
	assert.Equal(t, "Succeeded", states[current.MachineOSBuild.Name])
	assert.Contains(t, worldtest.Text(worldtest.Read(w, &mcfgv1.MachineOSBuild{}, old.Name).Status.Conditions, status.BuildInterrupted), " supersedes it")
	assert.Equal(t, "two", w.Unpacked(w.Registry.Host+"/host/os:worker", "amd64", "etc/motd"))

	// The superseded one is wanted again.
	w.Use("worker", "rendered-worker-1")
	w.Settle(b)
	assert.Equal(t, "Succeeded", w.States()[old.Name])
	assert.Equal(t, "one", w.Unpacked(w.Registry.Host+"/host/os:worker", "amd64", "etc/motd"))
}

func TestRetention(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Retention = &mcfgv1.Retention{SuccessfulBuilds: ptr.To[int32](1)}
	})
	b := w.Builder()
	w.Settle(b)
	onNode := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	w.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{mcfgv1.AnnotationCurrentImage: onNode}}})
	var second string
	for i := range 3 {
		w.Rerender("worker", fmt.Sprint(i+2), "/etc/motd", fmt.Sprint("content", i))
		w.Settle(b)
		if i == 0 {
			second = string(w.OSConfig("worker").Status.CurrentImagePullSpec)
		}
	}
	newest := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	var kept []string
	for _, build := range w.Builds() {
		kept = append(kept, string(build.Status.DigestedImagePushSpec))
	}
	assert.ElementsMatch(t, []string{onNode, newest}, kept)
	assert.True(t, w.Registry.Has(t, onNode))
	assert.True(t, w.Registry.Has(t, newest))
	assert.False(t, w.Registry.Has(t, second), "what no one uses goes from the registry too")
	assert.Len(t, w.Images(), 2)
	assert.Contains(t, strings.Join(w.Told(), "\n"), "BuildDeleted")
}

func TestDeletingTakesEverythingAlong(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker", "infra")
	b := w.Builder()
	w.Settle(b)
	image, other := string(w.OSConfig("worker").Status.CurrentImagePullSpec), string(w.OSConfig("infra").Status.CurrentImagePullSpec)
	w.Remove(w.OSConfig("worker"))
	w.Settle(b)
	_, err := w.ReconcileConfig(b, "worker")
	require.NoError(t, err)
	assert.Len(t, w.Builds(), 1)
	assert.Len(t, w.Images(), 1)
	assert.False(t, w.Registry.Has(t, image))
	assert.True(t, w.Registry.Has(t, other))
	conditions := w.Pool("worker").GetConditions()
	assert.Equal(t, "False NoLayeredObjects", worldtest.Text(conditions, "ImageBuildDegraded"))
	assert.Equal(t, "none", worldtest.Text(conditions, "BuildSuccess"))
	assert.Equal(t, "True BuildSuccess Build succeeded for pool infra", worldtest.Text(w.Pool("infra").GetConditions(), "BuildSuccess"))
}

func TestImagesInUseAreKept(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(w *worldtest.World, image string){
		"a node has it": func(w *worldtest.World, image string) {
			w.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{mcfgv1.AnnotationCurrentImage: image}}})
		},
		"a node should have it": func(w *worldtest.World, image string) {
			w.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{mcfgv1.AnnotationDesiredImage: image}}})
		},
		"a node says so elsewhere": func(w *worldtest.World, image string) {
			n := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			n.Spec.ConfigImage.DesiredImage = mcfgv1.ImageDigestFormat(image)
			w.Add(n)
		},
		"a pool names it": func(w *worldtest.World, _ string) {
			worldtest.Edit(w, &mcfgv1.MachineConfigPool{}, "worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.MachineOSImage = w.Images()[0].Name })
		},
		"the administrator wants to keep images": func(w *worldtest.World, _ string) {
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Retention = &mcfgv1.Retention{ImageDeletion: mcfgv1.Disabled} })
			w.Remove(&w.Builds()[0])
			_ = w.Round(w.Builder())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			b := w.Builder()
			w.Settle(b)
			image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
			use(w, image)
			build := w.Builds()
			if len(build) > 0 {
				w.Remove(&build[0])
			}
			w.Settle(b)
			assert.True(t, w.Registry.Has(t, image))
		})
	}
}

// TestImagesThatPoolsNoLongerHave go, also where builds are removed before the controller of pools
// has said so, and where the cache does not know that the MachineOSConfig is gone.
func TestImagesThatPoolsNoLongerHave(t *testing.T) {
	t.Parallel()
	const many = 8
	name := func(i int) string { return fmt.Sprintf("pool-%d", i) }
	w := worldtest.New(t)
	for i := range many {
		config := w.Config(name(i))
		config.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(fmt.Sprintf("%s/host/%s:latest", w.Registry.Host, name(i)))
		w.Add(w.Rendered(name(i), "1", "/etc/motd", name(i)), worldtest.NewPool(name(i), "rendered-"+name(i)+"-1"), config)
	}
	b := w.Builder(func(o *worldtest.Settings) { o.MaxConcurrentBuilds = many })
	w.Settle(b)
	require.Len(t, w.Builds(), many)
	says := func(pool string, image mcfgv1.ImageDigestFormat) {
		w.Quietly(func() error {
			p := w.Pool(pool)
			p.Status.OSImagePullSpec = image
			return w.Status().Update(t.Context(), p)
		})
	}
	images := map[string]string{}
	for i := range many {
		image := w.OSConfig(name(i)).Status.CurrentImagePullSpec
		images[name(i)] = string(image)
		says(name(i), image)
	}
	for i := range many {
		w.Remove(w.OSConfig(name(i)))
	}
	require.NoError(t, w.Round(b))
	require.Len(t, w.Builds(), many)
	assert.Contains(t, w.Builds()[0].Status.Removal, "the status of a MachineConfigPool still names the image")
	for i := range many - 1 {
		says(name(i), "")
	}
	require.NoError(t, w.Round(b))
	require.Len(t, w.Builds(), 1)
	left := 0
	for _, image := range images {
		if w.Registry.Has(t, image) {
			left++
		}
	}
	assert.Equal(t, 1, left)
	w.Told()
	w.Clock.SetTime(w.Builds()[0].DeletionTimestamp.Add(5 * time.Minute))
	require.NoError(t, w.Round(b))
	assert.Empty(t, w.Builds())
	assert.True(t, w.Registry.Has(t, images[name(many-1)]), "what a pool insists on")
	assert.Contains(t, strings.Join(w.Told(), "\n"), "Normal ImageKept")
}

// TestARegistryThatCannotDelete does not keep a build in the cluster for ever.
func TestARegistryThatCannotDelete(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status  int
		isTried bool
		want    string
	}{
		"it fails":   {http.StatusServiceUnavailable, true, "503 Service Unavailable"},
		"it refuses": {http.StatusForbidden, false, "403 Forbidden"},
		"it can't":   {http.StatusMethodNotAllowed, false, "405 Method Not Allowed"},
		"it is gone": {http.StatusNotFound, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			counts := metrics.NewBuilds()
			counted := func(o *worldtest.Settings) { o.Metrics = counts }
			b := w.Builder()
			w.Settle(b)
			w.Told()
			w.Registry.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodDelete || !strings.Contains(r.URL.Path, "/manifests/") {
					return false
				}
				rw.WriteHeader(tt.status)
				return true
			})
			w.Remove(w.OSConfig("worker"))
			build := w.Builds()[0]
			if tt.isTried {
				for range 20 { // more often than a registry that restarts fails
					result, err := w.ReconcileBuild(w.Builder(), build.Name) // a new process each time: nothing is counted in memory
					require.NoError(t, err)
					assert.Equal(t, 10*time.Second, result.RequeueAfter)
				}
				assert.Regexp(t, `^its image is being removed from the registry; tried again until \d\d:\d\d:\d\d UTC: .*503`, w.Builds()[0].Status.Removal)
				told := strings.Join(w.Told(), "\n")
				assert.Equal(t, 1, strings.Count(told, "ImageRemovalFails"), told)
				w.Clock.SetTime(w.Builds()[0].DeletionTimestamp.Add(5 * time.Minute))
			}
			_, err := w.ReconcileBuild(w.Builder(counted), build.Name)
			require.NoError(t, err)
			require.Empty(t, w.Builds())
			told := strings.Join(w.Told(), "\n")
			assert.Equal(t, map[string]bool{"deleted": tt.want == "", "failed": tt.want != ""}, deletions(t, counts))
			if tt.want == "" {
				assert.NotContains(t, told, "ImageNotDeleted")
				return
			}
			assert.Contains(t, told, "Warning ImageNotDeleted The image "+w.Registry.Host+"/host/os@sha256:")
			assert.Contains(t, told, tt.want)
		})
	}
}

// deletions are the results that deletions of images have been counted with.
func deletions(t *testing.T, counts *metrics.Builds) map[string]bool {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(counts))
	families, err := registry.Gather()
	require.NoError(t, err)
	results := map[string]bool{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "layerwright_image_deletions_total" {
				results[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue() > 0
			}
		}
	}
	return results
}

// TestABuildSaysThatItIsBeingRemoved while its registry hangs: its conditions are those of its end,
// and can't.
func TestABuildSaysThatItIsBeingRemoved(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	released := make(chan struct{})
	w.Registry.Answer(func(http.ResponseWriter, *http.Request) bool {
		<-released
		return false
	})
	w.Remove(w.OSConfig("worker"))
	ended := make(chan error, 1)
	go func() { ended <- w.Round(b) }()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, "its image is being removed from the registry", w.Builds()[0].Status.Removal)
	}, 10*time.Second, 10*time.Millisecond)
	close(released)
	require.NoError(t, <-ended)
	assert.Empty(t, w.Builds())
	assert.False(t, w.Registry.Has(t, image))
}

func TestADeletedBuildWithoutItsSecretGoes(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	w.Remove(w.Secret("push", ""))
	w.Remove(w.OSConfig("worker"))
	_, err := w.ReconcileBuild(b, w.Builds()[0].Name)
	require.NoError(t, err)
	assert.Empty(t, w.Builds(), "nothing that is tried again brings it back")
	assert.Contains(t, strings.Join(w.Told(), "\n"), `Warning ImageNotDeleted`)
}

// TestStatusOfFaults are the faults that a person has to be told of, each in exactly one way.
func TestStatusOfFaults(t *testing.T) {
	t.Parallel()
	denyPushes := func(w *worldtest.World) {
		w.Registry.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost {
				return false
			}
			rw.WriteHeader(http.StatusForbidden)
			return true
		})
	}
	tests := map[string]struct {
		wrong func(w *worldtest.World)
		// ready and companion are what Ready, and Stalled or Reconciling, say.
		ready, companion string
		message          []string
		retried          bool
		pool             string
		cure             func(w *worldtest.World)
	}{
		"no push secret": {
			wrong: func(w *worldtest.World) { w.Remove(w.Secret("push", "")) },
			ready: "Unknown WaitingForSecret", companion: status.Reconciling,
			message: []string{`spec.renderedImagePushSecret: the secret "push" does not exist in namespace "layerwright"; create it with`},
			pool:    "BuildPending", cure: func(w *worldtest.World) { w.Add(w.Secret("push", "hunter2")) },
		},
		"neither secret": {
			wrong: func(w *worldtest.World) { w.Remove(w.Secret("push", "")); w.Remove(w.Secret("pull", "")) },
			ready: "Unknown WaitingForSecret", companion: status.Reconciling,
			message: []string{`spec.renderedImagePushSecret: the secret "push"`, `spec.baseImagePullSecret: the secret "pull"`},
			pool:    "BuildPending", cure: func(w *worldtest.World) { w.Add(w.Secret("push", "hunter2"), w.Secret("pull", "hunter2")) },
		},
		"a secret of another type": {
			wrong: func(w *worldtest.World) {
				worldtest.Edit(w, &corev1.Secret{}, "push", func(s *corev1.Secret) { s.Type, s.Data = corev1.SecretTypeOpaque, map[string][]byte{"a": nil} })
			},
			ready: "Unknown WaitingForSecret", companion: status.Reconciling,
			message: []string{`spec.renderedImagePushSecret: reading registry secret "layerwright/push"`, "kubectl create secret docker-registry"},
			pool:    "BuildPending", cure: func(w *worldtest.World) { w.Remove(w.Secret("push", "")); w.Add(w.Secret("push", "hunter2")) },
		},
		"a wrong repository": {
			wrong: denyPushes, ready: "False PushDenied", companion: status.Stalled,
			message: []string{"spec.renderedImagePushSpec: checking access to repository", "the registry denies write access (403 Forbidden)"},
			pool:    "BuildFailed", cure: func(w *worldtest.World) { w.Registry.Answer(nil) },
		},
		"no base image": {
			wrong: func(w *worldtest.World) {
				w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
					c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(w.Registry.Host + "/stream/os:none")
				})
			},
			ready: "False ImageNotFound", companion: status.Stalled,
			message: []string{"spec.baseOSImagePullSpec: resolving image", "it does not exist", "check the name"},
			pool:    "BuildFailed", cure: func(w *worldtest.World) {
				w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseOSImagePullSpec = "" })
			},
		},
		"no base image, and a repository that may not be written to": {
			wrong: func(w *worldtest.World) {
				denyPushes(w)
				w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
					c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(w.Registry.Host + "/stream/os:none")
				})
			},
			ready: "False ImageNotFound", companion: status.Stalled,
			message: []string{"spec.baseOSImagePullSpec: resolving image", "spec.renderedImagePushSpec: checking access"},
			pool:    "BuildFailed",
		},
		"a base image that can't be booted": {
			wrong: func(w *worldtest.World) {
				image := worldtest.OSImage(w.T, "plain", "amd64")
				config, err := image.ConfigFile()
				require.NoError(w.T, err)
				config.Config.Labels = nil
				require.NoError(w.T, ggcr.Write(w.Registry.Parse(w.T, w.Registry.Host+"/stream/os:plain"), worldtest.Must(mutate.ConfigFile(image, config))))
				w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
					c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(w.Registry.Host + "/stream/os:plain")
				})
			},
			ready: "False UnsuitableBaseImage", companion: status.Stalled,
			message: []string{"spec.baseOSImagePullSpec: using image", "it is no bootable OS image", `"containers.bootc"`}, pool: "BuildFailed",
		},
		"an unreachable registry": {
			wrong: func(w *worldtest.World) {
				w.Registry.Answer(func(rw http.ResponseWriter, _ *http.Request) bool { rw.WriteHeader(http.StatusBadGateway); return true })
			},
			ready: "Unknown Retrying", companion: status.Reconciling, retried: true,
			message: []string{`MachineConfig "rendered-worker-1": spec.osImageURL: resolving image`, "502 Bad Gateway"},
			pool:    "BuildPending", cure: func(w *worldtest.World) { w.Registry.Answer(nil) },
		},
		"a registry to push to that can't be reached": {
			wrong: func(w *worldtest.World) {
				w.Registry.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
					if !strings.HasPrefix(r.URL.Path, "/v2/host/") {
						return false
					}
					rw.WriteHeader(http.StatusBadGateway)
					return true
				})
			},
			ready: "Unknown Retrying", companion: status.Reconciling, retried: true,
			message: []string{"spec.renderedImagePushSpec: resolving image", "502 Bad Gateway"},
			pool:    "BuildPending", cure: func(w *worldtest.World) { w.Registry.Answer(nil) },
		},
		"a Containerfile with a syntax error": {
			wrong: func(w *worldtest.World) { w.Containerfile("FROM os-base-image\nRUNN dnf install vim\n") },
			ready: "False InvalidContainerfile", companion: status.Stalled,
			message: []string{"spec.containerFile[NoArch]", "line 2"}, pool: "BuildFailed", cure: func(w *worldtest.World) { w.Containerfile("") },
		},
		"a Containerfile whose last stage stands for nothing": {
			wrong: func(w *worldtest.World) {
				w.Containerfile("FROM os-base-image\nRUN true\nFROM nothing.invalid/os:1\n")
			},
			ready: "False InvalidContainerfile", companion: status.Stalled,
			message: []string{"spec.containerFile[NoArch]", "line 3"}, pool: "BuildFailed", cure: func(w *worldtest.World) { w.Containerfile("") },
		},
		"a Containerfile with an image that does not exist": {
			wrong: func(w *worldtest.World) {
				w.Containerfile("FROM " + w.Registry.Host + "/tools/none:1 AS tools\nFROM os-base-image\nCOPY --from=tools /a /usr/bin/a\n")
			},
			ready: "False ImageNotFound", companion: status.Stalled,
			message: []string{"spec.containerFile[NoArch]", "line 1: resolving image", "/tools/none:1"}, pool: "BuildFailed",
		},
		"a Containerfile in a ConfigMap that is missing": {
			wrong: func(w *worldtest.World) {
				w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
					c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ConfigMapRef: &mcfgv1.ConfigMapKeyReference{Name: "files"}}}
				})
			},
			ready: "Unknown WaitingForConfigMap", companion: status.Reconciling, message: []string{"spec.containerFile[NoArch]", `"files"`}, pool: "BuildPending",
			cure: func(w *worldtest.World) {
				w.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: worldtest.Namespace, Name: "files"}, Data: map[string]string{"Containerfile": "# later\n"}})
			},
		},
		"content without a builder": {
			wrong: func(w *worldtest.World) { w.Containerfile("FROM os-base-image\nRUN true\n") },
			ready: "False BuilderNotAvailable", companion: status.Stalled,
			message: []string{"the image needs a build", "imageBuilderType to Job", "images with configuration alone need no builder"}, pool: "BuildFailed",
			cure: func(w *worldtest.World) { w.Containerfile("# nothing\n") },
		},
		"no pool": {
			wrong: func(w *worldtest.World) { w.Remove(w.Pool("worker")) },
			ready: "Unknown WaitingForPool", companion: status.Reconciling, message: []string{"the pool does not exist"},
			cure: func(w *worldtest.World) { w.Add(worldtest.NewPool("worker", "rendered-worker-1")) },
		},
		"a pool that was never rendered": {
			wrong: func(w *worldtest.World) { w.Use("worker", "") },
			ready: "Unknown WaitingForPool", companion: status.Reconciling, message: []string{"the pool has no rendered MachineConfig yet"}, pool: "BuildPending",
			cure: func(w *worldtest.World) { w.Use("worker", "rendered-worker-1") },
		},
		"a rendered MachineConfig that is not there yet": {
			wrong: func(w *worldtest.World) { w.Use("worker", "rendered-worker-9") },
			ready: "Unknown WaitingForPool", companion: status.Reconciling, message: []string{`the rendered MachineConfig "rendered-worker-9" is not there`}, pool: "BuildPending",
			cure: func(w *worldtest.World) { w.Use("worker", "rendered-worker-1") },
		},
		"a configuration that the base image can't have": {
			wrong: func(w *worldtest.World) { w.Rerender("worker", "2", "/usr/bin", "x") },
			ready: "False InvalidMachineConfig", companion: status.Stalled, message: []string{`file /usr/bin`}, pool: "BuildFailed",
			cure: func(w *worldtest.World) { w.Use("worker", "rendered-worker-1") },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			tt.wrong(w)
			b := w.Builder()
			for range 3 {
				err := w.Round(b)
				assert.Equal(t, tt.retried, err != nil, "%v", err)
			}
			ready := w.Says("worker", status.Ready)
			assert.True(t, strings.HasPrefix(ready, tt.ready+" "), ready)
			if strings.HasSuffix(tt.ready, mcfgv1.ReasonWaitingForSecret) {
				result, err := w.ReconcileConfig(b, "worker")
				require.NoError(t, err)
				assert.Equal(t, 15*time.Second, result.RequeueAfter, "nothing tells of secrets, neither of missing nor of bad ones")
			}
			assert.True(t, strings.HasPrefix(w.Says("worker", tt.companion), "True "), ready)
			for _, part := range tt.message {
				assert.Contains(t, ready, part)
			}
			assert.NotContains(t, ready, "hunter2")
			assert.Empty(t, w.Builds(), "nothing is begun")
			if tt.pool != "" {
				assert.True(t, strings.HasPrefix(worldtest.Text(w.Pool("worker").GetConditions(), tt.pool), "True"), "%v", w.Pool("worker").Status.Conditions)
				degraded := worldtest.Text(w.Pool("worker").GetConditions(), "ImageBuildDegraded")
				assert.Equal(t, tt.pool == "BuildFailed", strings.HasPrefix(degraded, "True BuildFailed Failed to build OS image for pool worker: "), degraded)
			}
			written := len(w.Writes)
			_ = w.Round(b)
			assert.Len(t, w.Writes, written, "it is said once")
			stalls, waits := 0, 0
			for _, e := range w.Told() {
				if strings.Contains(e, "ConfigReconcileFailed") {
					stalls++
				}
				if strings.HasPrefix(e, "Normal "+strings.Fields(tt.ready)[1]+" ") {
					waits++
				}
			}
			assert.Equal(t, tt.companion == status.Stalled, stalls == 1, "%d", stalls)
			assert.Equal(t, tt.companion == status.Reconciling, waits == 1, "%d events of what is waited for", waits)
			if tt.cure == nil {
				return
			}
			tt.cure(w)
			w.Clock.SetTime(w.Clock.Now().Add(time.Minute))
			w.Settle(b)
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			assert.Equal(t, "none", w.Says("worker", status.Stalled))
		})
	}
}

// TestAPushThatIsDeniedMidway is found by the build, which preflight let pass.
func TestAPushThatIsDeniedMidway(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Registry.Answer(worldtest.Failing(http.MethodPut, http.StatusForbidden))
	w.Settle(b)
	build := w.Builds()[0]
	assert.Equal(t, "Failed", w.States()[build.Name])
	assert.Contains(t, worldtest.Text(build.Status.Conditions, status.BuildFailed), "True PushDenied pushing image")
	assert.Contains(t, w.Says("worker", status.Stalled), `True PushDenied build "`+build.Name+`" failed: pushing image`)
	assert.Contains(t, worldtest.Text(w.Pool("worker").GetConditions(), "ImageBuildDegraded"), "True BuildFailed Failed to build OS image for pool worker (MachineOSBuild: "+build.Name+"): PushDenied: ")
	assert.Contains(t, strings.Join(w.Told(), "\n"), "Warning BuildFailed PushDenied: ")

	w.Clock.SetTime(w.Clock.Now().Add(time.Minute))
	w.Settle(b)
	assert.Equal(t, build.UID, w.Builds()[0].UID, "the same credentials are not tried again at once")
	result, err := w.ReconcileConfig(b, "worker")
	require.NoError(t, err)
	assert.Equal(t, 15*time.Second, result.RequeueAfter, "but nothing tells of others, so they are looked for")

	w.Registry.Forget()
	w.Clock.SetTime(w.Clock.Now().Add(15 * time.Second))
	_, err = w.ReconcileConfig(b, "worker")
	require.NoError(t, err)
	assert.Empty(t, w.Registry.Forget(), "that asks no registry")

	w.Registry.Answer(nil)
	w.Remove(w.Secret("push", ""))
	w.Add(w.Secret("push", "better"))
	w.Clock.SetTime(w.Clock.Now().Add(15 * time.Second))
	w.Settle(b)
	assert.NotEqual(t, build.UID, w.Builds()[0].UID)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.Contains(t, strings.Join(w.Told(), "\n"), "Normal ConfigReconciled The problem is solved")
}

func TestABaseImageThatIsDeletedMidway(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	require.NoError(t, w.Round(w.Builder()))
	require.NoError(t, ggcr.Delete(w.Registry.Parse(t, w.Base)))
	w.Settle(w.Builder())
	build := w.Builds()[0]
	assert.Contains(t, worldtest.Text(build.Status.Conditions, status.BuildFailed), "True ImageNotFound ")
	assert.True(t, strings.HasPrefix(w.Says("worker", status.Stalled), "True ImageNotFound "))
}

// TestAWorkingImageStaysReady while its registry can't be reached.
func TestAWorkingImageStaysReady(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	w.Registry.Answer(func(rw http.ResponseWriter, _ *http.Request) bool { rw.WriteHeader(http.StatusBadGateway); return true })
	w.Clock.SetTime(w.Clock.Now().Add(2 * wanted.Idle))
	require.Error(t, w.Round(b))
	assert.True(t, strings.HasPrefix(w.Says("worker", status.Ready), "True Retrying"), w.Says("worker", status.Ready))
	w.Registry.Answer(nil)
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

func TestIdleControllerSendsNoRequests(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker", "infra")
	b := w.Builder()
	w.Settle(b)
	w.Registry.Forget()
	w.Writes = nil
	for range 5 {
		require.NoError(t, w.Round(b))
	}
	assert.Empty(t, w.Registry.Forget())
	assert.Empty(t, w.Writes)
	result, err := w.ReconcileConfig(b, "worker")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, result.RequeueAfter, wanted.Idle)
}

// TestCrashesAnywhere ends the process before and after every single write, and begins anew.
func TestCrashesAnywhere(t *testing.T) {
	t.Parallel()
	stories := map[string]func(w *worldtest.World, process func() *worldtest.Process){
		"the first image": func(w *worldtest.World, process func() *worldtest.Process) { w.Struggle(process) },
		"another file": func(w *worldtest.World, process func() *worldtest.Process) {
			w.Struggle(process)
			w.Rerender("worker", "2", "/etc/motd", "two")
			w.Struggle(process)
		},
		"a change midway": func(w *worldtest.World, process func() *worldtest.Process) {
			_ = w.Round(process())
			w.Rerender("worker", "2", "/etc/motd", "two")
			w.Struggle(process)
		},
		"a rebuild": func(w *worldtest.World, process func() *worldtest.Process) {
			w.Struggle(process)
			w.Annotate("worker", mcfgv1.AnnotationRebuild)
			w.Struggle(process)
		},
		"deletion": func(w *worldtest.World, process func() *worldtest.Process) {
			w.Struggle(process)
			w.Remove(w.OSConfig("worker"))
			w.Struggle(process)
		},
		"a verified image, and one that fails": func(w *worldtest.World, process func() *worldtest.Process) {
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
				c.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.JobBuilder, Job: &mcfgv1.ConfigMapKeyReference{Name: "test"}}
			})
			w.Struggle(process)
			w.Judge()
			w.Struggle(process)
			w.RequireTag(w.Newest(), "it was verified")
			w.Rerender("worker", "2", "/etc/motd", "two")
			w.Struggle(process)
			w.Verdict(w.Newest(), metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationFailed, "no")
			w.Struggle(process)
		},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(t *testing.T, fail func(w *worldtest.World)) (writes []string, end string) {
				t.Helper()
				w := worldtest.Layered(t, "worker")
				if fail != nil {
					fail(w)
				}
				story(w, func() *worldtest.Process { return w.Builder() })
				return w.Writes, ending(w, name != "a change midway") // there the old build may end before the change
			}
			worldtest.DyingEverywhere(t, run)
		})
	}
}

// ending is the state that everything ends in, without what differs from run to run.
func ending(w *worldtest.World, withHistory bool) string {
	var lines []string
	succeeded := 0
	for _, b := range w.Builds() {
		require.True(w.T, status.BuildStageOf(b.Status.Conditions).IsFinal())
		if status.IsTrue(b.Status.Conditions, status.BuildSucceeded) {
			succeeded++
		}
		if status.IsTrue(b.Status.Conditions, status.BuildInterrupted) {
			continue // whether it had begun is a matter of luck
		}
		lines = append(lines, fmt.Sprintf("build %s %s %s", b.Name[:8], worldtest.Text(b.Status.Conditions, status.Ready)[:12], b.Status.Why))
	}
	for _, i := range w.Images() {
		lines = append(lines, "image of "+i.Spec.RenderedMachineConfig)
	}
	var configs mcfgv1.MachineOSConfigList
	require.NoError(w.T, w.List(w.T.Context(), &configs))
	for _, c := range configs.Items {
		current := string(c.Status.CurrentImagePullSpec)
		lines = append(lines, fmt.Sprintf("config %s, content %s, rebuild %v", worldtest.Text(c.Status.Conditions, status.Ready), w.Unpacked(current, "amd64", "etc/motd"), objects.WantsRebuild(&c)),
			"tag "+w.Unpacked(w.Registry.Host+"/host/os:worker", "amd64", "etc/motd"))
	}
	repository := w.Registry.Parse(w.T, w.Registry.Host+"/host/os").Context()
	tags, _ := ggcr.List(repository)
	if succeeded > 0 {
		require.Len(w.T, tags, succeeded+1, "one for each build, and the pool's")
	}
	require.Len(w.T, w.Images(), succeeded)
	if !withHistory {
		lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "config") && !strings.HasPrefix(line, "tag") })
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestQueueIsShown(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "a", "b", "c")
	b := w.Builder(func(o *worldtest.Settings) { o.MaxConcurrentBuilds = 1 })
	for _, pool := range []string{"a", "b", "c"} {
		_, err := w.ReconcileConfig(b, pool)
		require.NoError(t, err)
	}
	_, end, ok := b.Parts().Runs.Begin(t.Context(), "other", "other-1")
	require.True(t, ok)
	defer end()
	result, err := w.ReconcileConfig(b, "c")
	require.NoError(t, err)
	assert.Equal(t, runs.Queued, result.RequeueAfter)
	assert.Contains(t, w.Says("c", status.Ready), "it waits for a slot: 1 build running and 2 before it; at most 1 run at a time")
}

func TestABuildWaitsForTheOneBefore(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	require.NoError(t, w.Round(b))
	ctx, end, ok := b.Parts().Runs.Begin(t.Context(), "worker", "worker-before")
	require.True(t, ok)
	result, err := w.ReconcileBuild(b, w.Builds()[0].Name)
	require.NoError(t, err)
	assert.Equal(t, 200*time.Millisecond, result.RequeueAfter)
	assert.False(t, b.Parts().Runs.Stop("worker", "worker-other"))
	require.NoError(t, ctx.Err())
	assert.True(t, b.Parts().Runs.Stop("worker", "worker-before"))
	require.Error(t, ctx.Err())
	end()
	assert.False(t, b.Parts().Runs.Stop("worker", "worker-before"))
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

func TestAForeignBuildIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	config := w.OSConfig("worker")
	w.Add(&mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-foreign", OwnerReferences: []metav1.OwnerReference{{APIVersion: "machineconfiguration.openshift.io/v1", Kind: "MachineOSConfig", Name: "worker", UID: config.UID}}},
		Spec:       mcfgv1.MachineOSBuildSpec{MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "worker"}, RenderedImagePushSpec: "r.example.com/a:b"},
	})
	b := w.Builder()
	_, err := w.ReconcileBuild(b, "worker-foreign")
	require.NoError(t, err)
	assert.Contains(t, worldtest.Text(worldtest.Read(w, &mcfgv1.MachineOSBuild{}, "worker-foreign").Status.Conditions, status.Reconciling), "True Waiting this build was not requested by Layerwright")
	w.Settle(b)
	assert.Equal(t, "Interrupted", w.States()["worker-foreign"])
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	w.Remove(worldtest.Read(w, &mcfgv1.MachineOSBuild{}, "worker-foreign"))
	w.Settle(b)
}

func TestABuildOfAConfigThatIsGone(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	_, err := w.ReconcileConfig(b, "worker")
	require.NoError(t, err)
	build := w.Builds()[0]
	w.Quietly(func() error { // deleted with --cascade=orphan
		config := w.OSConfig("worker")
		config.UID = "another"
		return w.Update(w.T.Context(), config)
	})
	_, err = w.ReconcileBuild(b, build.Name)
	require.NoError(t, err)
	assert.Contains(t, worldtest.Text(worldtest.Read(w, &mcfgv1.MachineOSBuild{}, build.Name).Status.Conditions, status.BuildInterrupted), "True MachineOSConfigDeleted")
}

var _ client.Client = (*worldtest.World)(nil)
