package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

func TestImageReachesNodesInTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"),
		newNode("a"), newNode("b"), newNode("c"))
	w.reconcile()
	for _, name := range []string{"a", "b", "c"} {
		assert.Equal(t, nodestest.Pinned("2"), w.node(name).Annotations[mcfgv1.AnnotationStageImage], "all nodes stage at once")
		assert.Equal(t, "rendered-1", w.node(name).Annotations[mcfgv1.AnnotationDesiredConfig], "none goes away for it")
		require.True(t, w.act(name))
	}
	w.reconcile()
	assert.Equal(t, "rendered-2", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])
	assert.Equal(t, nodestest.Pinned("2"), w.node("a").Annotations[mcfgv1.AnnotationDesiredImage])
	assert.Equal(t, "rendered-1", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig], "one at a time")
	s := w.pool().Status
	assert.Equal(t, nodestest.Pinned("2"), string(s.OSImagePullSpec))
	assert.Equal(t, "222222222222", s.ShortDigest)
	assert.Equal(t, "0/3 updated, b: waits for a slot: maxUnavailable allows 1 unavailable at a time: a is told to change", s.Rollout.Summary)
	assert.Equal(t, nodestest.Pinned("2"), string(s.Rollout.TargetImagePullSpec))
	assert.True(t, s.Rollout.StartTime.Time.Equal(t0))
	assert.Nil(t, s.Rollout.CompletionTime)

	w.settle()
	w.clock.SetTime(t0.Add(time.Minute))
	for _, name := range []string{"a", "b", "c"} {
		n := w.node(name)
		assert.Equal(t, nodestest.Pinned("2"), n.Annotations[mcfgv1.AnnotationCurrentImage])
		mcn := &mcfgv1.MachineConfigNode{}
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: name}, mcn))
		assert.Equal(t, "rendered-2", mcn.Spec.ConfigVersion.Desired)
		assert.Equal(t, nodestest.Pinned("2"), string(mcn.Spec.ConfigImage.DesiredImage))
		assert.Equal(t, "worker", mcn.Spec.Pool.Name)
		assert.Equal(t, 3, w.writes[name], "stage, update, and the MachineConfigNode")
	}
	s = w.pool().Status
	assert.Equal(t, "3/3 updated", s.Rollout.Summary)
	assert.Empty(t, s.Rollout.WaitingFor)
	assert.NotNil(t, s.Rollout.CompletionTime)
	assert.Equal(t, []string{
		"Normal SetDesiredConfigAndOSImage Targeted node a to MachineConfig: rendered-2 and OS image: " + nodestest.Pinned("2"),
		"Normal Updating The nodes of pool worker are being updated",
		"Normal SetDesiredConfigAndOSImage Targeted node b to MachineConfig: rendered-2 and OS image: " + nodestest.Pinned("2"),
		"Normal SetDesiredConfigAndOSImage Targeted node c to MachineConfig: rendered-2 and OS image: " + nodestest.Pinned("2"),
		"Normal Completed All nodes of pool worker are updated",
	}, w.told())
	w.settle()
	assert.Empty(t, w.told(), "what has been told is not told again")
}

// TestACacheThatIsBehindLetsNoFurtherNodeGo is about the time between a write and its event.
func TestACacheThatIsBehindLetsNoFurtherNodeGo(t *testing.T) {
	t.Parallel()
	image := nodestest.Annotated(mcfgv1.AnnotationStagedImage, nodestest.Pinned("2"))
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"),
		newNode("a", image), newNode("b", image))
	w.stale["a"] = w.node("a")
	w.reconcile()
	w.reconcile()
	assert.Equal(t, "rendered-2", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])
	assert.Equal(t, "rendered-1", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig], "the cache does not know yet that a goes")

	delete(w.stale, "a")
	require.True(t, w.act("a"))
	require.True(t, w.act("a"))
	w.reconcile()
	assert.Equal(t, "rendered-2", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig], "a has arrived")
	assert.NotContains(t, w.r.written, "a", "what the cache has is not kept")
}

// TestACacheThatIsBehindGetsNoSecondReport is about the time between a write and its event.
func TestACacheThatIsBehindGetsNoSecondReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"))
	w.reconcile()
	report := &mcfgv1.MachineConfigNode{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "a"}, report))
	require.Equal(t, "rendered-1", report.Spec.ConfigVersion.Desired)
	w.staleReports = map[string]*mcfgv1.MachineConfigNode{"a": report}
	w.settle()
	assert.Equal(t, 3, w.writes["a"], "stage, update, and the MachineConfigNode")

	w.staleReports = nil
	w.reconcile()
	assert.NotContains(t, w.r.writtenReports, "a", "what the cache has is not kept")
}

func TestAnImageThatIsHeldBackChangesNothing(t *testing.T) {
	t.Parallel()
	notReady := newImage("new", "2", "rendered-1")
	notReady.Status.Conditions[0].Status, notReady.Status.Conditions[0].Reason = metav1.ConditionFalse, "NotSigned"
	noRollout, pushOnly := newLayer("2"), newLayer("2")
	noRollout.Annotations = map[string]string{mcfgv1.AnnotationNoRollout: ""}
	pushOnly.Spec.PostBuildStrategy = mcfgv1.ImagePushOnly
	onAnother := newImage("new", "2", "rendered-1")
	onAnother.Spec.BaseOSImagePullSpec = mcfgv1.ImageDigestFormat(nodestest.Pinned("9"))
	tests := map[string]struct {
		layer *mcfgv1.MachineOSConfig
		image *mcfgv1alpha1.MachineOSImage
		says  string
		tells []string
	}{
		"it is not ready": {
			newLayer("2"), notReady, "a: check Ready: MachineOSImage new is not ready: NotSigned",
			[]string{"Warning ImageHeldBack The image does not reach the nodes: check Ready: MachineOSImage new is not ready: NotSigned"},
		},
		"it stands on another OS image": {
			newLayer("2"), onAnother, "a: check BaseImage: MachineOSImage new is built on 999999999999, but the pool uses 000000000000",
			[]string{"Warning ImageHeldBack The image does not reach the nodes: check BaseImage: MachineOSImage new is built on 999999999999, but the pool uses 000000000000"},
		},
		"an annotation asks for no rollout": {
			noRollout, newImage("new", "2", "rendered-1"), "a: MachineOSConfig worker has the annotation machineconfiguration.openshift.io/noRollout", nil,
		},
		"images are pushed only": {
			pushOnly, newImage("new", "2", "rendered-1"), "a: spec.postBuildStrategy of MachineOSConfig worker is ImagePushOnly", nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := newPool("rendered-1")
			before.Status.OSImagePullSpec = mcfgv1.ImageDigestFormat(nodestest.Pinned("1"))
			w := newWorld(t, before, newConfig("rendered-1", "0"), tt.layer, tt.image, newNode("a", nodestest.HavingImage("1")))
			w.settle()
			assert.Equal(t, nodestest.Pinned("1"), w.node("a").Annotations[mcfgv1.AnnotationDesiredImage])
			assert.NotContains(t, w.node("a").Annotations, mcfgv1.AnnotationStageImage)
			s := w.pool().Status
			assert.Equal(t, nodestest.Pinned("1"), string(s.OSImagePullSpec), "what the nodes should have stays")
			assert.Equal(t, []string{tt.says}, s.Rollout.WaitingFor)
			assert.Equal(t, tt.tells, w.told())
		})
	}
}

func TestNodesReturnToTheBaseImage(t *testing.T) {
	t.Parallel()
	before := newPool("rendered-1")
	before.Status.OSImagePullSpec = mcfgv1.ImageDigestFormat(nodestest.Pinned("1"))
	w := newWorld(t, before, newConfig("rendered-1", "0"), newNode("a", nodestest.HavingImage("1")), newNode("b", nodestest.HavingImage("1")))
	w.reconcile()
	assert.Equal(t, nodestest.Pinned("0"), w.node("a").Annotations[mcfgv1.AnnotationStageImage])
	w.settle()
	for _, name := range []string{"a", "b"} {
		assert.NotContains(t, w.node(name).Annotations, mcfgv1.AnnotationDesiredImage)
		assert.NotContains(t, w.node(name).Annotations, mcfgv1.AnnotationStageImage)
	}
	assert.Empty(t, w.pool().Status.OSImagePullSpec)
	assert.Equal(t, "2/2 updated", w.pool().Status.Rollout.Summary)
}

func TestAPinnedImageBringsItsConfiguration(t *testing.T) {
	t.Parallel()
	pinned := newPool("rendered-2", func(p *mcfgv1.MachineConfigPool) { p.Spec.MachineOSImage = "old" })
	w := newWorld(t, pinned, newConfig("rendered-2", "0"), newLayer("2"), newImage("old", "1", "rendered-1"), newImage("new", "2", "rendered-2"),
		newNode("a", nodestest.Having("rendered-2"), nodestest.HavingImage("2")))
	w.settle()
	assert.Equal(t, "rendered-1", w.node("a").Annotations[mcfgv1.AnnotationCurrentConfig])
	assert.Equal(t, nodestest.Pinned("1"), w.node("a").Annotations[mcfgv1.AnnotationCurrentImage])
	assert.Equal(t, nodestest.Pinned("1"), string(w.pool().Status.OSImagePullSpec))
}

func TestAPausedPoolGoesOnWhereItStood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"), newNode("b"))
	w.reconcile()
	require.True(t, w.act("a"))
	w.reconcile()
	p := w.pool()
	p.Spec.Paused = true
	require.NoError(t, w.Update(t.Context(), p))
	w.settle()
	assert.Equal(t, "rendered-2", w.node("a").Annotations[mcfgv1.AnnotationCurrentConfig], "a node that has begun finishes")
	assert.Equal(t, "rendered-1", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig])
	assert.Equal(t, "1/2 updated, b: the pool is paused", w.pool().Status.Rollout.Summary)

	w.restart()
	p = w.pool()
	p.Spec.Paused = false
	require.NoError(t, w.Update(t.Context(), p))
	w.settle()
	assert.Equal(t, "2/2 updated", w.pool().Status.Rollout.Summary)
}

// reportOf is a report of an agent that was told to have a configuration and an image.
func reportOf(config, image string) *mcfgv1.MachineConfigNode {
	mcn := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	mcn.Status.ConfigVersion = &mcfgv1.MachineConfigNodeStatusMachineConfigVersion{Desired: config}
	mcn.Status.ConfigImage.DesiredImage = mcfgv1.ImageDigestFormat(image)
	return mcn
}

func TestAgentsThatFailAreHeard(t *testing.T) {
	t.Parallel()
	report := func(conditionType, reason, message string) *mcfgv1.MachineConfigNode {
		mcn := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		mcn.Status.Conditions = []metav1.Condition{{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(t0)}}
		return mcn
	}
	staging := nodestest.Annotated(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	draining := func(n *corev1.Node) {
		n.Annotations[mcfgv1.AnnotationDesiredConfig], n.Annotations[mcfgv1.AnnotationDesiredImage] = "rendered-2", nodestest.Pinned("2")
		n.Annotations[mcfgv1.AnnotationState], n.Annotations[mcfgv1.AnnotationDesiredDrain] = mcfgv1.NodeStateWorking, "drain-2"
	}
	tests := map[string]struct {
		node   *corev1.Node
		report *mcfgv1.MachineConfigNode
		want   string
	}{
		"staging failed": {
			newNode("a", staging), report(mcfgv1.NodeImagePulledFromRegistry, mcfgv1.ReasonStagingFailed, "no space left on device"),
			"0/1 updated, a: can't stage the image: no space left on device",
		},
		"staging has not been reported on": {
			newNode("a", staging), report(mcfgv1.NodeImagePulledFromRegistry, "NotYet", "not asked for"), "0/1 updated, a: stages the image",
		},
		"a budget blocks the drain": {
			newNode("a", draining), report(mcfgv1.NodeDrained, mcfgv1.ReasonDrainBlocked, "pod shop/db-0 blocked by budget db since 2026-03-04T05:06:07Z"),
			"0/1 updated, a: is draining: pod shop/db-0 blocked by budget db since 2026-03-04T05:06:07Z",
		},
		"its pods take their time": {
			newNode("a", draining), report(mcfgv1.NodeDrained, mcfgv1.ReasonDraining, "pod shop/db-0 has until 2026-03-04T05:06:07Z to end"),
			"0/1 updated, a: is draining: pod shop/db-0 has until 2026-03-04T05:06:07Z to end",
		},
		"another agent says that it was drained before": {newNode("a", draining), report(mcfgv1.NodeDrained, "Drained", "node is drained"), "0/1 updated, a: is draining"},
		"a degraded node was told something new": {
			newNode("a", func(n *corev1.Node) {
				draining(n)
				n.Annotations[mcfgv1.AnnotationState], n.Annotations[mcfgv1.AnnotationReason] = mcfgv1.NodeStateDegraded, "/etc/motd has other content"
				delete(n.Annotations, mcfgv1.AnnotationDesiredDrain)
			}), reportOf("rendered-1", nodestest.Pinned("1")),
			"0/1 updated, a: was told to change, and its agent has not answered yet",
		},
		"there is no agent": {
			nodestest.New("a", []string{"worker"}), nil, "0/1 updated, a: no node agent has reported from it",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []client.Object{newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), tt.node}
			if tt.report != nil {
				objects = append(objects, tt.report)
			}
			w := newWorld(t, objects...)
			w.reconcile()
			assert.Equal(t, tt.want, w.pool().Status.Rollout.Summary)
		})
	}
}

func TestEtcdKeepsItsMajority(t *testing.T) {
	t.Parallel()
	member := func(name, node string, is corev1.ConditionStatus) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: map[string]string{"component": "etcd"}}}
		p.Spec.NodeName = node
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
		return p
	}
	pool := newPool("rendered-2", func(p *mcfgv1.MachineConfigPool) {
		p.Name = "master"
		p.Spec.NodeSelector.MatchLabels = map[string]string{"node-role.kubernetes.io/master": ""}
	})
	master := nodestest.Labelled("node-role.kubernetes.io/master", "")
	last := member("etcd-c", "c", corev1.ConditionFalse)
	w := newWorld(t, pool, newConfig("rendered-2", ""), newNode("a", master), newNode("b", master),
		member("etcd-a", "a", corev1.ConditionTrue), member("etcd-b", "b", corev1.ConditionTrue), last)
	mc := newConfig("rendered-2", "")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(mc), mc))
	mc.Spec.OSImageURL = "" // a change of the configuration alone
	require.NoError(t, w.Update(t.Context(), mc))

	result, err := w.r.Reconcile(t.Context(), request("master")[0])
	require.NoError(t, err)
	assert.Equal(t, etcdInterval, result.RequeueAfter, "nothing else says when the member is back")
	assert.Equal(t, "rendered-1", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])

	last.Status.Conditions[0].Status = corev1.ConditionTrue
	require.NoError(t, w.Status().Update(t.Context(), last))
	result, err = w.r.Reconcile(t.Context(), request("master")[0])
	require.NoError(t, err)
	assert.Zero(t, result)
	assert.Equal(t, "rendered-2", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])
}

// TestControlPlanePoolsTakeTurns is about etcd's members on the nodes of both:
// those that were told to change are Ready until they reboot.
func TestControlPlanePoolsTakeTurns(t *testing.T) {
	t.Parallel()
	poolOf := func(name string) *mcfgv1.MachineConfigPool {
		return newPool("rendered-2", func(p *mcfgv1.MachineConfigPool) {
			p.Name = name
			p.Spec.NodeSelector.MatchLabels = map[string]string{"node-role.kubernetes.io/" + name: ""}
		})
	}
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-2"}} // a change of the configuration alone
	objects := []client.Object{poolOf("master"), poolOf("arbiter"), mc}
	for node, role := range map[string]string{"a": "master", "b": "master", "c": "arbiter"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "etcd-" + node, Labels: map[string]string{"component": "etcd"}}}
		p.Spec.NodeName = node
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		objects = append(objects, p, newNode(node, nodestest.Labelled("node-role.kubernetes.io/"+role, "")))
	}
	w := newWorld(t, objects...)
	for _, pool := range []string{"master", "arbiter", "master"} {
		_, err := w.r.Reconcile(t.Context(), request(pool)[0])
		require.NoError(t, err)
	}
	told := map[string]string{}
	for _, node := range []string{"a", "b", "c"} {
		told[node] = w.node(node).Annotations[mcfgv1.AnnotationDesiredConfig]
	}
	assert.Equal(t, map[string]string{"a": "rendered-2", "b": "rendered-1", "c": "rendered-1"}, told)
}

// TestFalseClaimHoldsNoOtherNode is about an agent that says it runs what its node was
// never told to, with a kubelet that the API server does not support.
func TestFalseClaimHoldsNoOtherNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("b"),
		newNode("a", nodestest.Annotated(mcfgv1.AnnotationCurrentImage, nodestest.Pinned("2")), func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.99.0" }))
	w.reconcile()
	for _, line := range w.pool().Status.Rollout.WaitingFor {
		assert.NotContains(t, line, "KubeletVersion")
	}
	assert.Equal(t, nodestest.Pinned("2"), w.node("b").Annotations[mcfgv1.AnnotationStageImage])
}

// TestUnsupportedKubeletStopsTheRollout has the first node find out which
// kubelet an image has.
func TestUnsupportedKubeletStopsTheRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"), newNode("b"))
	w.reconcile()
	require.Zero(t, w.asked, "no node runs the image")
	for _, name := range []string{"a", "b"} {
		require.True(t, w.act(name))
	}
	w.reconcile()
	for w.node("a").Annotations[mcfgv1.AnnotationCurrentImage] != nodestest.Pinned("2") {
		require.True(t, w.act("a"))
	}
	a := w.node("a")
	a.Status.NodeInfo.KubeletVersion = "v1.35.0"
	require.NoError(t, w.Status().Update(t.Context(), a))

	const held = "check KubeletVersion: MachineOSImage new has kubelet v1.35.0, which is newer than the API server's v1.34.2"
	result := w.reconcile()
	assert.Equal(t, "1/2 updated, b: "+held, w.pool().Status.Rollout.Summary)
	assert.Equal(t, "rendered-1", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig])
	assert.Equal(t, time.Minute, result.RequeueAfter, "nothing tells that the API server was updated")
	w.server = "v1.35.1"
	w.reconcile()
	assert.Equal(t, 1, w.asked, "it is not asked in every reconcile")
	assert.Equal(t, "rendered-1", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig])
	w.clock.SetTime(t0.Add(time.Minute))
	w.reconcile()
	assert.Equal(t, "rendered-2", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig])
}
