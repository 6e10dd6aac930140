package pools

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func namesOf(requests []reconcile.Request) []string {
	var names []string
	for _, r := range requests {
		names = append(names, r.Name)
	}
	return names
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
		"an annotation of others":       {annotated("a", "b"), false},
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

func TestConcernsOthers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pool   string
		change func(*mcfgv1.MachineConfigPool)
		want   bool
	}{
		"nothing":                  {"worker", func(*mcfgv1.MachineConfigPool) {}, false},
		"its nodes":                {"infra", func(p *mcfgv1.MachineConfigPool) { p.Spec.NodeSelector = nil }, true},
		"its stream":               {"worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.OSImageStream.Name = "rhel-10" }, true},
		"its configuration":        {"worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = "rendered-worker-2" }, false},
		"what master remembers":    {"master", remembering("rhel-10"), true},
		"what a worker remembers":  {"worker", remembering("rhel-10"), false},
		"that it is to be paused":  {"worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }, false},
		"how many nodes may go":    {"worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt32(2)) }, false},
		"its status, as it counts": {"worker", func(p *mcfgv1.MachineConfigPool) { p.Status.MachineCount = 9 }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := newPool(tt.pool)
			after := before.DeepCopy()
			tt.change(after)
			assert.Equal(t, tt.want, concernsOthers().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
	assert.True(t, concernsOthers().Create(event.CreateEvent{Object: newPool("infra")}))
	assert.True(t, concernsOthers().Delete(event.DeleteEvent{Object: newPool("infra")}))
}

func TestPoolsOfConfig(t *testing.T) {
	t.Parallel()
	invalid := newPool("invalid", func(p *mcfgv1.MachineConfigPool) {
		p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Sometimes"}}}
	})
	none := newPool("none", func(p *mcfgv1.MachineConfigPool) { p.Spec.MachineConfigSelector = nil })
	w := newWorld(t, newPool("worker"), newPool("infra"), newPool("master"), invalid, none)
	r := w.reconciler()
	rendered := newConfig("rendered-infra-1", "worker", "/etc/a")
	rendered.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(newPool("infra"), mcfgv1.GroupVersion.WithKind(poolKind))}
	tests := map[string]struct {
		config *mcfgv1.MachineConfig
		want   []string
	}{
		"worker's is that of custom pools too": {newConfig("a", "worker", "/a"), []string{"infra", "worker"}},
		"a custom pool's own":                  {newConfig("a", "infra", "/a"), []string{"infra"}},
		"master's":                             {newConfig("a", "master", "/a"), []string{"master"}},
		"no one's":                             {newConfig("a", "storage", "/a"), nil},
		"a rendered one is its pool's alone":   {rendered, []string{"infra"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, namesOf(r.poolsOfConfig(t.Context(), tt.config)))
		})
	}
}

func TestPoolsOfNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newPool("infra"), newPool("master"))
	r := w.reconciler()
	assert.Equal(t, []string{"infra", "worker"}, namesOf(r.poolsOfNode(t.Context(), newNode("n", []string{"worker", "infra"}))), "also the one that it does not belong to")
	assert.Empty(t, r.poolsOfNode(t.Context(), newNode("n", nil)))
	assert.Equal(t, []string{"infra", "master", "worker"}, namesOf(r.everyPool(t.Context(), nil)))
}

func TestSettling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		request := func(name string) reconcile.Request {
			return reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
		}
		h := New(Options{Settle: time.Second}).settling(func(_ context.Context, o client.Object) []reconcile.Request {
			return []reconcile.Request{request(o.GetLabels()[mcfgv1.LabelRole])}
		})
		begin := time.Now()
		for _, file := range []string{"/a", "/b", "/c"} {
			h.Create(t.Context(), event.CreateEvent{Object: newConfig("x", "worker", file)}, queue)
			time.Sleep(100 * time.Millisecond)
		}
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: newConfig("x", "worker", "/a"), ObjectNew: newConfig("x", "infra", "/a")}, queue)
		h.Delete(t.Context(), event.DeleteEvent{Object: newConfig("y", "infra", "/a")}, queue)
		assert.Zero(t, queue.Len(), "not yet")

		first, _ := queue.Get()
		assert.Equal(t, request("worker"), first)
		assert.Equal(t, time.Second, time.Since(begin), "a stream of changes does not put it off")
		queue.Done(first)
		second, _ := queue.Get()
		assert.Equal(t, request("infra"), second)
		queue.Done(second)
		time.Sleep(time.Minute)
		assert.Zero(t, queue.Len(), "once each")
	})
}

// TestUpdatesSettle has others write to a pool one after the other, for one event.
func TestUpdatesSettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		begin := time.Now()
		for range 3 {
			updatesSettle().Update(t.Context(), event.UpdateEvent{ObjectOld: newPool("worker"), ObjectNew: newPool("worker")}, queue)
			time.Sleep(poolSettle / 4)
		}
		request, _ := queue.Get()
		assert.Equal(t, "worker", request.Name)
		assert.Equal(t, poolSettle, time.Since(begin), "a stream of changes does not put it off")
		queue.Done(request)
		time.Sleep(time.Minute)
		assert.Zero(t, queue.Len(), "once")
	})
}
