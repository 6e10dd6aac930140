//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgclient "github.com/layerwright/layerwright/client/clientset/typed/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cosign"
	"github.com/layerwright/layerwright/test/fixtures"
)

// told is what a run of the demo says: its images, and what /etc/motd is in each.
type told struct {
	output        string
	images, motds []string
}

var (
	imageLine = regexp.MustCompile(`(?m)^  Your image is (\S+/os/worker@sha256:[0-9a-f]{64})$`)
	motdLine  = regexp.MustCompile(`(?m)^  /etc/motd   (Welcome .*)$`)
	movedLine = regexp.MustCompile(`(?m)^  moved       [\d.]+ kB sent and [\d.]+ kB received in \S+; the base image has [\d.]+ MB$`)
	timeLine  = regexp.MustCompile(`(?m)^  time        [\d.]+ m?s from the edit to the digest in status$`)
)

// Images that a run of the demo shows: a first one and one with a changed file, and the same with
// content where a pod can build that.
const (
	ofConfiguration = 2
	ofContent       = 4
)

func read(t *testing.T, r result, images int) told {
	t.Helper()
	require.Zero(t, r.code, "%s%s", r.stdout, r.stderr)
	require.Empty(t, r.stderr)
	require.NotContains(t, r.stdout, "\033", "what is no terminal gets no control characters")
	out := told{output: r.stdout}
	for _, found := range imageLine.FindAllStringSubmatch(r.stdout, -1) {
		out.images = append(out.images, found[1])
	}
	for _, found := range motdLine.FindAllStringSubmatch(r.stdout, -1) {
		out.motds = append(out.motds, found[1])
	}
	require.Len(t, out.images, images, r.stdout)
	require.Len(t, out.motds, images, r.stdout)
	return out
}

// demoWorld is the cluster that a demo runs on.
type demoWorld struct {
	stack   *stack.Stack
	objects mcfgclient.MachineconfigurationV1Interface
	options []remote.Option
}

func newDemoWorld(t *testing.T, s *stack.Stack) *demoWorld {
	t.Helper()
	config, err := s.Config()
	require.NoError(t, err)
	objects, err := mcfgclient.NewForConfig(config)
	require.NoError(t, err)
	registry, err := s.Registry(t.Context())
	require.NoError(t, err)
	return &demoWorld{stack: s, objects: objects, options: registry.Options(t.Context(), "pull")}
}

// requireTold compares what was said with what there is.
func (w *demoWorld) requireTold(t *testing.T, said told, base string) {
	t.Helper()
	for i, motd := range []string{
		`^Welcome to a worker\.$`, `^Welcome to a worker, changed at \d\d:\d\d:\d\d\.$`,
		`^Welcome to a worker, changed at \d\d:\d\d:\d\d\.$`, `^Welcome to a worker that says hello, changed at \d\d:\d\d:\d\d\.$`,
	}[:len(said.motds)] {
		require.Regexp(t, motd, said.motds[i])
		require.NotContains(t, said.images[:i], said.images[i])
	}
	last := said.images[len(said.images)-1]
	for i, image := range said.images {
		assert.Equal(t, said.motds[i]+"\n", w.onTop(t, image, base, "etc/motd"), "what is in the image is what was shown")
		if i >= ofConfiguration {
			assert.NotEmpty(t, w.onTop(t, image, base, "usr/bin/hello"))
		}
	}
	config, err := w.objects.MachineOSConfigs().Get(t.Context(), "worker", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, last, string(config.Status.CurrentImagePullSpec))
	build, err := w.objects.MachineOSBuilds().Get(t.Context(), config.Status.MachineOSBuild.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "file /etc/motd changed", build.Status.Why)
	assert.Equal(t, last, string(build.Status.DigestedImagePushSpec))

	tags := w.tags(t, last)
	assert.Equal(t, last, tags["worker"])
	assert.Equal(t, last, tags["worker-"+build.Status.BuildKey])
	for tag, image := range tags {
		if attachmentTag.MatchString(tag) {
			continue
		}
		_, digest, _ := strings.Cut(image, "@")
		assert.Regexp(t, `(?m)^ +`+tag+` +`+digest[:19]+`$`, said.output)
	}
	if len(said.images) == ofContent {
		w.requireContentTold(t, said)
	}
	w.requireSignatureTold(t, said)
	assert.Contains(t, said.output, "\n  why         file /etc/motd changed\n")
	assert.Regexp(t, movedLine, said.output)
	assert.Regexp(t, timeLine, said.output)
	assert.Contains(t, said.output, "/etc/systemd/system/multi-user.target.wants/hello.service -> /etc/systemd/system/hello.service\n")
	for _, next := range []string{
		"kubectl get machineconfigpool,", "kubectl describe machineosconfig worker", "kubectl annotate machineosconfig worker ",
		"bin/layerwright render ", " down\n",
	} {
		assert.Contains(t, said.output, next)
	}
}

// tags are those of an image's repository, each with the image that it stands for.
func (w *demoWorld) tags(t *testing.T, image string) map[string]string {
	t.Helper()
	ref, err := name.NewDigest(image)
	require.NoError(t, err)
	names, err := remote.List(ref.Repository, w.options...)
	require.NoError(t, err)
	tags := map[string]string{}
	for _, n := range names {
		found, err := remote.Head(ref.Tag(n), w.options...)
		require.NoError(t, err)
		tags[n] = ref.Repository.Name() + "@" + found.Digest.String()
	}
	return tags
}

func (w *demoWorld) read(t *testing.T, image string) v1.Image {
	t.Helper()
	ref, err := name.ParseReference(image)
	require.NoError(t, err)
	found, err := remote.Image(ref, w.options...)
	require.NoError(t, err)
	return found
}

// requireSignatureTold compares what was said of the signature with what there is. The commands are
// those of docs/signing.md.
func (w *demoWorld) requireSignatureTold(t *testing.T, said told) {
	t.Helper()
	last := said.images[len(said.images)-1]
	for _, begin := range [][]string{{"verify"}, {"verify-attestation", "--type", "slsaprovenance1"}} {
		shown := regexp.MustCompile(`(?m)^  \$ cosign (` + strings.Join(begin, " ") + ` --.* ` + regexp.QuoteMeta(last) + `)$`).FindStringSubmatch(said.output)
		require.Len(t, shown, 2, said.output)
		args := strings.Fields(strings.Replace(shown[1], " --registry-cacert $LAYERWRIGHT_REGISTRY_CA", "", 1))
		args[len(begin)+1] = "cosign.pub" // behind --key
		assert.Equal(t, cosign.Documented(t, last, begin...), args)
	}
	assert.NotContains(t, w.tags(t, last), "tampered", "the copy is removed")
	assert.Contains(t, said.output, "\n  accepted    The cosign claims were validated; The signatures were verified against the specified public key\n")
	assert.Regexp(t, `\n  stated      by https://layerwright.io/builder, about build worker-[0-9a-f]{32}/\S+, made of\n`, said.output)
	assert.Contains(t, said.output, "\n  refused     Error: no signatures found\n")
}

// requireContentTold compares what was said of the content with what there is.
func (w *demoWorld) requireContentTold(t *testing.T, said told) {
	t.Helper()
	assert.Contains(t, said.output, "\n    RUN --mount=type=bind,source=hello.deb,target=/tmp/hello.deb dpkg --install /tmp/hello.deb\n")
	assert.Regexp(t, `\n  why         .*Containerfile added`, said.output)
	assert.Regexp(t, `(?m)^  steps       (fetch [\d.]+ m?s, build [\d.]+ m?s(, export [\d.]+ m?s)?(, push [\d.]+ m?s)?|none: the registry has what the Containerfile makes)$`, said.output)
	assert.Regexp(t, `(?m)^  time        [\d.]+ m?s from the Containerfile to the digest in status$`, said.output)
	assert.Regexp(t, `(?m)^  on top      \d+ layers of [\d.]+ kB above the base image's 50, with \d+ files, and /usr/bin/hello is one of them$`, said.output)
}

// onTop is a file in the layers that an image has above its base, as the highest one has it.
func (w *demoWorld) onTop(t *testing.T, image, base, path string) string {
	t.Helper()
	below, err := w.read(t, base).Manifest()
	require.NoError(t, err)
	layers, err := w.read(t, image).Layers()
	require.NoError(t, err)
	require.Greater(t, len(layers), len(below.Layers))
	text := ""
	for i, layer := range layers {
		if i < len(below.Layers) {
			digest, err := layer.Digest()
			require.NoError(t, err)
			require.Equal(t, below.Layers[i].Digest, digest)
			continue
		}
		content, err := layer.Uncompressed()
		require.NoError(t, err)
		if found := fileIn(t, content, path); found != "" {
			text = found
		}
		require.NoError(t, content.Close())
	}
	return text
}

func (w *demoWorld) requireGone(t *testing.T, image string) {
	t.Helper()
	ref, err := name.ParseReference(image)
	require.NoError(t, err)
	_, err = remote.Head(ref, w.options...)
	var refused *transport.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusNotFound, refused.StatusCode)
}

// remove deletes what the demo left on a cluster that other tests use, and waits until it is gone.
func (w *demoWorld) remove(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	gone := func(remove, get func() error) {
		if err := remove(); !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			assert.True(collect, apierrors.IsNotFound(get()))
		}, 2*time.Minute, 50*time.Millisecond)
	}
	gone(func() error { return w.objects.MachineOSConfigs().Delete(ctx, "worker", metav1.DeleteOptions{}) },
		func() error {
			_, err := w.objects.MachineOSConfigs().Get(ctx, "worker", metav1.GetOptions{})
			return err
		})
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		builds, err := w.objects.MachineOSBuilds().List(ctx, metav1.ListOptions{LabelSelector: mcfgv1.LabelMachineOSConfig + "=worker"})
		require.NoError(collect, err)
		assert.Empty(collect, builds.Items, "each takes its image along")
	}, 2*time.Minute, 50*time.Millisecond)
	gone(func() error { return w.objects.MachineConfigPools().Delete(ctx, "worker", metav1.DeleteOptions{}) },
		func() error {
			_, err := w.objects.MachineConfigPools().Get(ctx, "worker", metav1.GetOptions{})
			return err
		})
	require.NoError(t, client.IgnoreNotFound(clients(t).CoreV1().ConfigMaps(stack.Namespace).Delete(ctx, "worker-image", metav1.DeleteOptions{})))
	for _, mc := range []string{"50-motd", "50-hello"} {
		gone(func() error { return w.objects.MachineConfigs().Delete(ctx, mc, metav1.DeleteOptions{}) },
			func() error { _, err := w.objects.MachineConfigs().Get(ctx, mc, metav1.GetOptions{}); return err })
	}
}

// freshController replaces the controller's pod: other tests measure what one needs that has not
// worked yet.
func freshController(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	pods := clients(t).CoreV1().Pods(stack.Namespace)
	old, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
	require.NoError(t, err)
	for i := range old.Items {
		require.NoError(t, pods.Delete(ctx, old.Items[i].Name, metav1.DeleteOptions{}))
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		for i := range old.Items {
			_, err := pods.Get(ctx, old.Items[i].Name, metav1.GetOptions{})
			assert.True(collect, apierrors.IsNotFound(err))
		}
	}, 2*time.Minute, 50*time.Millisecond)
	require.NoError(t, await.DeploymentAvailable(ctx, clients(t), stack.Namespace, stack.ControllerName))
}

// testDemo tells the story twice on the shared cluster, with the image of real size.
func testDemo(t *testing.T) {
	w := newDemoWorld(t, shared(t))
	t.Cleanup(func() {
		w.remove(t)
		freshController(t)
	})
	base := shared(t).RegistryHost()

	first := read(t, cluster(t, "--name", clusterName, "demo"), ofContent)
	require.Contains(t, first.output, "\n  "+base)
	require.Contains(t, first.output, "os/rhel9-coreos:full, 50 layers, ")
	require.Regexp(t, `\n  MachineOSConfig +worker +created\n`, first.output)
	require.Contains(t, first.output, "\n  why         first build of the pool\n")
	full := baseOf(t, first)
	w.requireTold(t, first, full)

	second := read(t, cluster(t, "--name", clusterName, "demo"), ofContent)
	require.Regexp(t, `\n  MachineConfig +50-motd +changed\n`, second.output)
	require.Regexp(t, `\n  MachineConfig +50-hello +found as it is\n`, second.output)
	require.Regexp(t, `\n  MachineConfigPool +worker +found as it is\n`, second.output)
	require.Regexp(t, `\n  MachineOSConfig +worker +changed\n`, second.output, "it asks for no content again")
	require.Regexp(t, `\n  ConfigMap +worker-image +found as it is\n`, second.output)
	require.Contains(t, second.output, "\n  steps       none: the registry has what the Containerfile makes\n", "the package is not installed anew")
	require.Contains(t, second.output, "why         nothing had to be made: the build worker-")
	require.Equal(t, first.images[0], second.images[0], "the same inputs, the same image")
	require.NotEqual(t, first.images[1], second.images[1])
	w.requireTold(t, second, full)
	for _, image := range first.images {
		w.read(t, image) // is kept
	}

	t.Run("leaves nothing that a deletion does not take along", func(t *testing.T) {
		w.remove(t)
		for _, image := range append(first.images, second.images...) {
			w.requireGone(t, image)
		}
	})
}

// baseOf is the OS image that a run names.
func baseOf(t *testing.T, said told) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^      baseOSImagePullSpec: (\S+)$`).FindStringSubmatch(said.output)
	require.Len(t, found, 2, said.output)
	return found[1]
}

// testDemoWithoutRoot tells the same story where there is neither root nor a tool that makes the
// full image, and goes on after Ctrl-C.
func testDemoWithoutRoot(t *testing.T) {
	n := newNobody(t)
	n.give("checkout", filepath.Join(repository, "deploy"))
	n.give("program", filepath.Join(repository, "bin", "layerwright"))
	n.giveTinyImage()
	n.onlyGo()
	controller := filepath.Join(n.dir, "program", "layerwright")

	n.interruptWhenItSays("registry ", "demo", "--controller", controller)
	first := read(t, n.run("demo", "--controller", controller), ofConfiguration)
	require.Contains(t, first.output, "A control plane without nodes, with registry and controller as processes")
	require.Contains(t, first.output, "The full image can't be made here, so this is the tiny one: ")
	require.Contains(t, first.output, `"mmdebstrap"`)
	require.Contains(t, first.output, "\n  why         first build of the pool\n")
	require.Contains(t, first.output, "a Containerfile is built in a pod, and a control plane has no node to run one")
	s, err := stack.New(filepath.Join(n.dir, "checkout"), filepath.Join(n.dir, "cache"), stack.DefaultName)
	require.NoError(t, err)
	w := newDemoWorld(t, s)
	w.requireTold(t, first, baseOf(t, first))
	require.Regexp(t, `^localhost:\d+/os/worker@`, first.images[1])

	second := read(t, n.run("demo", "--controller", controller, "--base", "tiny"), ofConfiguration)
	require.NotContains(t, second.output, "can't be made")
	require.Regexp(t, `\n  MachineOSConfig +worker +found as it is\n`, second.output)
	require.Equal(t, first.images[0], second.images[0])
	w.requireTold(t, second, baseOf(t, second))

	r := n.run("status")
	require.Zero(t, r.code, r.stdout)
	require.Contains(t, r.stdout, "layerwright-controller")
	require.Contains(t, r.stdout, "Registry:   localhost:")
	require.Contains(t, n.run("logs", "layerwright-controller", "--tail", "-1").stdout, `"msg":"Appended"`)
	t.Run("with the rights that the controller is deployed with", func(t *testing.T) { requireOwnRights(t, s) })
}

// requireOwnRights looks at whom the API server took the controller for.
func requireOwnRights(t *testing.T, s *stack.Stack) {
	t.Helper()
	config, err := s.Config()
	require.NoError(t, err)
	objects, err := mcfgclient.NewForConfig(config)
	require.NoError(t, err)
	pool, err := objects.MachineConfigPools().Get(t.Context(), mcfgv1.PoolWorker, metav1.GetOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, pool.Spec.Configuration.Name)

	config.CertData, config.KeyData, config.CertFile, config.KeyFile = nil, nil,
		filepath.Join(s.Dir(), "pki", "layerwright-controller.crt"), filepath.Join(s.Dir(), "pki", "layerwright-controller.key")
	theirs, err := mcfgclient.NewForConfig(config)
	require.NoError(t, err)
	_, err = theirs.MachineOSConfigs().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	err = theirs.MachineOSConfigs().Delete(t.Context(), "worker", metav1.DeleteOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

// giveTinyImage gives the user the tiny image's parts, so that nothing is fetched.
func (n *nobody) giveTinyImage() {
	n.t.Helper()
	cache := cacheDir(n.t)
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	require.NoError(n.t, err)
	_, err = maker.Build(n.t.Context(), fixtures.Tiny)
	require.NoError(n.t, err)
	for folder, pattern := range map[string]string{"cache/fixtures": "tiny-rhel9-coreos-*", "cache/fixtures/inputs": "inputs/busybox-static-*"} {
		files, err := filepath.Glob(filepath.Join(cache, "fixtures", pattern))
		require.NoError(n.t, err)
		require.NotEmpty(n.t, files)
		n.give(folder, files...)
	}
}

// onlyGo leaves the user no other program than Go.
func (n *nobody) onlyGo() {
	n.t.Helper()
	found, err := exec.LookPath("go")
	require.NoError(n.t, err)
	n.path = filepath.Join(n.dir, "bin")
	require.NoError(n.t, os.MkdirAll(n.path, 0o755))
	require.NoError(n.t, os.Symlink(found, filepath.Join(n.path, "go")))
}

// interruptWhenItSays presses Ctrl-C when a line contains text.
func (n *nobody) interruptWhenItSays(text string, args ...string) {
	n.t.Helper()
	cmd := n.command(args...)
	out, err := cmd.StdoutPipe()
	require.NoError(n.t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(n.t, cmd.Start())
	lines := bufio.NewScanner(out)
	said := false
	for !said && lines.Scan() {
		said = strings.Contains(lines.Text(), text)
	}
	require.NoError(n.t, cmd.Process.Signal(syscall.SIGINT))
	_, err = io.Copy(io.Discard, out) // until it ends
	require.NoError(n.t, err)
	exit := (*exec.ExitError)(nil)
	require.ErrorAs(n.t, cmd.Wait(), &exit, "it ended by itself")
	require.True(n.t, said, "it never said %q", text)
	require.Equal(n.t, 130, exit.ExitCode())
	require.Equal(n.t, "cluster: interrupted; what runs and what was made stays\n", stderr.String())
}
