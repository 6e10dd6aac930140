//go:build e2e

package e2e

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/hack/release/binimage"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
)

// tinyImage pushes the small base image and returns its pinned reference.
func tinyImage(t *testing.T) string {
	t.Helper()
	return tinyImageIn(t, clusterName)
}

func tinyImageIn(t *testing.T, cluster string) string {
	t.Helper()
	references, err := named(t, cluster).PushFixtures(t.Context(), fixtures.Tiny, nil, t.Logf)
	require.NoError(t, err)
	return references.OS[fixtures.RHEL9].String()
}

// runJob runs a shell script in the image and returns what it printed.
func runJob(t *testing.T, image, script string) string {
	t.Helper()
	c := clients(t)
	jobs := c.BatchV1().Jobs("default")
	job, err := jobs.Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "main", Image: image, Command: []string{"sh", "-ec", script}}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		background := metav1.DeletePropagationBackground
		require.NoError(t, jobs.Delete(context.WithoutCancel(t.Context()), job.Name, metav1.DeleteOptions{PropagationPolicy: &background}))
	})
	require.NoError(t, await.JobComplete(within(t), c, "default", job.Name))
	pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=" + job.Name})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	log, err := c.CoreV1().Pods("default").GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).Stream(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	text, err := io.ReadAll(log)
	require.NoError(t, err)
	return string(text)
}

func TestNodeIsReal(t *testing.T) {
	node, err := clients(t).CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "v1.36.3", node.Status.NodeInfo.KubeletVersion)
	require.True(t, strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "containerd://2.4.2"), node.Status.NodeInfo.ContainerRuntimeVersion)
	require.NoError(t, await.NodeReady(within(t), clients(t), "node1"))
}

func TestJobRunsAnImagePulledFromTheRegistry(t *testing.T) {
	out := runJob(t, tinyImage(t), `. /usr/lib/os-release; echo "$ID $VERSION_ID"`)
	require.Equal(t, "rhcos 9.6\n", strings.ReplaceAll(out, `"`, ""))
}

func TestPodDNS(t *testing.T) {
	out := runJob(t, tinyImage(t), `
nslookup `+shared(t).RegistryHost()+`
nslookup kubernetes.default.svc.cluster.local
nc -w 5 10.96.0.1 443 </dev/null && echo service reachable
nslookup example.com || echo no world outside`)
	require.Contains(t, out, "Address: 10.250.0.1\n", "the registry's address")
	require.NotContains(t, out, "Address: 127.0.0.1\n", "the host's own name for it is of no use in a pod")
	require.Contains(t, out, "Address: 10.96.0.1\n", "the Service's address")
	require.Contains(t, out, "service reachable")
	require.Contains(t, out, "no world outside")
}

func TestRegistryAccountsDiffer(t *testing.T) {
	registry, err := shared(t).Registry(t.Context())
	require.NoError(t, err)
	tag, err := name.NewTag(registry.Host + "/e2e/accounts:latest")
	require.NoError(t, err)
	image, err := random.Image(1024, 1)
	require.NoError(t, err)

	requireRefused(t, remote.Write(tag, image, registry.Options(t.Context(), "pull")...), http.StatusForbidden)
	require.NoError(t, remote.Write(tag, image, registry.Options(t.Context(), "push")...))
	_, err = remote.Head(tag, registry.Options(t.Context(), "pull")...)
	require.NoError(t, err)
	_, err = remote.Get(tag, registry.Options(t.Context(), "nobody")...)
	requireRefused(t, err, http.StatusUnauthorized)
}

func requireRefused(t *testing.T, err error, status int) {
	t.Helper()
	var refused *transport.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, status, refused.StatusCode)
}

func TestNamespaceWithoutAccountsCannotPull(t *testing.T) {
	c := clients(t)
	image := tinyImage(t)
	namespace, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), namespace.Name, metav1.DeleteOptions{}))
	})
	require.NoError(t, await.ServiceAccount(within(t), c, namespace.Name, "default"))
	// Always: the node may have the image, but the registry must be asked.
	_, err = c.CoreV1().Pods(namespace.Name).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image, ImagePullPolicy: corev1.PullAlways}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	err = await.Object(within(t), await.Target{Client: c.CoreV1().RESTClient(), Resource: "pods", Namespace: namespace.Name, Name: "p"}, &corev1.Pod{}, func(pod *corev1.Pod) (bool, string) {
		seen := await.DescribePod(pod)
		return strings.Contains(seen, "ErrImagePull") || strings.Contains(seen, "ImagePullBackOff"), seen
	})
	require.NoError(t, err)
}

func TestLoadMakesAnArchiveRunnable(t *testing.T) {
	out := mustCluster(t, "--name", clusterName, "load", archiveOfPause(t))
	require.Contains(t, out, "layerwright.test/e2e-load:1")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-load"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "layerwright.test/e2e-load:1", ImagePullPolicy: corev1.PullNever,
		}}},
	}
	c := clients(t)
	_, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.CoreV1().Pods("default").Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	})
	require.NoError(t, await.PodReady(within(t), c, "default", pod.Name))
}

// archiveOfPause makes an archive whose image no node has.
func archiveOfPause(t *testing.T) string {
	t.Helper()
	cache, err := toolchain.CacheDir()
	require.NoError(t, err)
	bin, err := toolchain.New(repository, cache).Find(t.Context(), toolchain.Pause)
	require.NoError(t, err)
	image, err := binimage.Build(binimage.Options{Binary: filepath.Join(bin, "pause")})
	require.NoError(t, err)
	tag, err := name.NewTag("layerwright.test/e2e-load:1")
	require.NoError(t, err)
	archive, err := os.Create(filepath.Join(t.TempDir(), "image.tar"))
	require.NoError(t, err)
	require.NoError(t, binimage.WriteArchive(archive, tag, image))
	require.NoError(t, archive.Close())
	return archive.Name()
}
