package healthchecks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/testjobs"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/prometheus"
	"github.com/layerwright/layerwright/rollout/watched"
)

var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// world is a pool with health checks, its nodes, and what the checks read.
type world struct {
	client.Client
	*Checker
	t       testing.TB
	clock   *clocktesting.FakePassiveClock
	checks  []mcfgv1.RolloutHealthCheck
	target  nodes.Target
	started time.Time
	nodes   map[string]*corev1.Node
	members map[string]*plan.Node
	found   *Findings
	// objects are what checks read, by name, and pods those on each node.
	objects map[string]*unstructured.Unstructured
	pods    []*unstructured.Unstructured
	// asked are the queries that pools want, and isFollowed whether they are asked again; answers
	// are those that there are.
	asked      map[string][]prometheus.Query
	isFollowed bool
	answers    map[prometheus.Query]*prometheus.Answer
	unanswered error
	// refuses is what the API server says to Jobs, created how often it was asked for one.
	refuses error
	created int
}

func newWorld(tb testing.TB, checks ...mcfgv1.RolloutHealthCheck) *world {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, mcfgv1.AddToScheme} {
		require.NoError(tb, add(scheme))
	}
	w := &world{
		t: tb, clock: clocktesting.NewFakePassiveClock(t0), checks: checks, target: nodes.Target{Config: "rendered-2", Image: "image-2"}, started: t0.Add(-time.Minute),
		nodes: map[string]*corev1.Node{}, members: map[string]*plan.Node{}, objects: map[string]*unstructured.Unstructured{}, asked: map[string][]prometheus.Query{},
	}
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&batchv1.Job{}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
			return []string{string(o.(*corev1.Event).InvolvedObject.UID)}
		}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, isJob := o.(*batchv1.Job); isJob {
				w.created++
				if w.refuses != nil {
					return w.refuses
				}
			}
			o.SetUID(types.UID(fmt.Sprintf("%s-%d", o.GetName(), w.created)))
			o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
			return c.Create(ctx, o, options...)
		},
	}).Build()
	w.restart()
	return w
}

// restart begins anew with what the cluster knows.
func (w *world) restart() {
	w.Checker = New(Options{Namespace: "layerwright", SigningSecret: "verification-key"}, Sources{
		Client: w.Client, Reader: w.Client, Objects: objects{w}, Queries: queries{w}, Clock: w.clock,
	})
}

// arrived has a node have the target, since the world began.
func arrived(m *plan.Node) {
	m.CurrentConfig, m.DesiredConfig, m.CurrentImage, m.DesiredImage = "rendered-2", "rendered-2", "image-2", "image-2"
	m.Arrived, m.Seen = t0, t0
}

// node adds a node.
func (w *world) node(name string, change ...func(*plan.Node)) {
	w.t.Helper()
	n := nodestest.New(name, []string{"worker"}, nodestest.Having("rendered-1"))
	n.UID, n.ResourceVersion = types.UID(name), "1"
	m := &plan.Node{Node: nodes.Observe(n)}
	for _, c := range change {
		c(m)
	}
	w.nodes[name], w.members[name] = n, m
}

// write writes the manifest of the test.
func (w *world) write(text string) {
	version := "1"
	if was := w.objects["net"]; was != nil {
		version = was.GetResourceVersion() + "1"
	}
	w.objects["net"] = &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "net", "uid": "1", "resourceVersion": version}, "data": map[string]any{"job.yaml": text},
	}}
}

func (w *world) scope() *Scope {
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.Rollout = &mcfgv1.RolloutSpec{HealthChecks: slices.Clone(w.checks)}
	p := &Scope{Pool: pool, Target: w.target, Image: w.target.Image, Started: w.started, Nodes: w.nodes}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		p.Members = append(p.Members, *w.members[name])
		p.IsOpen = p.IsOpen || !w.members[name].IsAt(w.target)
	}
	return p
}

// judge makes a reconcile, and gives what the first check says of a node.
func (w *world) judge(name string) plan.HealthResult {
	w.t.Helper()
	p := w.scope()
	var err error
	w.found, err = w.Judge(w.t.Context(), p)
	require.NoError(w.t, err)
	require.NoError(w.t, w.Run(w.t.Context(), w.found))
	for i := range p.Members {
		if m := &p.Members[i]; m.Name == name && len(m.Health) > 0 {
			return m.Health[0]
		}
	}
	return plan.HealthResult{}
}

func (w *world) jobs() []batchv1.Job {
	w.t.Helper()
	var list batchv1.JobList
	require.NoError(w.t, w.List(w.t.Context(), &list))
	slices.SortFunc(list.Items, func(a, b batchv1.Job) int { return cmp.Compare(testjobs.Attempt(&a), testjobs.Attempt(&b)) })
	return list.Items
}

// job is the only one.
func (w *world) job() *batchv1.Job {
	w.t.Helper()
	all := w.jobs()
	require.Len(w.t, all, 1)
	return &all[0]
}

func (w *world) newest() *batchv1.Job {
	all := w.jobs()
	return &all[len(all)-1]
}

// pod gives a Job its pod.
func (w *world) pod(job *batchv1.Job, status corev1.PodStatus, change ...func(*corev1.Pod)) {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: job.Namespace, Name: job.Name, Labels: map[string]string{testjobs.ComponentLabel: testjobs.Component, batchv1.JobNameLabel: job.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: new(true)}},
	}, Spec: corev1.PodSpec{NodeName: "a"}, Status: status}
	for _, c := range change {
		c(pod)
	}
	_ = w.Delete(w.t.Context(), pod.DeepCopy())
	require.NoError(w.t, w.Create(w.t.Context(), pod))
}

// end ends a Job as its controller does.
func (w *world) end(job *batchv1.Job, code int32, message string, change ...func(*corev1.Pod)) {
	w.t.Helper()
	phase, condition := corev1.PodFailed, batchv1.JobFailed
	if code == 0 {
		phase, condition = corev1.PodSucceeded, batchv1.JobComplete
	}
	now := metav1.NewTime(w.clock.Now())
	w.pod(job, corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "net", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, StartedAt: now, FinishedAt: now}},
	}}}, change...)
	job = job.DeepCopy()
	job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", LastTransitionTime: now}}
	require.NoError(w.t, w.Client.Status().Update(w.t.Context(), job))
}

// objects are what checks read of a world.
type objects struct{ *world }

func (objects) Want(context.Context, string, ...watched.Key) {}

func (o objects) Object(k watched.Key) (*unstructured.Unstructured, error) {
	if found := o.objects[k.Name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("%s does not exist", k)
}

func (o objects) OnNode(watched.Key, string) ([]*unstructured.Unstructured, error) {
	return o.pods, nil
}

// queries are what a world asks Prometheus.
type queries struct{ *world }

func (q queries) Want(_ context.Context, pool string, isFollowed bool, all ...prometheus.Query) time.Duration {
	q.asked[pool], q.isFollowed = all, isFollowed
	if len(all) == 0 {
		return 0
	}
	return prometheus.Interval
}

func (q queries) Answer(_ string, one prometheus.Query) (*prometheus.Answer, error) {
	return q.answers[one], q.unanswered
}
