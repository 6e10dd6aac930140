//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// TestPoolOfRealNodes has the controller, as it is deployed and with the rights that it is deployed
// with, render a pool and count its nodes, whose kubelets are at work.
func TestPoolOfRealNodes(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, mcfgv1.AddToScheme(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	c, err := client.New(config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	pod := newControllerPod(t)

	role := map[string]string{mcfgv1.LabelRole: mcfgv1.PoolWorker}
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "e2e-motd", Labels: role}}
	mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,hello"}}]}}`)
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.PoolWorker}, Spec: mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: role},
		NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelOSStable: "linux"}},
	}}
	for _, object := range []client.Object{mc, pool} {
		require.NoError(t, c.Create(t.Context(), object))
		t.Cleanup(func() { require.NoError(t, c.Delete(context.WithoutCancel(t.Context()), object)) })
	}
	var nodes corev1.NodeList
	require.NoError(t, c.List(t.Context(), &nodes))
	require.NotEmpty(t, nodes.Items)
	begin := time.Now()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
		assert.True(collect, strings.HasPrefix(pool.Spec.Configuration.Name, "rendered-worker-"))
		assert.Equal(collect, []int{len(nodes.Items), 0}, []int{int(pool.Status.MachineCount), int(pool.Status.UpdatedMachineCount)}, "there is no node agent")
		assert.Equal(collect, pool.Generation, pool.Status.ObservedGeneration)
	}, 2*time.Minute, 50*time.Millisecond)
	t.Logf("a new pool had its configuration and its counts after %v", time.Since(begin).Round(time.Millisecond))

	_, err = clients(t).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-pool-scraper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "layerwright-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "e2e-pool-scraper", Namespace: "default"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, clients(t).RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), "e2e-pool-scraper", metav1.DeleteOptions{}))
	})
	metrics := scrape(t, pod, token(t, "e2e-pool-scraper"))
	require.Equal(t, http.StatusOK, metrics.status)
	require.Contains(t, metrics.body, fmt.Sprintf("layerwright_pool_machines{pool=\"worker\",state=\"all\"} %d\n", len(nodes.Items)))
}
