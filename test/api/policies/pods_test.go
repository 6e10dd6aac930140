package policies

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

const annotationsMessage = "pods of this namespace have no annotations of CDI, NRI, CRI-O or Multus"

// TestWhatContainerRuntimesGivePods is about what a pod gets of its node past the fields of pods.
func TestWhatContainerRuntimesGivePods(t *testing.T) {
	config, namespace := clustertest.ControlPlane(t), clustertest.Namespace(t)
	client, clients := dynamic.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
	for _, o := range install.Objects(t, install.Path(t, "deploy/overlays/kubernetes/pod-policy.yaml")) {
		resource := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: strings.Replace(strings.ToLower(o.GetKind())+"s", "policys", "policies", 1)}
		_, err := client.Resource(resource).Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, client.Resource(resource).Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{}))
		})
	}
	_, err := clients.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"app.kubernetes.io/name":"layerwright"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, await.ServiceAccount(t.Context(), clients, namespace, "default"))
	_, err = clients.NodeV1().RuntimeClasses().Create(t.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Handler: "kata"}, metav1.CreateOptions{})
	require.NoError(t, err)
	create := func(change func(*corev1.Pod)) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{}, Annotations: map[string]string{}}, Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/app:1", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		}}
		change(p)
		_, err := clients.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{DryRun: dryRunOptions})
		return err
	}
	annotated := func(key string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Annotations[key] = "x" } }
	eventuallyRefused(t, annotationsMessage, func(context.Context) error { return create(annotated("cdi.k8s.io/gpu")) })
	for _, key := range []string{
		"k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network", "devices.nri.io/container.c", "nri.io/x", "mounts.nri.containerd.io/pod",
		"io.kubernetes.cri-o.Devices", "cpu-quota.crio.io",
	} {
		require.ErrorContains(t, create(annotated(key)), annotationsMessage, key)
	}
	for _, key := range []string{"kubectl.kubernetes.io/restartedAt", "sidecar.istio.io/inject", "tekton.dev/ready", "example.com/nri.io"} {
		require.NoError(t, create(annotated(key)), key)
	}
	test := func(p *corev1.Pod) { p.Labels["app.kubernetes.io/component"] = "verification" }
	require.NoError(t, create(test))
	require.ErrorContains(t, create(func(p *corev1.Pod) {
		test(p)
		p.Spec.RuntimeClassName = &namespace
	}), "tests have no runtimeClassName")
}
