package view_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/view"
)

const (
	oldImage = "registry.example.com/os/worker@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	newImage = "registry.example.com/os/worker@sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

// large is a pool of many nodes: a quarter is updated, one after another fails, others pull or
// wait.
func large(count int) *view.Objects {
	o := &view.Objects{Pools: []mcfgv1.MachineConfigPool{{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: mcfgv1.MachineConfigPoolSpec{
			NodeSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}},
			Configuration: mcfgv1.MachineConfigPoolStatusConfiguration{ObjectReference: corev1.ObjectReference{Name: "rendered-worker-2"}},
		},
		Status: mcfgv1.MachineConfigPoolStatus{Rollout: &mcfgv1.RolloutStatus{
			Summary: "1249/5000 updated, node-0007: its update failed: the disk is full", TargetConfiguration: "rendered-worker-2", TargetImagePullSpec: newImage,
			WaitingFor: []string{
				"node-0007: its update failed: the disk is full",
				"nodes node-0002, node-0006, node-0010 and 1247 more: stages the image",
				"nodes node-0001, node-0005, node-0009 and 2497 more: waits for a slot: maxUnavailable allows 1 unavailable at a time: node-0007 is degraded",
			},
		}},
	}}, Configs: []mcfgv1.MachineOSConfig{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}}
	for i := range count {
		o.Nodes, o.Reports = append(o.Nodes, nodeOfMany(i)), append(o.Reports, reportOfMany(i))
	}
	return o
}

func nodeOfMany(i int) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)}}
	n.Labels = map[string]string{"node-role.kubernetes.io/worker": "", "kubernetes.io/hostname": n.Name, "kubernetes.io/os": "linux"}
	current := 1 + (3-i%4)/3
	image := map[int]string{1: oldImage, 2: newImage}
	n.Annotations = map[string]string{
		mcfgv1.AnnotationCurrentConfig: fmt.Sprintf("rendered-worker-%d", current), mcfgv1.AnnotationDesiredConfig: fmt.Sprintf("rendered-worker-%d", current),
		mcfgv1.AnnotationCurrentImage: image[current], mcfgv1.AnnotationDesiredImage: image[current], mcfgv1.AnnotationState: mcfgv1.NodeStateDone,
		mcfgv1.AnnotationStagedImage: newImage, mcfgv1.AnnotationStageImage: newImage,
	}
	switch {
	case i == 7:
		n.Annotations[mcfgv1.AnnotationDesiredConfig], n.Annotations[mcfgv1.AnnotationDesiredImage] = "rendered-worker-2", newImage
		n.Annotations[mcfgv1.AnnotationState], n.Annotations[mcfgv1.AnnotationReason] = mcfgv1.NodeStateDegraded, "the disk is full"
	case i%4 == 2:
		n.Annotations[mcfgv1.AnnotationStagedImage] = ""
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func reportOfMany(i int) mcfgv1.MachineConfigNode {
	r := mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)}}
	at := metav1.NewTime(now().Add(-5 * time.Minute))
	r.Status.Conditions = []metav1.Condition{{Type: mcfgv1.NodeUpdated, Status: metav1.ConditionTrue, LastTransitionTime: at}}
	return r
}

func TestManyNodesAreAFewLines(t *testing.T) {
	t.Parallel()
	text := render(t, large(5000), 100)
	golden(t, "testdata/large.txt", text)
	require.Contains(t, text, "node-0007: Degraded", "the one that differs is there")
	require.Less(t, strings.Count(text, "\n"), 45)
}

// TestManyReasonsAreBounded has each node fail in words of its own, and one at another step.
func TestManyReasonsAreBounded(t *testing.T) {
	t.Parallel()
	o := large(1000)
	o.Pools[0].Status.Rollout.WaitingFor = nil
	for i := range o.Nodes {
		a := o.Nodes[i].Annotations
		a[mcfgv1.AnnotationCurrentConfig], a[mcfgv1.AnnotationCurrentImage] = "rendered-worker-1", oldImage
		a[mcfgv1.AnnotationDesiredConfig], a[mcfgv1.AnnotationDesiredImage] = "rendered-worker-2", newImage
		a[mcfgv1.AnnotationState], a[mcfgv1.AnnotationReason] = mcfgv1.NodeStateDegraded, fmt.Sprintf("error %d", i)
	}
	o.Nodes[500].Annotations[mcfgv1.AnnotationState] = mcfgv1.NodeStateRebooting
	text := render(t, o, 100)
	require.Regexp(t, `node-0500 +Progressing  rebooting`, text)
	require.Regexp(t, `node-0003, \+995 +Degraded`, text)
	require.Less(t, strings.Count(text, "\n"), 60)
}

// TestCostOfManyNodes bounds what the view of a large cluster allocates for each node.
func TestCostOfManyNodes(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts those of the whole process
	const count, most = 5000, 5
	o := large(count)
	allocations := testing.AllocsPerRun(3, func() {
		require.NoError(t, view.Text(io.Discard, view.Of(o), view.Style{Now: now(), Width: 100}))
	})
	require.Less(t, allocations/count, float64(most), "allocations for each node")
}

func BenchmarkLarge(b *testing.B) {
	o := large(5000)
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, view.Text(io.Discard, view.Of(o), view.Style{Now: now(), Width: 100}))
	}
}
