package bugreport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// collector is one of a cluster with a MachineConfig, a MachineOSConfig and a pod. Budgets may not
// be read.
func collector() *Collector {
	object := func(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name, "managedFields": []any{}}, "spec": spec,
		}}
	}
	objects := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithRESTMapper(Mapper()).WithObjects(
		object("machineconfiguration.openshift.io/v1", "MachineConfig", "50-secret", map[string]any{
			"config": map[string]any{
				"storage": map[string]any{"files": []any{map[string]any{"path": "/etc/token", "contents": map[string]any{"source": "data:,hunter2"}}}},
				"systemd": map[string]any{"units": []any{map[string]any{"name": "a.service", "contents": "Environment=hunter2"}}},
			},
		}),
		object("machineconfiguration.openshift.io/v1", "MachineOSConfig", "worker", map[string]any{
			"containerFile":         []any{map[string]any{"content": "RUN hunter2"}},
			"renderedImagePushSpec": "https://me:" + "hunter2" + "@registry.example.com/os",
		}),
		object("machineconfiguration.openshift.io/v1", "MachineOSBuild", "worker-1", map[string]any{
			"decision": map[string]any{"inputs": map[string]any{"containerfiles": []any{map[string]any{"arch": "NoArch", "text": "RUN hunter2"}}}},
		}),
	).WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, from client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if list.GetObjectKind().GroupVersionKind().Kind == "PodDisruptionBudgetList" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "poddisruptionbudgets"}, "", errors.New("no"))
		}
		return from.List(ctx, list, options...)
	}}).Build()
	pods := kubefake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "layerwright-controller-0", Namespace: "layerwright"},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "controller", RestartCount: 1}, {Name: "waiting", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{},
		}}}},
	})
	return &Collector{
		Objects: objects, Pods: pods.CoreV1(), Namespace: "layerwright", Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Progress: func(string) {},
	}
}

func unpacked(t *testing.T, packed io.Reader) map[string]string {
	t.Helper()
	uncompressed, err := gzip.NewReader(packed)
	require.NoError(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(uncompressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[strings.TrimPrefix(header.Name, "layerwright-report/")] = string(content)
	}
}

func TestCollect(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	lacks, err := collector().Collect(t.Context(), &packed, map[string][]byte{"status.txt": []byte("Pools https://me:hunter2@example.com\n")})
	require.NoError(t, err)
	require.Len(t, lacks, 1)
	assert.Contains(t, lacks[0], "poddisruptionbudgets: ")
	files := unpacked(t, &packed)
	assert.Contains(t, files["status.txt"], "Pools https://")
	assert.Equal(t, lacks[0]+"\n", files["lacks.txt"])
	assert.Contains(t, files["objects/machineconfigs.yaml"], "path: /etc/token")
	assert.Contains(t, files["objects/machineconfigs.yaml"], "source: 'left out: 13 bytes'")
	assert.Contains(t, files["objects/machineosconfigs.yaml"], "registry.example.com/os")
	assert.Contains(t, files["objects/machineosbuilds.yaml"], "text: 'left out: 11 bytes'")
	assert.Contains(t, files, "logs/layerwright-controller-0/controller.log")
	assert.Contains(t, files, "logs/layerwright-controller-0/controller.previous.log")
	assert.NotContains(t, files, "logs/layerwright-controller-0/waiting.log")
	for name, content := range files {
		assert.NotContains(t, content, "hunter2", name)
		assert.NotContains(t, content, "managedFields", name)
	}
	for _, k := range kinds {
		assert.NotEqual(t, "secrets", k.Resource)
	}
}

func TestCollectWithContents(t *testing.T) {
	t.Parallel()
	c := collector()
	c.WithContents = true
	var packed bytes.Buffer
	_, err := c.Collect(t.Context(), &packed, nil)
	require.NoError(t, err)
	files := unpacked(t, &packed)
	assert.Contains(t, files["objects/machineconfigs.yaml"], "hunter2")
	assert.NotContains(t, files["objects/machineosconfigs.yaml"], "me:hunter2", "passwords of URLs are no content")
}

func TestCollectIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := collector().Collect(ctx, io.Discard, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTailOfALog(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("x", 1000) + "\n"
	kept, err := tailOf(strings.NewReader("first\n" + strings.Repeat(line, 3000) + strings.Repeat("y", 2*longestLine) + "\nhttps://me:hunter2@example.com last\n"))
	require.NoError(t, err)
	assert.LessOrEqual(t, len(kept), mostLog+mostLog/4)
	assert.NotContains(t, string(kept), "first")
	assert.NotContains(t, string(kept), "hunter2")
	assert.True(t, strings.HasSuffix(string(kept), " last\n"))
	assert.NotContains(t, string(kept), strings.Repeat("y", longestLine+1))
}

func TestRedact(t *testing.T) {
	t.Parallel()
	env := []any{map[string]any{"name": "A", "value": "hunter2"}}
	pod := map[string]any{
		"containers": []any{map[string]any{"env": env}}, "initContainers": []any{map[string]any{"env": env}}, "ephemeralContainers": []any{map[string]any{"env": env}},
	}
	template := map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"vault.example.com/token": "hunter2"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"env": env}}, "initContainers": []any{map[string]any{"env": env}}},
	}}
	for kind, spec := range map[string]map[string]any{
		"Node": {}, "Pod": pod, "Deployment": template, "DaemonSet": template, "Job": template,
		"MachineConfig": {
			"kernelArguments": []any{"quiet", "luks.key=hunter2"},
			"config": map[string]any{
				"kernelArguments": map[string]any{"shouldExist": []any{"luks.key=hunter2"}},
				"Storage":         map[string]any{"FILES": []any{map[string]any{"Contents": map[string]any{"Source": "data:,hunter2"}}}},
				"ignition":        map[string]any{"config": map[string]any{"merge": []any{map[string]any{"httpHeaders": []any{map[string]any{"name": "A", "value": "hunter2"}}}}}},
			},
		},
	} {
		object := (&unstructured.Unstructured{Object: map[string]any{"spec": spec, "metadata": map[string]any{"annotations": map[string]any{
			"agent.example.io/env": "TOKEN=hunter2", "kapp": "hunter2", "machineconfiguration.openshift.io/state": "Done",
			"kubectl.kubernetes.io/last-applied-configuration": "hunter2",
		}}}}).DeepCopy().Object
		redact(object, kind, kind != "MachineConfig") // contents are those of MachineConfigs, and no environment
		text := fmt.Sprint(object)
		assert.NotContains(t, text, "hunter2", kind)
		assert.Contains(t, text, "machineconfiguration.openshift.io/state:Done", kind)
		if kind == "MachineConfig" {
			assert.Contains(t, text, "[quiet luks.key=left out: 7 bytes]")
		}
	}
}
