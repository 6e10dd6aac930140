//go:build e2e

package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/host/power"
)

// TestRollout brings images to three nodes whose hosts stage, reboot and roll back, in one order:
// each step begins where the one before has left the nodes.
func TestRollout(t *testing.T) {
	f := newFleet(t)
	for _, step := range []struct {
		name string
		test func(*fleet)
	}{
		{"an image reaches every node, one after the other", testEveryNode},
		{"configuration changes roll out; a blocking budget is named", testEdit},
		{"an image is built without rollout, a pool paused midway", testHolds},
		{"killed components and an absent API server change nothing", testKills},
		{"nodes that can't pull or store are named", testStaging},
		{"a node that comes back with the old image is named", testOldImage},
		{"a file that needs no reboot is changed as nodes run", testLive},
		{"changes that need no image arrive with the one that fits", testConfigurations},
		{"a bad image stops at the canary and is in quarantine", testCanary},
		{"a node that never comes back stops the rollout", testNoBoot},
		{"without MachineOSConfig the nodes return to the base image", testReturn},
		{"the demo's image is on every node; an edited file is named", testDemoOnNodes},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(f.in(t)) }) {
			return
		}
	}
}

func testEveryNode(f *fleet) {
	change(f, &mcfgv1.MachineConfig{}, f.configName(), func(mc *mcfgv1.MachineConfig) {
		mc.Spec.KernelArguments = []string{"lw.test=1"}
		mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[` +
			`{"path":"/etc/motd","contents":{"source":"data:,one"}},{"path":"/var/lib/lw","contents":{"source":"data:,state"}}]}}`)
	})
	order := f.next()
	f.ask()
	image := f.arrive("one")
	require.ElementsMatch(f.t, order, f.order(), "of two nodes, that goes first which holds the image first")
	require.Equal(f.t, order[len(order)-1], f.order()[len(order)-1], "the controller's own")
	for node := range zones {
		require.Contains(f.t, f.sh(node, "cat /proc/cmdline"), "lw.test=1")
		require.Equal(f.t, "state", f.sh(node, "cat /var/lib/lw"))
		require.Equal(f.t, image, f.nodes.Node(node).Annotations[mcfgv1.AnnotationCurrentImage])
	}
}

func testEdit(f *fleet) {
	order, before := f.next(), f.content()
	unblock := f.block(order[0])
	f.write("two")
	f.waitsFor(order[0] + ": is draining: pod default/db-")
	f.eventually(func(t *assert.CollectT) {
		assert.Contains(t, f.readPool(t).Status.Rollout.Summary, " blocked by budget db since ")
	})
	f.waitsFor(order[1] + ", " + order[2] + ": waits for a slot: maxUnavailable allows 1 unavailable at a time")
	require.Equal(f.t, before, f.sh(order[0], "cat /etc/motd"))
	unblock()
	f.arrive("two")
	require.Len(f.t, f.order(), len(zones))
	for node := range zones {
		require.NotContains(f.t, f.sh(node, "cat /proc/cmdline"), "lw.test=1", "the MachineConfig asks for it no longer")
		require.Equal(f.t, "gone", f.sh(node, "test -e /var/lib/lw && echo there || echo gone"))
	}
}

// block keeps a node from being drained, with a pod whose budget lets none of its kind go. unblock
// lets it go, and makes no other.
func (f *fleet) block(node string) (unblock func()) {
	f.t.Helper()
	labels, meta := map[string]string{"app": "db"}, metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "db"}
	workload := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "db", Image: f.pauseImage(), ImagePullPolicy: corev1.PullNever}},
		}},
	}}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	deployments, budgets := f.clients.AppsV1().Deployments(meta.Namespace), f.clients.PolicyV1().PodDisruptionBudgets(meta.Namespace)
	_, err := deployments.Create(f.t.Context(), workload, metav1.CreateOptions{})
	require.NoError(f.t, err)
	_, err = budgets.Create(f.t.Context(), budget, metav1.CreateOptions{})
	require.NoError(f.t, err)
	f.eventually(func(t *assert.CollectT) {
		d, err := deployments.Get(f.t.Context(), meta.Name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, 1, d.Status.AvailableReplicas)
	})
	return func() {
		f.t.Helper()
		require.NoError(f.t, budgets.Delete(f.t.Context(), meta.Name, metav1.DeleteOptions{}))
		require.NoError(f.t, deployments.Delete(f.t.Context(), meta.Name, metav1.DeleteOptions{}))
	}
}

// pauseImage is an image that every node has.
func (f *fleet) pauseImage() string {
	f.t.Helper()
	for _, image := range f.nodes.Node("node2").Status.Images {
		for _, name := range image.Names {
			if strings.Contains(name, "pause") && !strings.Contains(name, "@") {
				return name
			}
		}
	}
	require.FailNow(f.t, "no node has the pause image")
	return ""
}

func testHolds(f *fleet) {
	order, before := f.next(), f.content()
	f.changeConfig(func(c *mcfgv1.MachineOSConfig) { c.Spec.PostBuildStrategy = mcfgv1.ImagePushOnly })
	f.write("three")
	f.isBuilt("three")
	f.waitsFor("postBuildStrategy")
	require.Empty(f.t, f.order())
	for node := range zones {
		require.Equal(f.t, before, f.sh(node, "cat /etc/motd"))
	}
	f.changeConfig(func(c *mcfgv1.MachineOSConfig) { c.Spec.PostBuildStrategy = "" })
	f.isAway(order[0])
	f.changePool(func(pool *mcfgv1.MachineConfigPool) { pool.Spec.Paused = true })
	f.waitsFor(order[1] + ", " + order[2] + ": the pool is paused")
	f.eventually(func(t *assert.CollectT) { // a node that has begun finishes
		assert.Contains(t, f.readPool(t).Status.Rollout.Summary, "1/3 updated, ")
	})
	require.Equal(f.t, order[:1], f.order())
	require.Equal(f.t, "three", f.sh(order[0], "cat /etc/motd"))
	f.changePool(func(pool *mcfgv1.MachineConfigPool) { pool.Spec.Paused = false })
	f.arrive("three")
}

func (f *fleet) changeConfig(edit func(*mcfgv1.MachineOSConfig)) {
	f.t.Helper()
	change(f, &mcfgv1.MachineOSConfig{}, f.pool, edit)
}

// isAway waits until a node has been cordoned for its update.
func (f *fleet) isAway(node string) {
	f.t.Helper()
	f.eventually(func(t *assert.CollectT) {
		assert.NotEmpty(t, f.order())
		assert.True(t, f.nodes.Node(node).Spec.Unschedulable)
	})
}

func testKills(f *fleet) {
	order := f.next()
	first := order[0]
	f.write("four")
	// Each phase of the first node that goes: it stages, drains, is about to reboot, and is back.
	for _, reached := range []func(*corev1.Node) bool{
		func(n *corev1.Node) bool {
			return n.Annotations[mcfgv1.AnnotationStageImage] != n.Annotations[mcfgv1.AnnotationCurrentImage]
		},
		func(n *corev1.Node) bool {
			return strings.HasPrefix(n.Annotations[mcfgv1.AnnotationDesiredDrain], mcfgv1.DrainPrefix)
		},
		func(n *corev1.Node) bool { return n.Annotations[mcfgv1.AnnotationState] == mcfgv1.NodeStateRebooting },
		func(n *corev1.Node) bool {
			return n.Annotations[mcfgv1.AnnotationStageImage] == n.Annotations[mcfgv1.AnnotationCurrentImage]
		},
	} {
		f.eventually(func(t *assert.CollectT) { assert.True(t, reached(f.nodes.Node(first))) })
		f.deletePods("agent")
		f.deletePods("controller")
	}
	f.isAway(order[1])
	f.kill("kube-apiserver")
	time.Sleep(time.Minute) // that is the fault
	f.up()
	f.write("five")
	f.arrive("five")
}

func testStaging(f *fleet) {
	order := f.next()
	hasSpace, pulls := f.fails(order[0], power.DiskFull), f.fails(order[1], power.PullCut)
	f.write("six")
	f.waitsFor(order[0] + ": can't stage the image: ")
	f.waitsFor(order[1] + ": can't stage the image: ")
	f.eventually(func(t *assert.CollectT) {
		waits := strings.Join(f.readPool(t).Status.Rollout.WaitingFor, "\n")
		assert.Contains(t, waits, "would be exceeded")
		assert.Contains(t, waits, "connection reset by peer")
	})
	require.NotContains(f.t, f.order(), order[0])
	require.NotContains(f.t, f.order(), order[1])
	hasSpace()
	pulls()
	f.eventually(func(t *assert.CollectT) {
		image := string(f.config(t).Status.CurrentImagePullSpec)
		for node := range zones {
			a := f.nodes.Node(node).Annotations
			assert.Contains(t, []string{a[mcfgv1.AnnotationStagedImage], a[mcfgv1.AnnotationCurrentImage]}, image)
		}
	})
	f.kill("registry")
	f.eventually(func(t *assert.CollectT) { assert.Equal(t, "3/3 updated", f.readPool(t).Status.Rollout.Summary) })
	f.up()
	f.arrive("six")
}

func testOldImage(f *fleet) {
	first, before := f.next()[0], f.content()
	works := f.fails(first, power.OldImage)
	f.write("seven")
	f.waitsFor(first + ": went back, because it failed: the node came back with ")
	works()
	require.Equal(f.t, before, f.sh(first, "cat /etc/motd"))
	f.resume()
	f.arrive("seven")
}

// resume resumes a rollout, as an administrator does.
func (f *fleet) resume() {
	f.t.Helper()
	f.changePool(func(pool *mcfgv1.MachineConfigPool) {
		metav1.SetMetaDataAnnotation(&pool.ObjectMeta, mcfgv1.AnnotationResumeRollout, "")
	})
}

func testNoBoot(f *fleet) {
	f.changePool(func(pool *mcfgv1.MachineConfigPool) {
		pool.Spec.Rollout.RebootTimeout, pool.Spec.Rollout.HaltThreshold = "1m", new(intstr.FromInt32(1))
	})
	first, before := f.next()[0], f.content()
	works := f.fails(first, power.NoBoot)
	f.write("eight")
	f.eventually(func(t *assert.CollectT) {
		pool := f.readPool(t)
		assert.Equal(t, "True", poolCondition(pool, string(mcfgv1.PoolRolloutDegraded)))
	})
	require.Equal(f.t, []string{first, first}, f.order(), "there and back")
	works()
	require.NoError(f.t, f.stack.HostLine(first).Ask(power.SwitchOn))
	f.eventually(func(t *assert.CollectT) { // it goes back, as the others never tried the image
		text, err := f.try(first, "cat /etc/motd")
		require.NoError(t, err)
		assert.Equal(t, before, text)
	})
	f.changePool(func(pool *mcfgv1.MachineConfigPool) { pool.Spec.Rollout = oneStages() })
	f.resume()
	f.arrive("eight")
}

func testReturn(f *fleet) {
	require.NoError(f.t, f.Delete(f.t.Context(), f.config(f.t)))
	f.eventually(func(t *assert.CollectT) {
		pool := f.readPool(t)
		require.NotNil(t, pool.Status.Rollout)
		require.Equal(t, []string{f.base, "3/3 updated"}, []string{string(pool.Status.Rollout.TargetImagePullSpec), pool.Status.Rollout.Summary})
		require.Equal(t, "True", poolCondition(pool, "Updated"))
		require.Len(t, f.images(t), 1)
	})
	kept := string(f.images(f.t)[0].Spec.PullSpec)
	for node := range zones {
		require.Equal(f.t, mcfgv1.ImageDigestFormat(f.base).Digest(), f.booted(node))
		require.Equal(f.t, kept, f.nodes.Node(node).Annotations[mcfgv1.AnnotationPreviousImage], "%s would go back there", node)
	}
}

func testDemoOnNodes(f *fleet) {
	require.NoError(f.t, f.Delete(f.t.Context(), f.machineConfig(""))) // it has the demo's file too
	said := f.cluster("demo", "--base", "tiny")
	for node := range zones {
		for _, line := range []string{"stages the image", "holds the image, waits for a slot", `runs the image, was away for [\d.]+ m?s`} {
			require.Regexp(f.t, `(?m)^  `+node+` +`+line+`$`, said)
		}
		require.Regexp(f.t, `^Welcome to a worker that was rolled out, changed at \d\d:\d\d:\d\d\.$`, f.sh(node, "cat /etc/motd"))
	}
	require.Regexp(f.t, `\n  reported    .*/etc/motd has other content`, said)
	require.Equal(f.t, "False", poolCondition(f.readPool(f.t), "Degraded"))
	require.Empty(f.t, f.brokenRules())
}
