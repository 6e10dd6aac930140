package pipelines

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/attempts"
	"github.com/layerwright/layerwright/internal/fault"
)

// world is a cluster without Tekton's controller: tests play that.
type world struct {
	client.Client
	t     *testing.T
	clock *clocktesting.FakeClock
	// missing is why Tekton is not there; nil where it is.
	missing error
}

func (w *world) Notify(func(client.Object)) {}

func (w *world) Reader(context.Context) (client.Reader, error) {
	if w.missing != nil {
		return nil, fault.NewWaiting(mcfgv1.ReasonKindNotInstalled, 0, w.missing)
	}
	return w.Client, nil
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	for _, k := range kinds() {
		objects = append(objects, &tektonv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Name: k.pipeline(), Namespace: namespace}})
	}
	w := &world{t: t, clock: clocktesting.NewFakeClock(t0)}
	create := func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
		o.SetUID(cmp.Or(o.GetUID(), types.UID(o.GetName())))
		return c.Create(ctx, o, options...)
	}
	w.Client = fake.NewClientBuilder().WithScheme(apitest.Scheme(t, AddToScheme)).WithObjects(objects...).WithStatusSubresource(&tektonv1.PipelineRun{}, &corev1.Pod{}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
			event, _ := o.(*corev1.Event)
			return []string{string(event.InvolvedObject.UID)}
		}).
		WithInterceptorFuncs(interceptor.Funcs{Create: create}).Build()
	return w
}

func (w *world) backend() *Backend {
	b, err := New(Options{Namespace: namespace, Image: image, UserNamespaces: pods.UserNamespacesNever, Clock: w.clock}, w.Client, w.Client, w)
	require.NoError(w.t, err)
	return b
}

func (w *world) runs() []tektonv1.PipelineRun {
	var list tektonv1.PipelineRunList
	require.NoError(w.t, w.List(w.t.Context(), &list))
	return list.Items
}

// says has Tekton's controller say something of the newest run.
func (w *world) says(status corev1.ConditionStatus, reason string, change ...func(*tektonv1.PipelineRun)) {
	runs := w.runs()
	run := &runs[len(runs)-1]
	run.Status.Conditions = conditions(status, reason, "", w.clock.Now())
	for _, c := range change {
		c(run)
	}
	require.NoError(w.t, w.Status().Update(w.t.Context(), run))
}

// adopt makes an object that has the labels of the only run too.
func (w *world) adopt(o client.Object) {
	labels := w.runs()[0].Labels
	maps.Copy(labels, o.GetLabels())
	o.SetLabels(labels)
	require.NoError(w.t, w.Create(w.t.Context(), o))
}

// join makes the TaskRuns of the only run.
func (w *world) join(tasks []tektonv1.TaskRun) {
	for i := range tasks {
		w.adopt(&tasks[i])
	}
}

func (w *world) observe() backend.State {
	state, err := w.backend().Observe(w.t.Context(), key)
	require.NoError(w.t, err)
	return state
}

func TestABuildFromBeginningToEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	assert.Equal(t, backend.Absent, w.observe().Phase)
	spec := plainSpec(mcfgv1.ArchitectureAMD64)
	for range 2 { // the second time changes nothing
		require.NoError(t, w.backend().Ensure(t.Context(), *spec))
		require.Len(t, w.runs(), 1)
	}
	state := w.observe()
	assert.Equal(t, backend.Pending, state.Phase)
	assert.Equal(t, spec.Settings(), state.Settings)
	assert.Equal(t, []string{"containerfile-" + buildName}, state.Related)
	w.join(newScene(t).task("build", "amd64", yes, "Succeeded", "").tasks)
	w.says(yes, "Succeeded", results(resultDigest, digest))
	assert.Equal(t, pushed, w.observe().Image)
	// A Pipeline that tests images can have Tekton give its run these labels and annotations.
	alien := w.runs()[0].DeepCopy()
	alien.Name, alien.ResourceVersion, alien.Labels[pods.ComponentLabel], alien.Annotations[mcfgv1.AnnotationBuildAttempt] = "verify-1", "", "verification", "2"
	require.NoError(t, w.Create(t.Context(), alien))
	assert.Equal(t, pushed, w.observe().Image, "whatever a run of another part says")
	require.NoError(t, w.Delete(t.Context(), alien))
	require.NoError(t, w.backend().Remove(t.Context(), key))
	assert.Equal(t, backend.Absent, w.observe().Phase)
	var configMaps corev1.ConfigMapList
	require.NoError(t, w.List(t.Context(), &configMaps))
	assert.Empty(t, configMaps.Items)
}

// unasked is an API server that no one asks.
type unasked struct{ t *testing.T }

func (u unasked) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	u.t.Errorf("%T %s is read from the API server", o, key)
	return nil
}

func (u unasked) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if _, areEvents := list.(*corev1.EventList); areEvents { // no one watches them
		return nil
	}
	u.t.Errorf("%T is read from the API server", list)
	return nil
}

func TestWatchedObjectsAreReadFromTheCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.backend().Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
	b, err := New(Options{Namespace: namespace, Image: image, UserNamespaces: pods.UserNamespacesNever, Clock: w.clock}, w.Client, unasked{t}, w)
	require.NoError(t, err)
	for _, says := range []func(){
		func() {}, func() { w.says(unknown, "Running") }, func() { w.clock.Step(time.Hour) },
	} {
		says()
		state, err := b.Observe(t.Context(), key)
		require.NoError(t, err)
		assert.Contains(t, []backend.Phase{backend.Pending, backend.Running}, state.Phase)
	}
}

// TestTektonCantMakeTasks has Tekton say why in an event, which is all that it does.
func TestTektonCantMakeTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.backend().Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
	w.says(unknown, "Running")
	w.clock.Step(pods.Settling)
	assert.Nil(t, w.observe().Failure)
	require.NoError(t, w.Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "refused", Namespace: namespace}, Type: corev1.EventTypeWarning, Reason: "TaskRunsCreationFailed",
		Message: webhookIsAway().Error(), LastTimestamp: metav1.NewTime(w.clock.Now()), InvolvedObject: corev1.ObjectReference{UID: w.runs()[0].UID},
	}))
	state := w.observe()
	require.NotNil(t, state.Failure)
	assert.Equal(t, fault.Waiting, state.Failure.Class)
	assert.Contains(t, state.Failure.Message, "see that the Deployment tekton-pipelines-webhook runs")
	assert.NotZero(t, state.After)
}

func TestTheNextAttemptIsMadeWhenItIsDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.backend().Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
	w.says(no, "Failed")
	state := w.observe()
	assert.Equal(t, backend.Running, state.Phase)
	assert.Equal(t, firstPause, state.After)
	assert.Len(t, w.runs(), 1)
	w.clock.Step(firstPause)
	w.observe()
	w.observe()
	require.Len(t, w.runs(), 2, "one, however often it is looked at")
	assert.Equal(t, "build-"+buildName+"-2", w.runs()[1].Name)
	state = w.observe()
	assert.Equal(t, backend.Pending, state.Phase)
	require.NotNil(t, state.Failure, "why the attempt before failed")
	assert.Equal(t, fault.Transient, state.Failure.Class)
}

// TestARefusedPodIsTriedAgain has Tekton end runs whose pods a quota refuses: none of them is an
// attempt, and only the last is kept.
func TestARefusedPodIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := plainSpec(mcfgv1.ArchitectureAMD64)
	spec.Retries = 0
	require.NoError(t, w.backend().Ensure(t.Context(), *spec))
	for range 20 { // more than there may be attempts
		run := w.runs()[0].DeepCopy()
		tasks := newScene(t).task("build", "amd64", no, "PodCreationFailed", `pods "x" is forbidden: failed quota: compute: must specify limits.cpu for: step-build`).tasks
		tasks[0].Name, tasks[0].UID, tasks[0].OwnerReferences = run.Name+"-build", types.UID(run.Name+"-build"), []metav1.OwnerReference{ownedBy(run)}
		w.join(tasks)
		w.says(no, "Failed")
		state := w.observe()
		assert.Equal(t, backend.Pending, state.Phase)
		require.NotNil(t, state.Failure)
		assert.Equal(t, fault.Waiting, state.Failure.Class)
		assert.Contains(t, state.Failure.Message, "set spec.buildResources.limits.cpu of the MachineOSConfig")
		assert.Equal(t, whileRefused, state.After)
		assert.Equal(t, spec.Settings(), state.Settings, "so that other resources begin a new run")
		w.clock.Step(whileRefused)
		w.observe()
		require.Len(t, w.runs(), 2)
		state = w.observe()
		assert.Nil(t, state.Failure, "of a run that has just been made")
		require.Len(t, w.runs(), 1)
		again := w.runs()[0]
		assert.NotEqual(t, run.Name, again.Name)
		assert.Equal(t, attempts.Count{}, countOf(&again))
	}
	w.says(no, "Failed")
	assert.Equal(t, backend.Failed, w.observe().Phase, "where a failure has its only attempt")
}

func TestTektonIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := plainSpec(mcfgv1.ArchitectureAMD64)
	require.NoError(t, w.backend().Ensure(t.Context(), *spec))
	w.says(unknown, "Running")

	w.missing = errors.New("Tekton is not installed")
	state := w.observe()
	assert.Equal(t, backend.Pending, state.Phase)
	assert.Nil(t, state.Object, "so that its absence later is not taken for a person's will")
	assert.Equal(t, &backend.Failure{Class: fault.Waiting, Reason: mcfgv1.ReasonKindNotInstalled, Message: "Tekton is not installed"}, state.Failure)
	err := w.backend().Ensure(t.Context(), *spec)
	require.True(t, fault.IsWaiting(err), "%v", err)
	assert.Equal(t, mcfgv1.ReasonKindNotInstalled, fault.Reason(err))
	require.NoError(t, w.backend().Remove(t.Context(), key), "what there was is gone with it")

	w.missing = nil
	require.NoError(t, w.DeleteAllOf(t.Context(), &tektonv1.PipelineRun{}, client.InNamespace(namespace)))
	assert.Equal(t, backend.Absent, w.observe().Phase)
	require.NoError(t, w.backend().Ensure(t.Context(), *spec))
	assert.Len(t, w.runs(), 1)
}

func TestWhatABuildWaitsFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*backend.Spec)
		reason  string
		message string
	}{
		"its Pipeline":         {func(s *backend.Spec) { s.Pipeline = "ours" }, mcfgv1.ReasonWaiting, `Pipeline "ours" is not in namespace`},
		"its push secret":      {func(s *backend.Spec) { s.PushSecret = "push" }, mcfgv1.ReasonWaitingForSecret, `Secret "push"`},
		"repositories for yum": {func(s *backend.Spec) { s.Inputs = []backend.Input{{Name: backend.InputYumRepos, ConfigMap: "repos"}} }, mcfgv1.ReasonWaitingForConfigMap, `ConfigMap "repos"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := plainSpec(mcfgv1.ArchitectureAMD64)
			test.change(spec)
			err := newWorld(t).backend().Ensure(t.Context(), *spec)
			require.True(t, fault.IsWaiting(err), "%v", err)
			assert.Equal(t, test.reason, fault.Reason(err))
			assert.ErrorContains(t, err, test.message)
		})
	}
}

func TestFailedArchitectureEndsTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.backend().Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64)))
	w.says(unknown, "Running")
	s := newScene(t, mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64).task("preflight", "", unknown, "Running", "").
		task("build", "amd64", unknown, "Running", "").task("build", "arm64", unknown, "Running", "").
		pod(terminates(backend.Build, backend.ExitAdmin, ""))
	pod := &s.Pods[0]
	w.join(s.tasks)
	w.adopt(pod)
	require.NoError(t, w.Status().Update(t.Context(), pod))
	assert.Equal(t, backend.Failed, w.observe().Phase)
	assert.Empty(t, w.runs()[0].Spec.Status, "it ends by itself, and its logs stay")
	w.says(no, "Cancelled", func(run *tektonv1.PipelineRun) { run.Status.Conditions[0].Message = "Failed: 0, Cancelled 1" })
	state := w.observe()
	assert.Equal(t, backend.Failed, state.Phase)
	assert.False(t, state.Failure.IsCancelled, "that was us")
	var tasks tektonv1.TaskRunList
	require.NoError(t, w.List(t.Context(), &tasks))
	for _, task := range tasks.Items {
		ended := map[string]tektonv1.TaskRunSpecStatus{"build-" + buildName + "-buildamd64": tektonv1.TaskRunSpecStatusCancelled}
		assert.Equal(t, ended[task.Name], task.Spec.Status, task.Name)
	}
}

// TestOneArchitectureEndsByItself: nothing is cancelled where nothing else builds.
func TestOneArchitectureEndsByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.backend().Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
	w.says(unknown, "Running")
	s := newScene(t).task("build", "amd64", unknown, "Running", "").pod(terminates(backend.Build, backend.ExitAdmin, ""))
	w.join(s.tasks)
	w.adopt(&s.Pods[0])
	require.NoError(t, w.Status().Update(t.Context(), &s.Pods[0]))
	assert.Equal(t, backend.Failed, w.observe().Phase)
	assert.Empty(t, w.runs()[0].Spec.Status)
	var tasks tektonv1.TaskRunList
	require.NoError(t, w.List(t.Context(), &tasks))
	assert.Empty(t, tasks.Items[0].Spec.Status)
}

func TestWhatStaysAfterABuild(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		says  func(w *world)
		stays int
	}{
		"it succeeded": {func(w *world) { w.says(yes, "Succeeded") }, 1},
		"a person cancels it": {func(w *world) {
			w.edit(func(run *tektonv1.PipelineRun) { run.Spec.Status = tektonv1.PipelineRunSpecStatusCancelled })
		}, 1},
		"another one is built": {func(w *world) { w.says(unknown, "Running") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			require.NoError(t, w.backend().Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
			test.says(w)
			require.NoError(t, w.backend().Clean(t.Context(), key))
			assert.Len(t, w.runs(), test.stays)
			var configMaps corev1.ConfigMapList
			require.NoError(t, w.List(t.Context(), &configMaps))
			assert.Empty(t, configMaps.Items)
			require.NoError(t, w.backend().Remove(t.Context(), key))
			assert.Empty(t, w.runs())
			w.missing = errors.New("Tekton is not installed")
			require.NoError(t, w.backend().Clean(t.Context(), key))
		})
	}
}

// edit changes the only run as a person would.
func (w *world) edit(change func(*tektonv1.PipelineRun)) {
	run := &w.runs()[0]
	change(run)
	require.NoError(w.t, w.Update(w.t.Context(), run))
}

// TestNothingIsTakenFromAnEarlierRun has a run deleted whose TaskRun and pod take longer to go.
func TestNothingIsTakenFromAnEarlierRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := plainSpec(mcfgv1.ArchitectureAMD64)
	require.NoError(t, w.backend().Ensure(t.Context(), *spec))
	s := newScene(t).task("build", "amd64", no, "Failed", "").pod(phase(corev1.PodFailed), terminates(backend.Build, backend.ExitAdmin, ""))
	s.Pods[0].Labels[labelPipelineRun] = s.newest().Name
	w.join(s.tasks)
	w.adopt(&s.Pods[0])
	require.NoError(t, w.DeleteAllOf(t.Context(), &tektonv1.PipelineRun{}, client.InNamespace(namespace)))
	for _, left := range []client.Object{&s.tasks[0], &s.Pods[0]} {
		err := w.backend().Ensure(t.Context(), *spec)
		require.True(t, fault.IsWaiting(err), "%v", err)
		require.ErrorContains(t, err, left.GetName())
		assert.Empty(t, w.runs())
		require.NoError(t, w.Delete(t.Context(), left))
	}
	require.NoError(t, w.backend().Ensure(t.Context(), *spec))
	assert.Len(t, w.runs(), 1)
	// Even if it were there still, it would say nothing.
	s.tasks[0].ResourceVersion, s.tasks[0].OwnerReferences[0].UID = "", "earlier"
	w.adopt(&s.tasks[0])
	w.says(unknown, "Running")
	assert.Equal(t, backend.Running, w.observe().Phase)
}

func TestTheWebhookGoesAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := plainSpec(mcfgv1.ArchitectureAMD64)
	b, err := New(Options{Namespace: namespace, Image: image, UserNamespaces: pods.UserNamespacesNever, Clock: w.clock}, w.away(), w.Client, w)
	require.NoError(t, err)
	waits := func(err error) {
		t.Helper()
		require.True(t, fault.IsWaiting(err), "%v", err)
		assert.Equal(t, mcfgv1.ReasonWaiting, fault.Reason(err))
		assert.ErrorContains(t, err, "see that the Deployment tekton-pipelines-webhook runs")
	}
	waits(b.Ensure(t.Context(), *spec))
	require.NoError(t, w.backend().Ensure(t.Context(), *spec))
	waits(b.Remove(t.Context(), key))
	waits(b.Clean(t.Context(), key))
	w.says(no, "Failed")
	w.clock.Step(firstPause)
	_, err = b.Observe(t.Context(), key)
	waits(err)
}
