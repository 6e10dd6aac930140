//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
)

// streamsCluster is one of its own: an OSImageStream is never deleted, and with one every pool of a
// cluster follows a stream.
const streamsCluster = "e2e-streams"

// testStreams goes through what an administrator sees of streams, from a cluster that has none on:
// in one order, since each step begins where the one before has left the cluster.
func testStreams(t *testing.T) {
	t.Cleanup(func() {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "down", "--name", streamsCluster)
		require.Zero(t, finish(t, cmd).code)
	})
	mustCluster(t, "up", "--name", streamsCluster)
	s := named(t, streamsCluster)
	references, err := s.PushFixtures(t.Context(), fixtures.Tiny, nil, t.Logf)
	require.NoError(t, err)
	w := newStreamWorld(t, s)

	t.Run("there is none where nothing gives streams", func(t *testing.T) {
		w.logged(t, "No source gives OS image streams, so pools follow none")
		require.Empty(t, w.kubectl(t, "get", "osimagestreams", "-o", "name"))
	})

	t.Run("the release image gives both", func(t *testing.T) {
		w.configure(t, references.Release.String())
		w.eventually(t, func(t *assert.CollectT, o *mcfgv1.OSImageStream) {
			assert.Equal(t, "rhel10-coreos,rhel9-coreos", o.Status.StreamNames)
			assert.Equal(t, "True", ready(o))
			assert.Equal(t, references.Release.String(), o.Annotations[mcfgv1.AnnotationReleasePayloadImage])
		})
		o := w.get(t)
		for _, stream := range o.Status.AvailableStreams {
			require.Equal(t, references.OS[fixtures.Stream(stream.Name)].String(), string(stream.OSImage))
			require.Equal(t, references.Extensions[fixtures.Stream(stream.Name)].String(), string(stream.OSExtensionsImage))
		}
		require.Equal(t, "rhel9-coreos", o.Status.DefaultStream, "the default of what the cluster was installed with")
		shown := strings.Fields(strings.Split(w.kubectl(t, "get", "osimagestreams"), "\n")[1])
		require.Equal(t, []string{"cluster", "rhel9-coreos", "rhel10-coreos,rhel9-coreos", "True"}, shown[:4])
	})

	t.Run("deprecation and end of life are shown", func(t *testing.T) {
		w.lifecycle(t, map[string]string{"rhel9-coreos": "deprecationDate: 2020-01-01\nendOfLifeDate: 2999-01-01\n"})
		w.eventually(t, func(t *assert.CollectT, o *mcfgv1.OSImageStream) {
			assert.Equal(t, "rhel9-coreos", o.Status.DeprecatedStreamNames)
		})
		w.lifecycle(t, map[string]string{"rhel9-coreos": "lifecycle: EndOfLife"})
		w.eventually(t, func(t *assert.CollectT, o *mcfgv1.OSImageStream) {
			assert.Equal(t, "rhel9-coreos", o.Status.EndOfLifeStreamNames)
			assert.Empty(t, o.Status.DeprecatedStreamNames)
		})
		shown := w.kubectl(t, "get", "osimagestreams", "-o", "wide")
		require.Contains(t, shown, "ENDOFLIFE")
		t.Logf("\n%s", shown)
	})

	t.Run("nonsense in a ConfigMap is named, and changes nothing", func(t *testing.T) {
		before := w.get(t).Status.AvailableStreams
		w.lifecycle(t, map[string]string{"rhel9-coreos": "lifecycle: EndOfLife", "rhel10-coreos": "the end"})
		w.eventually(t, func(t *assert.CollectT, o *mcfgv1.OSImageStream) {
			assert.Equal(t, "False", ready(o))
			assert.Contains(t, conditionText(o.Status.Conditions, mcfgv1.StreamConfigMapInvalid), `key "rhel10-coreos"`)
			assert.Equal(t, before, o.Status.AvailableStreams)
		})
		w.lifecycle(t, nil)
		w.eventually(t, func(t *assert.CollectT, o *mcfgv1.OSImageStream) { assert.Equal(t, "True", ready(o)) })
	})

	t.Run("a tag that moves is followed", func(t *testing.T) {
		tag := references.Release.RegistryStr() + "/mine/os:stable"
		first := w.move(t, tag, references.OS[fixtures.RHEL9], "1")
		o := w.get(t)
		patch := client.MergeFrom(o.DeepCopy())
		o.Spec.Images = []mcfgv1.OSImageStreamImages{{Name: "mine", OSImage: mcfgv1.ImageReferenceFormat(tag)}}
		require.NoError(t, w.Patch(t.Context(), o, patch))
		w.eventually(t, func(t *assert.CollectT, o *mcfgv1.OSImageStream) { assert.Equal(t, first, imageOf(o, "mine")) })
		second := w.move(t, tag, references.OS[fixtures.RHEL9], "2")
		require.NotEqual(t, first, second)
		w.eventually(t, func(t *assert.CollectT, o *mcfgv1.OSImageStream) { assert.Equal(t, second, imageOf(o, "mine")) })
		require.Contains(t, w.kubectl(t, "get", "events", "-A"), "StreamsChanged")
		t.Logf("\n%s", w.kubectl(t, "get", "osimagestream", "cluster", "-o", "yaml"))
	})
}

// streamWorld is a cluster of its own.
type streamWorld struct {
	client.Client
	t     *testing.T
	stack *stack.Stack
}

func newStreamWorld(t *testing.T, s *stack.Stack) *streamWorld {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, mcfgv1.AddToScheme(scheme))
	config, err := s.Config()
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return &streamWorld{Client: c, t: t, stack: s}
}

// configure names the release image, as docs/playground.md does, and looks at tags more often than
// anybody should.
func (w *streamWorld) configure(t *testing.T, release string) {
	t.Helper()
	clients, err := w.stack.Clients()
	require.NoError(t, err)
	patch, err := json.Marshal([]map[string]any{
		{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--stream-tag-interval=5s"},
		{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": map[string]string{"name": "RELEASE_IMAGE", "value": release}},
	})
	require.NoError(t, err)
	_, err = clients.AppsV1().Deployments(stack.Namespace).Patch(t.Context(), stack.ControllerName, types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, await.DeploymentAvailable(within(t), clients, stack.Namespace, stack.ControllerName))
}

// lifecycle writes the ConfigMap of that name; nil removes it.
func (w *streamWorld) lifecycle(t *testing.T, data map[string]string) {
	t.Helper()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: streams.LifecycleConfigMap, Namespace: stack.Namespace}}
	require.NoError(t, client.IgnoreNotFound(w.Delete(t.Context(), c)))
	if data != nil {
		c.ResourceVersion, c.Data = "", data
		require.NoError(t, w.Create(t.Context(), c))
	}
}

func (w *streamWorld) get(t require.TestingT) *mcfgv1.OSImageStream {
	o := &mcfgv1.OSImageStream{}
	require.NoError(t, w.Get(w.t.Context(), client.ObjectKey{Name: mcfgv1.OSImageStreamName}, o))
	return o
}

func (w *streamWorld) eventually(t *testing.T, condition func(*assert.CollectT, *mcfgv1.OSImageStream)) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) { condition(t, w.get(t)) }, 3*time.Minute, time.Second/2)
}

// logged waits until the controller has said something.
func (w *streamWorld) logged(t *testing.T, text string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Contains(c, w.kubectl(t, "-n", stack.Namespace, "logs", "deployment/"+stack.ControllerName), text)
	}, time.Minute, time.Second)
}

// kubectl is what an administrator sees.
func (w *streamWorld) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	environment, err := w.stack.Environment(t.Context())
	require.NoError(t, err)
	path := ""
	for _, variable := range environment {
		if _, value, found := strings.Cut(variable, "PATH="); found {
			path = strings.Split(value, ":")[0]
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(path, "kubectl"), append([]string{"--kubeconfig", w.stack.Kubeconfig()}, args...)...)
	r := finish(t, cmd)
	require.Zero(t, r.code, r.stderr)
	return r.stdout
}

// move pushes a version of an image under a tag, and returns it by digest.
func (w *streamWorld) move(t *testing.T, tag string, from name.Digest, version string) string {
	t.Helper()
	registry, err := w.stack.Registry(t.Context())
	require.NoError(t, err)
	options := registry.Options(t.Context(), "push")
	image, err := remote.Image(from, options...)
	require.NoError(t, err)
	file, err := image.ConfigFile()
	require.NoError(t, err)
	file = file.DeepCopy()
	file.Config.Labels[fixtures.LabelVersion] = version
	delete(file.Config.Labels, fixtures.LabelStream) // it is of the stream that spec.images says
	image, err = mutate.ConfigFile(image, file)
	require.NoError(t, err)
	to, err := name.NewTag(tag)
	require.NoError(t, err)
	require.NoError(t, remote.Write(to, image, options...))
	digest, err := image.Digest()
	require.NoError(t, err)
	return to.Digest(digest.String()).String()
}

func ready(o *mcfgv1.OSImageStream) string {
	for _, c := range o.Status.Conditions {
		if c.Type == mcfgv1.ConditionReady {
			return string(c.Status)
		}
	}
	return ""
}

func imageOf(o *mcfgv1.OSImageStream, stream string) string {
	for _, s := range o.Status.AvailableStreams {
		if s.Name == stream {
			return string(s.OSImage)
		}
	}
	return ""
}
