package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/cmd/layerwright/inventory"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
)

const buildKey1, buildKey2 = "11111111111111111111111111111111", "22222222222222222222222222222222"

// imageCluster is a pool of three nodes with two images in a registry, of one layer more each.
type imageCluster struct {
	server       *registrytest.Server
	base         string
	older, newer mcfgv1.ImageDigestFormat
	objects      []client.Object
}

func newImageCluster(t *testing.T) *imageCluster {
	t.Helper()
	c := &imageCluster{server: registrytest.New(t, nil)}
	below, err := mutate.AppendLayers(empty.Image, registrytest.Layer(t, map[string]string{"usr/lib/os-release": "ID=fedora\n"}))
	require.NoError(t, err)
	c.base = c.server.Push(t, "os/base:latest", below)
	push := func(tag, text string) mcfgv1.ImageDigestFormat {
		image, err := mutate.AppendLayers(below, registrytest.Layer(t, map[string]string{"etc/motd": text}))
		require.NoError(t, err)
		return mcfgv1.ImageDigestFormat(c.server.Push(t, "os/worker:"+tag, image))
	}
	c.older, c.newer = push("worker-"+buildKey1, "one"), push("worker-"+buildKey2, "two")
	push("worker", "two")
	push("worker-gpu-"+buildKey2, "of another pool")
	push("trial-worker", "tried")
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}}
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	config.Spec.MachineConfigPool.Name = "worker"
	config.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(c.server.Host + "/os/worker:latest")
	config.Status.MachineOSBuild = &mcfgv1.ObjectReference{Name: "worker-2"}
	config.Status.CurrentImagePullSpec = c.newer
	c.objects = []client.Object{pool, config, c.image("worker-1", c.older, 1), c.image("worker-2", c.newer, 2)}
	c.objects = append(c.objects, c.build("worker-1", buildKey1, c.older, 1), c.build("worker-2", buildKey2, c.newer, 2))
	for i, name := range []string{"worker-0", "worker-1", "worker-2"} {
		runs := c.older
		if i == 2 {
			runs = c.newer
		}
		c.objects = append(c.objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"role": "worker"}, Annotations: map[string]string{mcfgv1.AnnotationCurrentImage: string(runs)},
		}})
	}
	return c
}

func (c *imageCluster) image(name string, pinned mcfgv1.ImageDigestFormat, age int64) *mcfgv1alpha1.MachineOSImage {
	image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.Unix(age, 0), Labels: map[string]string{mcfgv1.LabelMachineOSBuild: name},
	}}
	image.Spec.PullSpec, image.Spec.MachineConfigPool = pinned, "worker"
	image.Spec.BaseOSImagePullSpec, image.Spec.RenderedMachineConfig = mcfgv1.ImageDigestFormat(c.base), "rendered-"+name
	image.Status.Conditions = []metav1.Condition{
		{Type: mcfgv1alpha1.ImageSigned, Status: metav1.ConditionTrue, Reason: mcfgv1alpha1.ReasonSigned},
		{Type: mcfgv1alpha1.ImageAttested, Status: metav1.ConditionFalse, Reason: mcfgv1alpha1.ReasonAttestationFailed, Message: "no SBOM"},
	}
	return image
}

func (c *imageCluster) build(name, key string, pinned mcfgv1.ImageDigestFormat, age int64) *mcfgv1.MachineOSBuild {
	build := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(age, 0)}}
	build.Spec.MachineOSConfig.Name, build.Spec.MachineConfig.Name = "worker", "rendered-"+name
	build.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(c.server.Host + "/os/worker:worker-" + key)
	build.Spec.Decision = &mcfgv1.BuildDecision{
		Action: mcfgv1.BuildActionAppend, BuildKey: key, ContentKey: "content", BaseImage: mcfgv1.ImageDigestFormat(c.base), OSImageStream: "rhel-10",
		Inputs: mcfgv1.ImageInputs{Base: mcfgv1.ImageDigestFormat(c.base).Digest(), Config: []mcfgv1.InputItem{{Name: "file /etc/motd", Hash: name}}},
	}
	build.Status.DigestedImagePushSpec = pinned
	build.Status.Conditions = []metav1.Condition{{Type: mcfgv1.BuildSucceeded, Status: metav1.ConditionTrue, Reason: mcfgv1.ReasonConfigAppended}}
	build.Status.BuildEnd = new(metav1.Unix(age, 0))
	return build
}

// client has the objects, and more.
func (c *imageCluster) client(t *testing.T, more ...client.Object) client.Client {
	t.Helper()
	scheme, err := survey.Scheme()
	require.NoError(t, err)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.objects...).WithObjects(more...).Build()
}

// listImages runs the command on a cluster, but for what reaches the cluster.
func listImages(t *testing.T, from client.Reader, change func(*imagesOptions)) (stdout, stderr string, err error) {
	t.Helper()
	o := &imagesOptions{pool: "worker", cluster: newClusterFlags(&cobra.Command{})}
	o.output.Value = "text"
	if change != nil {
		change(o)
	}
	var out, notes bytes.Buffer
	err = o.run(t.Context(), from, &out, &notes)
	return out.String(), notes.String(), err
}

func asJSON(o *imagesOptions) { o.output.Value = "json" }

func TestImagesOfAPool(t *testing.T) {
	t.Parallel()
	c := newImageCluster(t)
	stdout, stderr, err := listImages(t, c.client(t), asJSON)
	require.NoError(t, err)
	assert.Empty(t, stderr)
	var listed inventory.Inventory
	require.NoError(t, json.Unmarshal([]byte(stdout), &listed))
	assert.Equal(t, c.older, listed.ComparedWith, "two of three nodes run it")
	require.Len(t, listed.Images, 3, "that of another pool is not listed: %s", stdout)
	newer, older, tried := listed.Images[0], listed.Images[1], listed.Images[2]
	assert.Equal(t, []string{"worker", "worker-" + buildKey2}, newer.Tags)
	assert.Equal(t, []string{"trial-worker"}, tried.Tags)
	assert.Equal(t, []int{1, 2, 0}, []int{newer.Nodes, older.Nodes, tried.Nodes})
	require.NotNil(t, older.Pull)
	assert.Zero(t, *older.Pull, "who runs it has it")
	require.NotNil(t, newer.Pull)
	assert.Positive(t, *newer.Pull)
	assert.Less(t, *newer.Pull, *newer.Size, "the layer of the base is there")
	assert.Equal(t, "rhel-10", newer.Stream)
	assert.Equal(t, "yes", newer.Signed)
	assert.Equal(t, mcfgv1alpha1.ReasonAttestationFailed, newer.Attested)

	stdout, _, err = listImages(t, c.client(t), nil)
	require.NoError(t, err)
	for _, text := range []string{"Images of pool worker in ", "IMAGE ", "SIGNED", "worker,worker-222222222222…", newer.Image.Short(), "PULL is for a node that runs " + c.older.Short()} {
		assert.Contains(t, stdout, text)
	}
	assert.NotContains(t, stdout, "\x1b")
}

func TestImagesWithoutTheRegistry(t *testing.T) {
	t.Parallel()
	c := newImageCluster(t)
	c.server.Answer(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	object, isImage := c.objects[3].(*mcfgv1alpha1.MachineOSImage)
	require.True(t, isImage)
	object.Status.PreviousImagePullSpec = c.older
	object.Status.Architectures = []mcfgv1alpha1.ImageArchitecture{{Architecture: mcfgv1.ArchitectureAMD64, Size: new(int64(2_000_000_000)), PullSize: new(int64(5_000_000))}}
	object.Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{Reason: "RolloutHalted", Message: "a\x1b[2Jb"}
	stdout, stderr, err := listImages(t, c.client(t), nil)
	require.NoError(t, err, "the table comes all the same")
	assert.Contains(t, stderr, "layerwright: the registry was not read")
	assert.Contains(t, stdout, "2.0 GB  5.0 MB", "objects say it too")
	assert.Contains(t, stdout, "RolloutHalted: a [2Jb", "nothing moves the cursor")
	assert.Regexp(t, `(?m)yes +AttestationFailed +- +0 B +2`, stdout, "what is not known is a dash")
}

func TestImagesBadInput(t *testing.T) {
	t.Parallel()
	c := newImageCluster(t)
	_, _, err := listImages(t, c.client(t), func(o *imagesOptions) { o.pool = "wroker" })
	require.ErrorContains(t, err, `there is no pool "wroker"; do you mean "worker"?`)
	denied := interceptor.NewClient(asWatch(t, c.client(t)), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
		},
	})
	_, _, err = listImages(t, denied, nil)
	require.ErrorContains(t, err, "you may not list ")
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"prune in earnest": {[]string{"images", "worker", "--prune"}, "the controller removes images, by spec.retention"},
		"dry run alone":    {[]string{"images", "worker", "--dry-run"}, "it belongs to --prune"},
		"no pool":          {[]string{"images"}, "accepts 1 arg(s), received 0"},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, execute(t.Context(), test.args, &stdout, &stderr), name)
		assert.Contains(t, stderr.String(), test.says, name)
	}
	o := &imagesOptions{pool: "worker"}
	require.ErrorIs(t, o.print(&inventory.Inventory{Pool: "worker"}, brokenWriter{}), errBroken)
}

func asWatch(t *testing.T, c client.Client) client.WithWatch {
	t.Helper()
	watching, is := c.(client.WithWatch)
	require.True(t, is)
	return watching
}

// TestImagesOfNodesWithoutOne has nodes that run the OS image of their configuration.
func TestImagesOfNodesWithoutOne(t *testing.T) {
	t.Parallel()
	c := newImageCluster(t)
	for _, object := range c.objects {
		if n, isNode := object.(*corev1.Node); isNode {
			n.Annotations = map[string]string{mcfgv1.AnnotationCurrentConfig: "rendered-worker-0"}
		}
	}
	rendered := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-0"}}
	rendered.Spec.OSImageURL = c.base
	stdout, _, err := listImages(t, c.client(t, rendered), asJSON)
	require.NoError(t, err)
	var listed inventory.Inventory
	require.NoError(t, json.Unmarshal([]byte(stdout), &listed))
	assert.Equal(t, mcfgv1.ImageDigestFormat(c.base), listed.ComparedWith)
	require.NotNil(t, listed.Images[0].Pull)
	assert.Less(t, *listed.Images[0].Pull, *listed.Images[0].Size)
	stdout, _, err = listImages(t, c.client(t), nil)
	require.NoError(t, err)
	assert.Contains(t, stdout, "PULL is not known", "their configuration is gone")
}

func TestImagesPruneDryRun(t *testing.T) {
	t.Parallel()
	c := newImageCluster(t)
	prune := func(o *imagesOptions) { o.prune, o.dryRun = true, true }
	stdout, _, err := listImages(t, c.client(t), prune)
	require.NoError(t, err)
	assert.Equal(t, "the controller removes nothing of pool worker now: retention keeps all of its builds\n", stdout)
	config, isConfig := c.objects[1].(*mcfgv1.MachineOSConfig)
	require.True(t, isConfig)
	config.Spec.Retention = &mcfgv1.Retention{SuccessfulBuilds: new(int32(1))}
	before := c.build("worker-0", buildKey1[1:]+"0", c.older[:len(c.older)-1]+"0", 0)
	stdout, _, err = listImages(t, c.client(t, before), prune)
	require.NoError(t, err)
	assert.Regexp(t, "^MachineOSBuild worker-0 and .*: no node uses its image, and spec.retention.successfulBuilds keeps the newest 1\n$", stdout,
		"nodes run the image of worker-1")
	_, _, err = listImages(t, c.client(t), func(o *imagesOptions) {
		prune(o)
		asJSON(o)
	})
	require.NoError(t, err)
}
