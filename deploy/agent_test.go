package deploy

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

func agentPod(t *testing.T) (corev1.PodSpec, corev1.Container) {
	t.Helper()
	set := only[appsv1.DaemonSet](t, "components/agent", "DaemonSet", "layerwright-agent")
	require.Len(t, set.Spec.Template.Spec.Containers, 1)
	require.Empty(t, set.Spec.Template.Spec.InitContainers)
	assert.Equal(t, set.Spec.Selector.MatchLabels, set.Spec.Template.Labels)
	return set.Spec.Template.Spec, set.Spec.Template.Spec.Containers[0]
}

func TestTheAgentRunsOnEveryNode(t *testing.T) {
	t.Parallel()
	pod, container := agentPod(t)
	assert.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations)
	assert.Equal(t, map[string]string{"kubernetes.io/os": "linux"}, pod.NodeSelector)
	assert.Equal(t, "system-node-critical", pod.PriorityClassName)
	assert.True(t, pod.HostNetwork && pod.HostPID)
	assert.False(t, pod.HostIPC)
	assert.Equal(t, &corev1.SecurityContext{
		Privileged: new(true), RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)), ReadOnlyRootFilesystem: new(true),
	}, container.SecurityContext)
	require.Len(t, pod.Volumes, 1)
	assert.Equal(t, "/", pod.Volumes[0].HostPath.Path)
	assert.Equal(t, []corev1.VolumeMount{{Name: "host", MountPath: "/host", MountPropagation: new(corev1.MountPropagationHostToContainer)}}, container.VolumeMounts)
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		assert.Equal(t, "127.0.0.1", probe.HTTPGet.Host, "the node's network is shared by all its pods")
	}
}

func TestTheAgentIsLeftOutOnOpenShift(t *testing.T) {
	t.Parallel()
	for overlay, want := range map[string][]string{"kubernetes": {"../../components/agent"}, "openshift": nil} {
		content, err := os.ReadFile("overlays/" + overlay + "/kustomization.yaml")
		require.NoError(t, err)
		var k struct{ Components []string }
		require.NoError(t, yaml.Unmarshal(content, &k))
		assert.Equal(t, want, k.Components, overlay)
	}
}

func TestBindingsOfTheAgent(t *testing.T) {
	t.Parallel()
	account := only[corev1.ServiceAccount](t, "components/agent", "ServiceAccount", "layerwright-agent")
	assert.Equal(t, new(false), account.AutomountServiceAccountToken)
	got := map[string]string{}
	for _, d := range documents(t, "components/agent") {
		if d.Kind == "RoleBinding" || d.Kind == "ClusterRoleBinding" {
			var binding rbacv1.ClusterRoleBinding
			require.NoError(t, yaml.UnmarshalStrict(d.raw, &binding))
			require.Len(t, binding.Subjects, 1)
			got[d.Kind+" "+binding.RoleRef.Kind+"/"+binding.RoleRef.Name] = binding.Subjects[0].Name
		}
	}
	assert.Equal(t, map[string]string{
		"ClusterRoleBinding ClusterRole/layerwright-agent": "layerwright-agent",
		"RoleBinding Role/layerwright-agent-pull-secrets":  "layerwright-agent", // the controller makes that Role
		"RoleBinding Role/layerwright-agent-rights":        "layerwright-controller",
	}, got)
	content, err := os.ReadFile("components/agent/kustomization.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(content), "value: --agent-pull-secrets=layerwright-agent-pull-secrets\n")
}
