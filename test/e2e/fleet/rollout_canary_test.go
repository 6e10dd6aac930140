//go:build e2e

package fleet

import (
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// shop names a workload with a pod on each node, which does not start where the node lacks
// shopFile.
const shop = "shop"

// testCanary rolls out an image that boots and breaks the shop. Neither the controller, which is
// killed as it gives its verdict, nor the registry is needed for the way back.
func testCanary(f *fleet) {
	f.openShop()
	content := f.content()
	before := f.arrive(content)
	f.changePool(needsShop)
	first := f.next()[0]
	f.write(bad)
	f.eventually(func(t *assert.CollectT) { assert.False(t, f.isShopReady(t, first)) })
	f.kill("registry")
	f.eventually(func(t *assert.CollectT) { assert.NotEmpty(t, f.quarantined(t)) })
	f.deletePods("controller")
	f.eventually(func(t *assert.CollectT) {
		pool := f.readPool(t)
		assert.Equal(t, "True", poolCondition(pool, string(mcfgv1.PoolRolloutDegraded)))
		assert.Equal(t, []int{1, 1}, []int{int(pool.Status.Rollout.FailedMachineCount), int(pool.Status.Rollout.RolledBackMachineCount)})
		assert.Equal(t, before, f.nodes.Node(first).Annotations[mcfgv1.AnnotationCurrentImage])
		assert.True(t, f.isShopReady(t, first))
	})
	f.t.Log(f.readPool(f.t).Status.Rollout.Summary)
	require.Contains(f.t, f.nodes.Node(first).Annotations[mcfgv1.AnnotationFailedReason], "health check "+shop+" did not hold within 10s: "+shop+"-")
	require.Equal(f.t, []string{first, first}, f.order(), "there and back")
	require.Equal(f.t, content, f.sh(first, "cat /etc/motd"))
	failed := string(f.config(f.t).Status.CurrentImagePullSpec)
	require.Equal(f.t, []string{failed}, f.quarantined(f.t))
	f.up()

	f.write("good")
	good := f.arrive("good")
	f.nodes.Forget()
	f.write(bad) // makes the same image
	f.eventually(func(t *assert.CollectT) {
		pool := f.readPool(t)
		assert.Equal(t, failed, string(pool.Status.Rollout.TargetImagePullSpec))
		assert.Equal(t, "True", poolCondition(pool, string(mcfgv1.PoolRolloutDegraded)))
	})
	f.write("good")
	require.Equal(f.t, good, f.arrive("good"))
	require.NotContains(f.t, strings.Join(f.nodes.Lines(), "\n"), "stage="+short(failed), "no node stages what is in quarantine")
	f.changePool(func(pool *mcfgv1.MachineConfigPool) { pool.Spec.Rollout = oneStages() })
}

// needsShop has a pool's nodes go back from an image with which the shop does not run.
func needsShop(pool *mcfgv1.MachineConfigPool) {
	pool.Spec.Rollout.Canary = &mcfgv1.RolloutCanary{SoakTime: "5s"}
	pool.Spec.Rollout.HealthChecks = []mcfgv1.RolloutHealthCheck{{
		Name: shop, Timeout: "10s",
		Pods: &mcfgv1.RolloutHealthPods{Namespace: metav1.NamespaceDefault, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": shop}}},
		Expression: `pods.filter(p, !p.status.conditions.exists(c, c.type == "Ready" && c.status == "True"))` +
			`.map(p, p.metadata.name + " is not Ready").join(", ")`,
	}}
}

// quarantined are the images in quarantine.
func (f *fleet) quarantined(t require.TestingT) (images []string) {
	for _, image := range f.images(t) {
		if isQuarantined(&image) {
			images = append(images, string(image.Spec.PullSpec))
		}
	}
	return images
}

func isQuarantined(image *mcfgv1alpha1.MachineOSImage) bool {
	return image.Status.Quarantine != nil && status.IsTrue(image.Status.Conditions, mcfgv1alpha1.ImageQuarantined)
}

// openShop deploys the shop, and lets the controller look at its pods.
func (f *fleet) openShop() {
	f.t.Helper()
	labels, meta := map[string]string{"app": shop}, metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: shop}
	set := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: shop, Image: f.pauseImage(), ImagePullPolicy: corev1.PullNever, VolumeMounts: []corev1.VolumeMount{{Name: shop, MountPath: "/shop"}},
			}},
			Volumes: []corev1.Volume{{Name: shop, VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: stack.HostRoot + shopFile, Type: new(corev1.HostPathFile)},
			}}},
		}},
	}}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: shop},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: stack.Namespace, Name: stack.ControllerName}},
	}
	_, err := f.clients.AppsV1().DaemonSets(meta.Namespace).Create(f.t.Context(), set, metav1.CreateOptions{})
	require.NoError(f.t, err)
	_, err = f.clients.RbacV1().Roles(meta.Namespace).Create(f.t.Context(), role, metav1.CreateOptions{})
	require.NoError(f.t, err)
	_, err = f.clients.RbacV1().RoleBindings(meta.Namespace).Create(f.t.Context(), binding, metav1.CreateOptions{})
	require.NoError(f.t, err)
	f.eventually(func(t *assert.CollectT) {
		for node := range zones {
			assert.True(t, f.isShopReady(t, node), node)
		}
	})
}

// isShopReady reports whether the shop's pod on a node is Ready.
func (f *fleet) isShopReady(t require.TestingT, node string) bool {
	pods, err := f.clients.CoreV1().Pods(metav1.NamespaceDefault).List(f.t.Context(), metav1.ListOptions{LabelSelector: "app=" + shop, FieldSelector: "spec.nodeName=" + node})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	for _, c := range pods.Items[0].Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
