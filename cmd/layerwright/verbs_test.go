package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

// allow lets a user read some kinds of Layerwright and no others.
func allow(t *testing.T, c client.Client, user string, resources ...string) {
	t.Helper()
	about := metav1.ObjectMeta{Name: "reads-" + user}
	role := &rbacv1.ClusterRole{ObjectMeta: about, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{mcfgv1.GroupVersion.Group}, Resources: resources, Verbs: []string{"get", "list"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: about, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: about.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	for _, o := range []client.Object{role, binding} {
		require.NoError(t, c.Create(t.Context(), o))
		t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), o))) })
	}
	require.Eventually(t, func() bool { // the API server learns of it a moment later
		var stdout, stderr bytes.Buffer
		return execute(t.Context(), []string{"status", "--kubeconfig", clustertest.Kubeconfig(t), "--as", user}, &stdout, &stderr) == exitOK
	}, time.Minute, 50*time.Millisecond)
}

// TestVerbsOnARealControlPlane has a pool with a node that should get another configuration, and on
// it a pod that a budget keeps. It is not parallel: other tests run controllers on pools.
func TestVerbsOnARealControlPlane(t *testing.T) {
	clients, namespace := controlPlane(t)
	scheme, err := survey.Scheme()
	require.NoError(t, err)
	require.NoError(t, rbacv1.AddToScheme(scheme))
	c, err := client.New(clustertest.ControlPlane(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, await.ServiceAccount(t.Context(), clients, namespace, "default"))
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "verbs"}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/verbs": ""}}
	pool.Spec.Configuration.Name = "rendered-verbs"
	pool.Spec.Paused = true
	one := intstr.FromInt32(1)
	db := map[string]string{"app": "db"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db-0", Labels: db}}
	pod.Spec = corev1.PodSpec{NodeName: namespace + "-n", Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/app:1"}}}
	for _, o := range []client.Object{
		pool, &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-verbs"}},
		nodestest.New(namespace+"-n", []string{"verbs"}, nodestest.Having("a")), pod,
		&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: db}},
		},
	} {
		require.NoError(t, c.Create(t.Context(), o))
		t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), o))) })
	}
	pod.Status.Phase = corev1.PodRunning
	require.NoError(t, c.Status().Update(t.Context(), pod))

	run := func(code int, says string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		require.Equal(t, code, execute(t.Context(), append(args, "--kubeconfig", clustertest.Kubeconfig(t), "-n", namespace), &stdout, &stderr), stderr.String()+stdout.String())
		assert.Contains(t, stdout.String()+stderr.String(), says)
	}
	run(exitHeld, "BudgetBlocksDrain: PodDisruptionBudget "+namespace+"/db", "rollout", "verbs", "--plan")
	run(exitHeld, "pool verbs was not resumed", "rollout", "verbs", "--resume", "--accept", "UnmanagedPod")
	run(exitOK, "pool verbs: no longer paused", "rollout", "verbs", "--resume", "--accept", "UnmanagedPod,BudgetBlocksDrain")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	assert.False(t, pool.Spec.Paused)
	run(exitFailure, "you may not list ", "rollout", "verbs", "--plan", "--as", "someone")
	allow(t, c, "someone-else", "machineconfigpools")
	for _, args := range [][]string{{"images", "verbs"}, {"images", "verbs", "--prune", "--dry-run"}, {"diff", "verbs"}, {"explain", "verbs"}, {"verify", "verbs-1"}} {
		run(exitFailure, "layerwright: you may not list machineconfiguration.openshift.io/v1", append(args, "--as", "someone-else")...)
	}
	run(exitFailure, "an administrator gives the right with a ClusterRole", "rollout", "verbs", "--pause", "--as", "someone-else")
	run(exitFailure, "pool verbs has no MachineOSConfig", "build", "verbs")
	run(exitFailure, `do you mean "verbs"?`, "build", "vebrs")
	run(exitFailure, `there is no stream "new"`, "migrate", "verbs", "--to", "new")
	run(exitFailure, "the cluster has no OSImageStream", "streams")
	run(exitOK, "no machine resource has had its boot image updated", "boot-images")
	run(exitFailure, "you may not list machineconfiguration.openshift.io/v1alpha1 bootimagehistories", "boot-images", "--as", "someone")
}

func TestWordsOfFlagsAreCompleted(t *testing.T) {
	t.Parallel()
	for flag, words := range map[string]string{"-o": "text\nwide\njson\nyaml\n", "--details": "default\nnone\nnodes\nhealth\nall\n"} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitOK, execute(t.Context(), []string{"__complete", "status", flag, ""}, &stdout, &stderr), stderr.String())
		assert.Equal(t, words+":4\n", stdout.String())
	}
}
