package demo

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

const (
	oldImage = "registry.a.test:5000/os/worker@sha256:1"
	newImage = "registry.a.test:5000/os/worker@sha256:2"
)

// nodeSaying is a node that is Ready, with annotations as name and value.
func nodeSaying(annotations ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Annotations: map[string]string{mcfgv1.AnnotationCurrentImage: oldImage}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for i := 0; i+1 < len(annotations); i += 2 {
		n.Annotations[annotations[i]] = annotations[i+1]
	}
	return n
}

func cordoned(n *corev1.Node) *corev1.Node {
	n.Spec.Unschedulable = true
	return n
}

// story of one node, from the old image to the new one.
func update() []struct {
	node *corev1.Node
	says string
} {
	told := []string{mcfgv1.AnnotationStageImage, newImage, mcfgv1.AnnotationStagedImage, newImage, mcfgv1.AnnotationDesiredImage, newImage}
	drain := append(slices.Clone(told), mcfgv1.AnnotationState, mcfgv1.NodeStateWorking, mcfgv1.AnnotationDesiredDrain, "drain-1")
	return []struct {
		node *corev1.Node
		says string
	}{
		{nodeSaying(), "is not asked yet"},
		{nodeSaying(mcfgv1.AnnotationStageImage, newImage), "stages the image"},
		{nodeSaying(told[:4]...), "holds the image, waits for a slot"},
		{nodeSaying(told...), "may change"},
		{cordoned(nodeSaying(drain...)), "drains"},
		{cordoned(nodeSaying(append(drain, mcfgv1.AnnotationLastAppliedDrain, "drain-1", mcfgv1.AnnotationState, mcfgv1.NodeStateRebooting)...)), "reboots"},
		{cordoned(nodeSaying(mcfgv1.AnnotationDesiredImage, newImage, mcfgv1.AnnotationCurrentImage, newImage)), "has booted the image, lets pods return"},
		{nodeSaying(mcfgv1.AnnotationDesiredImage, newImage, mcfgv1.AnnotationCurrentImage, newImage), "runs the image, was away for 3.0 s"},
	}
}

func TestBoardFollowsANode(t *testing.T) {
	t.Parallel()
	b := &board{image: newImage, away: map[string]time.Time{}, was: map[string]time.Duration{}}
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, moment := range update() {
		require.Equal(t, moment.says, b.see(moment.node, now))
		now = now.Add(time.Second)
	}
}

func TestPhase(t *testing.T) {
	t.Parallel()
	t.Run("a node that failed says why", func(t *testing.T) {
		t.Parallel()
		n := nodeSaying(mcfgv1.AnnotationState, mcfgv1.NodeStateDegraded, mcfgv1.AnnotationReason, "the disk is full")
		require.Equal(t, "degraded: the disk is full", phase(n, newImage))
	})
	t.Run("a node that is not Ready is away", func(t *testing.T) {
		t.Parallel()
		n := nodeSaying(mcfgv1.AnnotationCurrentImage, newImage)
		n.Status.Conditions = nil
		require.Equal(t, "has booted the image, lets pods return", phase(n, newImage))
	})
}
