package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/watched"
)

// shelf is what health checks read, by what it is.
type shelf struct {
	wanted  []watched.Key
	objects []*unstructured.Unstructured
	err     error
}

func (s *shelf) Want(_ context.Context, _ string, keys ...watched.Key) { s.wanted = keys }

func (s *shelf) Object(watched.Key) (*unstructured.Unstructured, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.objects[0], nil
}

func (s *shelf) OnNode(_ watched.Key, node string) (on []*unstructured.Unstructured, err error) {
	for _, o := range s.objects {
		if name, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName"); name == node {
			on = append(on, o)
		}
	}
	return on, s.err
}

// pod is a pod on a node.
func pod(node, version, phase string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "web", "uid": node, "resourceVersion": version},
		"spec":     map[string]any{"nodeName": node}, "status": map[string]any{"phase": phase},
	}}
}

// checked is a pool with one health check.
func checked(check mcfgv1.RolloutHealthCheck) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) {
		p.Spec.Rollout = &mcfgv1.RolloutSpec{HealthChecks: []mcfgv1.RolloutHealthCheck{check}}
	}
}

// podsCheck wants the pods of a namespace to run.
func podsCheck() mcfgv1.RolloutHealthCheck {
	return mcfgv1.RolloutHealthCheck{
		Name: "web", Expression: `pods.filter(p, p.status.phase != "Running").map(p, p.metadata.name + " is " + p.status.phase).join(", ")`,
		Pods: &mcfgv1.RolloutHealthPods{Namespace: "shop", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
}

func TestUnreadableCheckHoldsThePool(t *testing.T) {
	t.Parallel()
	tests := map[string]mcfgv1.RolloutHealthCheck{
		"pods": podsCheck(),
		"an object": {
			Name: "web", Expression: "object.status.ready",
			Object: &mcfgv1.RolloutHealthObject{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
		},
	}
	for name, check := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newPool("rendered-2", checked(check)), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"))
			w.shelf.err = errors.New("it is forbidden")
			w.reconcile()
			require.True(t, w.act("a"), "nodes stage all the same")
			result := w.reconcile()
			assert.Equal(t, 30*time.Second, result.RequeueAfter)
			assert.Equal(t, "0/1 updated, a: waits for health check web: it is forbidden", w.pool().Status.Rollout.Summary)
			assert.Equal(t, "rendered-1", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])
			assert.Equal(t, "shop", w.shelf.wanted[0].Namespace)

			w.shelf.err = nil
			w.shelf.objects = []*unstructured.Unstructured{{Object: map[string]any{"status": map[string]any{"ready": true}}}}
			w.settle()
			assert.Equal(t, "1/1 updated", w.pool().Status.Rollout.Summary)
		})
	}
}

func TestPodsOnANodeSayWhetherItIsHealthy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2", checked(podsCheck())), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"),
		newNode("a"), newNode("b"))
	w.shelf.objects = []*unstructured.Unstructured{pod("a", "1", "Running"), pod("b", "1", "Pending")}
	w.reach("a")
	assert.Equal(t, []watched.Key{{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Labels: "app=web"}}, w.shelf.wanted)

	w.shelf.objects[0] = pod("a", "2", "Failed")
	w.clock.SetTime(t0.Add(time.Minute))
	w.reconcile()
	assert.Equal(t, "0/2 updated, a: is not healthy yet: check web is web is Failed", w.pool().Status.Rollout.Summary)
	assert.Equal(t, "rendered-1", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig], "the next one waits")

	w.clock.SetTime(t0.Add(11 * time.Minute))
	w.reconcile()
	assert.Equal(t, "rendered-1", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])
	assert.Equal(t, "health check web did not hold within 10m0s: web is Failed", w.node("a").Annotations[mcfgv1.AnnotationFailedReason])
}

func TestAfterItsRolloutAPoolIsNotJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2", checked(podsCheck())), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"))
	w.reach("a")
	w.settle()
	require.NotNil(t, w.pool().Status.Rollout.CompletionTime)
	w.shelf.objects = []*unstructured.Unstructured{pod("a", "1", "Failed")}
	w.clock.SetTime(t0.Add(time.Hour))
	w.settle()
	assert.Equal(t, nodestest.Pinned("2"), w.node("a").Annotations[mcfgv1.AnnotationCurrentImage])
	assert.Equal(t, "1/1 updated", w.pool().Status.Rollout.Summary)
}

// testJob gives the pool's nodes a Job to pass, and the shelf its ConfigMap.
func testJob(w *world) {
	w.shelf.objects = []*unstructured.Unstructured{{Object: map[string]any{
		"metadata": map[string]any{"name": "net", "uid": "1", "resourceVersion": "1"},
		"data":     map[string]any{"job.yaml": "{apiVersion: batch/v1, kind: Job, spec: {template: {spec: {containers: [{name: net, image: net}]}}}}"},
	}}}
}

func TestAJobOnANodeDecidesWhetherItIsHealthy(t *testing.T) {
	t.Parallel()
	check := mcfgv1.RolloutHealthCheck{Name: "net", Job: &mcfgv1.ConfigMapKeyReference{Name: "net"}}
	w := newWorld(t, newPool("rendered-2", checked(check)), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"),
		newNode("a", identified), newNode("b", identified))
	testJob(w)
	w.reach("a")
	w.reconcile()
	assert.Equal(t, []watched.Key{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "layerwright", Name: "net"}}, w.shelf.wanted)
	w.reconcile()
	job := w.job()
	assert.Equal(t, []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "worker"}}}, poolOfJob(t.Context(), job), "it is watched")
	assert.Contains(t, w.pool().Status.Rollout.WaitingFor[0], fmt.Sprintf("a: is not healthy yet: check net is not over yet (Job %q)", job.Name))
	assert.Equal(t, "rendered-1", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig], "the next one waits")

	w.restart()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "layerwright", Name: "p", Labels: map[string]string{batchv1.JobNameLabel: job.Name}}}
	pod.Labels["app.kubernetes.io/component"] = "verification"
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: new(true)}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "net", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "no route", FinishedAt: metav1.NewTime(t0)}},
	}}}
	require.NoError(t, w.Create(t.Context(), pod))
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded}}
	require.NoError(t, w.Status().Update(t.Context(), job))
	w.reconcile()
	assert.Equal(t, "rendered-1", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig], "it goes back at once")
	assert.Equal(t, fmt.Sprintf("health check net failed: Job %q: container \"net\" ended with exit code 3: no route", job.Name),
		w.node("a").Annotations[mcfgv1.AnnotationFailedReason])
	w.reconcile()
	var left batchv1.JobList
	require.NoError(t, w.List(t.Context(), &left))
	assert.Empty(t, left.Items, "a node that moves on needs none")
}

// identified gives a Node the UID that an API server would.
func identified(n *corev1.Node) { n.UID = types.UID(n.Name) }

// job is the only Job.
func (w *world) job() *batchv1.Job {
	w.t.Helper()
	var all batchv1.JobList
	require.NoError(w.t, w.List(w.t.Context(), &all))
	require.Len(w.t, all.Items, 1)
	return &all.Items[0]
}

func TestPrometheusAnswerDecidesNodeHealth(t *testing.T) {
	t.Parallel()
	var asks atomic.Int64
	// It stands in for Prometheus, and answers as its HTTP API is documented.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asks.Add(1)
		assert.Equal(t, "disk_errors", r.URL.Query().Get("query"))
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"node":"a"},"value":[1,"7"]},{"metric":{"node":"b"},"value":[1,"0"]}]}}`)
	}))
	t.Cleanup(server.Close)
	check := mcfgv1.RolloutHealthCheck{
		Name: "disk", Expression: "size(result) > 0 && result.all(s, s.value == 0.0)", Timeout: "5m",
		Prometheus: &mcfgv1.RolloutHealthPrometheus{SecretName: "prometheus", Query: "disk_errors", NodeLabel: "node"},
	}
	w := newWorld(t, newPool("rendered-2", checked(check)), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"),
		newNode("a"), newNode("b"))
	w.metrics = server.URL
	w.reconcile()
	assert.NotEmpty(t, w.node("a").Annotations[mcfgv1.AnnotationStageImage], "nodes stage all the same")
	<-w.answered
	w.reach("a")
	w.clock.SetTime(t0.Add(31 * time.Second))
	assert.Equal(t, 30*time.Second, w.reconcile().RequeueAfter)
	<-w.answered
	w.reconcile()
	assert.Contains(t, w.pool().Status.Rollout.WaitingFor[0], `a: is not healthy yet: check disk is false, with {node="a"} 7`)
	for range 10 {
		w.reconcile()
	}
	assert.Equal(t, int64(2), asks.Load())

	w.clock.SetTime(t0.Add(6 * time.Minute))
	w.reconcile()
	<-w.answered
	w.reconcile()
	assert.Equal(t, `health check disk did not hold within 5m0s: false, with {node="a"} 7`, w.node("a").Annotations[mcfgv1.AnnotationFailedReason])
}

// reach has a node be updated and its agent report that, while others only stage.
func (w *world) reach(name string) {
	w.t.Helper()
	w.reconcile()
	require.True(w.t, w.act(name))
	w.reconcile()
	require.True(w.t, w.act(name))
	require.True(w.t, w.act(name))
	report := &mcfgv1.MachineConfigNode{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: name}, report))
	report.Status.Conditions = []metav1.Condition{{
		Type: mcfgv1.NodeUpdated, Status: metav1.ConditionTrue, Reason: "Updated", LastTransitionTime: metav1.NewTime(w.clock.Now()),
	}}
	require.NoError(w.t, w.Status().Update(w.t.Context(), report))
}

// TestKilledBetweenVerdictAndRollback ends the controller before each write of the reconcile that
// finds the image to be bad. The next one goes on from there.
func TestKilledBetweenVerdictAndRollback(t *testing.T) {
	t.Parallel()
	for writes := range 4 {
		t.Run(fmt.Sprint(writes), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newPool("rendered-2", checked(podsCheck()), func(p *mcfgv1.MachineConfigPool) {
				p.Spec.Rollout.HaltThreshold = new(intstr.FromInt32(1))
			}), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"), newNode("b"))
			w.shelf.objects = []*unstructured.Unstructured{pod("a", "1", "Failed")}
			w.reach("a")
			w.reconcile()
			w.clock.SetTime(t0.Add(11 * time.Minute))
			w.alive = writes
			_, err := w.r.Reconcile(t.Context(), request("worker")[0])
			if writes < 3 { // the quarantine, the rollback, and what the MachineConfigNode says
				require.ErrorIs(t, err, errEnded)
			}
			w.restart()
			if writes == 0 { // no one knows of the verdict: the check has its time again
				w.reconcile()
				w.clock.SetTime(t0.Add(22 * time.Minute))
			}
			w.settle()
			image := &mcfgv1alpha1.MachineOSImage{}
			require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "new"}, image))
			require.NotNil(t, image.Status.Quarantine)
			assert.Equal(t, []string{"a"}, image.Status.Quarantine.Nodes)
			a, b := w.node("a").Annotations, w.node("b").Annotations
			assert.Equal(t, []string{"rendered-1", "rendered-2"}, []string{a[mcfgv1.AnnotationCurrentConfig], a[mcfgv1.AnnotationFailedConfig]})
			assert.Equal(t, "rendered-1", b[mcfgv1.AnnotationDesiredConfig])
			assert.Empty(t, b[mcfgv1.AnnotationStageImage], "it stages no image that is in quarantine")
			assert.Equal(t, 1, int(w.pool().Status.Rollout.RolledBackMachineCount))
		})
	}
}

// newUnhealthyCanary has a canary with an image that it is not healthy with, while the pool's
// configuration was changed and taken back.
func newUnhealthyCanary(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, newPool("rendered-2", checked(podsCheck()), func(p *mcfgv1.MachineConfigPool) {
		p.Spec.Rollout.Canary = &mcfgv1.RolloutCanary{SoakTime: "30m"}
	}), newConfig("rendered-2", "0"), newConfig("rendered-3", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"), newNode("b"))
	w.shelf.objects = []*unstructured.Unstructured{pod("a", "1", "Failed")}
	w.reach("a")
	require.True(t, w.act("b"))
	w.reconcile()
	for _, config := range []string{"rendered-3", "rendered-2"} {
		w.clock.SetTime(w.clock.Now().Add(time.Second))
		w.aim(config, "2")
		w.reconcile()
	}
	return w
}

func TestARevertedChangeProvesNothing(t *testing.T) {
	t.Parallel()
	t.Run("the canary is judged", func(t *testing.T) {
		t.Parallel()
		w := newUnhealthyCanary(t)
		assert.Equal(t, []string{"a: is not healthy yet: check web is web is Failed", "b: waits for the canaries: a"}, w.pool().Status.Rollout.WaitingFor)
		w.reconcile()
		w.clock.SetTime(t0.Add(15 * time.Minute))
		w.reconcile()
		assert.Equal(t, "health check web did not hold within 10m0s: web is Failed", w.node("a").Annotations[mcfgv1.AnnotationFailedReason])
		assert.Equal(t, "rendered-1", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])
		assert.Equal(t, "rendered-1", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig])
	})
	t.Run("until it is proven", func(t *testing.T) {
		t.Parallel()
		w := newUnhealthyCanary(t)
		w.shelf.objects = []*unstructured.Unstructured{pod("a", "2", "Running")}
		w.settle()
		w.clock.SetTime(t0.Add(time.Hour))
		w.settle()
		require.Equal(t, "2/2 updated", w.pool().Status.Rollout.Summary)
		w.shelf.objects = []*unstructured.Unstructured{pod("a", "3", "Failed")}
		w.reconcile()
		w.clock.SetTime(t0.Add(2 * time.Hour))
		w.settle()
		assert.Equal(t, "2/2 updated", w.pool().Status.Rollout.Summary, "later, a node may be ill for any reason")
		assert.Nil(t, w.pool().Status.Rollout.SupersededStartTime)
	})
}
