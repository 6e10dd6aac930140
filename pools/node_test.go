package pools

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestIsUnavailable(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change []func(*corev1.Node)
		want   bool
	}{
		"done":                                 {[]func(*corev1.Node){having("a")}, false},
		"done with an image":                   {[]func(*corev1.Node){having("a"), havingImage("1")}, false},
		"without an agent":                     {nil, false},
		"not Ready":                            {[]func(*corev1.Node){having("a"), withCondition(corev1.NodeReady, corev1.ConditionFalse)}, true},
		"silent":                               {[]func(*corev1.Node){having("a"), withCondition(corev1.NodeReady, corev1.ConditionUnknown)}, true},
		"not Ready, without an agent":          {[]func(*corev1.Node){withCondition(corev1.NodeReady, corev1.ConditionFalse)}, true},
		"under disk pressure":                  {[]func(*corev1.Node){having("a"), withCondition(corev1.NodeDiskPressure, corev1.ConditionTrue)}, true},
		"cordoned":                             {[]func(*corev1.Node){having("a"), cordoned}, true},
		"to get another configuration":         {[]func(*corev1.Node){having("a"), annotated(mcfgv1.AnnotationDesiredConfig, "b")}, true},
		"to get its first configuration":       {[]func(*corev1.Node){annotated(mcfgv1.AnnotationDesiredConfig, "b")}, true},
		"to get another image":                 {[]func(*corev1.Node){having("a"), havingImage("1"), annotated(mcfgv1.AnnotationDesiredImage, pinned("2"))}, true},
		"to go back to no image":               {[]func(*corev1.Node){having("a"), annotated(mcfgv1.AnnotationCurrentImage, pinned("2"))}, true},
		"Working":                              {[]func(*corev1.Node){having("a"), inState(mcfgv1.NodeStateWorking, "")}, true},
		"Rebooting":                            {[]func(*corev1.Node){having("a"), inState(mcfgv1.NodeStateRebooting, "")}, true},
		"Degraded":                             {[]func(*corev1.Node){having("a"), inState(mcfgv1.NodeStateDegraded, "disk")}, true},
		"Unreconcilable":                       {[]func(*corev1.Node){having("a"), inState(mcfgv1.NodeStateUnreconcilable, "fips")}, true},
		"a state that nobody knows is no work": {[]func(*corev1.Node){having("a"), inState("Singing", "")}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := observe(newNode("n", nil, tt.change...))
			assert.Equal(t, tt.want, n.isUnavailable())
		})
	}
}

func TestIsAt(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change []func(*corev1.Node)
		target target
		want   bool
	}{
		"has the configuration": {[]func(*corev1.Node){having("a")}, target{Config: "a"}, true},
		"has both":              {[]func(*corev1.Node){having("a"), havingImage("1")}, target{"a", pinned("1")}, true},
		"has an image that the pool does not name":  {[]func(*corev1.Node){having("a"), havingImage("1")}, target{Config: "a"}, true},
		"has it, and is not Ready":                  {[]func(*corev1.Node){having("a"), withCondition(corev1.NodeReady, corev1.ConditionFalse)}, target{Config: "a"}, true},
		"has another":                               {[]func(*corev1.Node){having("b")}, target{Config: "a"}, false},
		"has another image":                         {[]func(*corev1.Node){having("a"), havingImage("2")}, target{"a", pinned("1")}, false},
		"has no image yet":                          {[]func(*corev1.Node){having("a")}, target{"a", pinned("1")}, false},
		"has the configuration, is to get another":  {[]func(*corev1.Node){having("a"), annotated(mcfgv1.AnnotationDesiredConfig, "b")}, target{Config: "a"}, false},
		"has it, and is not done":                   {[]func(*corev1.Node){having("a"), inState(mcfgv1.NodeStateWorking, "")}, target{Config: "a"}, false},
		"has it, and failed":                        {[]func(*corev1.Node){having("a"), inState(mcfgv1.NodeStateDegraded, "")}, target{Config: "a"}, false},
		"has it, and an agent that never says Done": {[]func(*corev1.Node){having("a"), inState("", "")}, target{Config: "a"}, false},
		"has no agent":                              {nil, target{Config: "a"}, false},
		"has no agent, and the pool has nothing":    {nil, target{}, false},
		"has something, and the pool has nothing":   {[]func(*corev1.Node){having("a")}, target{}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := observe(newNode("n", nil, tt.change...))
			assert.Equal(t, tt.want, n.isAt(tt.target))
		})
	}
}

func TestNodeChanged(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a heartbeat": {func(n *corev1.Node) {
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(t0.Add(time.Minute))
			}
		}, false},
		"another resource version": {func(n *corev1.Node) { n.ResourceVersion = "2" }, false},
		"pulled container images":  {func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"a"}}} }, false},
		"another capacity":         {func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4")} }, false},
		"a taint":                  {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }, false},
		"memory pressure": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue})
		}, false},
		"somebody else's annotation":    {annotated("a", "b"), false},
		"the annotation of a drain":     {annotated(mcfgv1.AnnotationDesiredDrain, "drain-a"), false},
		"a label":                       {labelled("a", "b"), true},
		"a label that is gone":          {func(n *corev1.Node) { delete(n.Labels, "node-role.kubernetes.io/worker") }, true},
		"another current configuration": {annotated(mcfgv1.AnnotationCurrentConfig, "b"), true},
		"another desired configuration": {annotated(mcfgv1.AnnotationDesiredConfig, "b"), true},
		"another first configuration":   {annotated(mcfgv1.AnnotationFirstPivotConfig, "b"), true},
		"another current image":         {annotated(mcfgv1.AnnotationCurrentImage, "b"), true},
		"another desired image":         {annotated(mcfgv1.AnnotationDesiredImage, "b"), true},
		"another state":                 {annotated(mcfgv1.AnnotationState, "b"), true},
		"another reason":                {annotated(mcfgv1.AnnotationReason, "b"), true},
		"a cordon":                      {cordoned, true},
		"not Ready":                     {withCondition(corev1.NodeReady, corev1.ConditionUnknown), true},
		"disk pressure":                 {withCondition(corev1.NodeDiskPressure, corev1.ConditionTrue), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := newNode("n", []string{"worker"}, having("a"))
			after := before.DeepCopy()
			tt.change(after)
			assert.Equal(t, tt.want, nodeChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
	n := newNode("n", nil)
	assert.True(t, nodeChanged().Create(event.CreateEvent{Object: n}))
	assert.True(t, nodeChanged().Delete(event.DeleteEvent{Object: n}))
}

func TestCount(t *testing.T) {
	t.Parallel()
	worker := []string{"worker"}
	tests := map[string]struct {
		nodes []*corev1.Node
		want  counts
	}{
		"no nodes":               {},
		"all have it":            {[]*corev1.Node{newNode("a", worker, having("x")), newNode("b", worker, having("x"))}, counts{machines: 2, updated: 2, ready: 2}},
		"one is on its way":      {[]*corev1.Node{newNode("a", worker, having("x")), newNode("b", worker, having("w"), annotated(mcfgv1.AnnotationDesiredConfig, "x"))}, counts{machines: 2, updated: 1, ready: 1, unavailable: 1}},
		"one waits for its turn": {[]*corev1.Node{newNode("a", worker, having("x")), newNode("b", worker, having("w"))}, counts{machines: 2, updated: 1, ready: 1}},
		"one has it and is down": {[]*corev1.Node{newNode("a", worker, having("x"), withCondition(corev1.NodeReady, corev1.ConditionFalse))}, counts{machines: 1, updated: 1, unavailable: 1}},
		"one is cordoned":        {[]*corev1.Node{newNode("a", worker, having("x"), cordoned)}, counts{machines: 1, updated: 1, unavailable: 1}},
		"one failed":             {[]*corev1.Node{newNode("a", worker, having("w"), annotated(mcfgv1.AnnotationDesiredConfig, "x"), inState(mcfgv1.NodeStateDegraded, "disk"))}, counts{machines: 1, unavailable: 1, degraded: 1}},
		"one cannot get there":   {[]*corev1.Node{newNode("a", worker, having("w"), inState(mcfgv1.NodeStateUnreconcilable, "fips"))}, counts{machines: 1, unavailable: 1, degraded: 1}},
		"without agents":         {[]*corev1.Node{newNode("a", worker), newNode("b", worker, cordoned)}, counts{machines: 2, unavailable: 1, silent: 2}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, count(observeAll(tt.nodes...), target{Config: "x"}))
		})
	}
}
