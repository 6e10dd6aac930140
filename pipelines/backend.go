package pipelines

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

// Options are what a Backend works with.
type Options = pods.Options

// Presence reports whether Tekton is there, tells what changes of its objects, and reads them from
// a cache that is as new as what it tells.
type Presence interface {
	Notify(changed func(object client.Object))
	// Reader reads what runs. It waits, in the sense of fault.Waiting, while Tekton is not there.
	Reader(ctx context.Context) (client.Reader, error)
}

// Backend builds with PipelineRuns.
type Backend struct {
	options  Options
	cluster  pods.Cluster
	presence Presence
}

// New makes a Backend. The client has to know Tekton's kinds, and writes; its cache is used for
// pods and nodes. The reader is asked for everything once more before a build is said to have ended
// or to be gone.
func New(options Options, c client.Client, reader client.Reader, presence Presence) (*Backend, error) {
	options, err := options.Complete("PipelineRuns")
	if err != nil {
		return nil, err
	}
	cluster := pods.Cluster{Namespace: options.Namespace, Client: c, Reader: reader}
	if options.Logs != nil {
		cluster.Logs = stepLogs{options.Logs}
	}
	return &Backend{options: options, cluster: cluster, presence: presence}, nil
}

// stepLogs reads the logs of Tekton's containers, which are called like the steps with a word
// before.
type stepLogs struct{ pods.Logs }

// Progress implements the interface of builds' logs.
func (l stepLogs) Progress(ctx context.Context, pod client.ObjectKey, step backend.Step) (backend.Progress, bool, error) {
	return l.Logs.Progress(ctx, pod, stepPrefix+step)
}

// Ensure makes what is missing of the build. It waits, in the sense of fault.Waiting, for Tekton,
// for the Pipeline, for secrets and ConfigMaps that are not there, and for the objects of an
// earlier build of the same name to go.
func (b *Backend) Ensure(ctx context.Context, spec backend.Spec) error {
	if _, err := b.presence.Reader(ctx); err != nil {
		return err
	}
	if err := b.cluster.RequireInputs(ctx, &spec); err != nil {
		return err
	}
	m := &maker{Maker: pods.Maker{Namespace: b.options.Namespace, Spec: &spec}, options: &b.options}
	spec.Architectures = withTimeout(withContexts(spec.Architectures), m.Timeout())
	configMaps, err := m.ConfigMaps()
	if err != nil {
		return err
	}
	isolations, err := b.isolations(ctx, m)
	if err != nil {
		return err
	}
	run, err := m.run(isolations)
	if err != nil {
		return err
	}
	if err := b.requirePipeline(ctx, run.Spec.PipelineRef.Name); err != nil {
		return err
	}
	if err := b.cluster.RequireNoOthers(ctx, &spec.Key, "TaskRun"); err != nil {
		return err
	}
	for _, c := range configMaps {
		if err := b.cluster.Ensure(ctx, c, &spec.Key); err != nil {
			return err
		}
	}
	return b.make(ctx, run, &spec.Key)
}

// make makes a run once nothing is left of an earlier one of its name: Tekton finds TaskRuns by
// their names, and would go on with those.
func (b *Backend) make(ctx context.Context, run *tektonv1.PipelineRun, key *backend.Key) error {
	if err := requireNoneLeft(ctx, b.cluster.Reader, run, mcfgv1.ReasonPreparing); err != nil {
		return err
	}
	return denied(b.cluster.Ensure(ctx, run, key))
}

// withContexts gives every architecture a build context where one has it: a workspace has a folder
// for each, or is not there.
func withContexts(architectures []backend.ArchitectureSpec) []backend.ArchitectureSpec {
	if !slices.ContainsFunc(architectures, func(a backend.ArchitectureSpec) bool { return len(a.Context) > 0 }) {
		return architectures
	}
	out := slices.Clone(architectures)
	for i := range out {
		if len(out[i].Context) == 0 {
			out[i].Context = map[string][]byte{".keep": {}}
		}
	}
	return out
}

// withTimeout has the steps end by themselves when their time is over: Tekton deletes the pod of a
// task that takes too long, and what it was doing would not be known.
func withTimeout(architectures []backend.ArchitectureSpec, timeout time.Duration) []backend.ArchitectureSpec {
	out := slices.Clone(architectures)
	for i := range out {
		out[i].Instructions.TimeoutSeconds = *pods.Seconds(timeout)
	}
	return out
}

// requirePipeline asks for the Pipeline. A run without it would fail for good.
func (b *Backend) requirePipeline(ctx context.Context, name string) error {
	is, err := hasPipeline(ctx, b.cluster.Reader, b.options.Namespace, name)
	if is || err != nil {
		return err
	}
	return fault.NewWaiting(mcfgv1.ReasonWaiting, pods.WhileWaiting, fmt.Errorf( //nolint:staticcheck // it begins with the name of a kind
		"Pipeline %q is not in namespace %q: apply deploy/components/tekton, or correct spec.imageBuilder.pipeline of the MachineOSConfig", name, b.options.Namespace))
}

// hasPipeline asks for a Pipeline, which no one watches.
func hasPipeline(ctx context.Context, from client.Reader, namespace, name string) (bool, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(tektonv1.SchemeGroupVersion.WithKind("Pipeline"))
	err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, meta)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("looking for Pipeline %q: %w", name, err)
	}
	return err == nil, nil
}

// isolations are those that each architecture's nodes offer, and that the API server does not take
// out of pods. A Job that is not made finds that out.
func (b *Backend) isolations(ctx context.Context, m *maker) ([]pods.Isolation, error) {
	chosen, err := b.cluster.Isolations(ctx, b.options.UserNamespaces, m.Spec)
	if err != nil {
		return nil, err
	}
	for i := range chosen {
		if chosen[i], err = b.cluster.Probe(ctx, b.options.UserNamespaces, m.probe(), chosen[i]); err != nil {
			return nil, err
		}
	}
	return chosen, nil
}

// probe is a Job whose pod has a user namespace. It is never made.
func (m *maker) probe() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: m.Meta(m.Name(pods.KindBuild, ""), m.Annotations()),
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, HostUsers: new(false),
			Containers: []corev1.Container{{Name: "probe", Image: m.options.Image, SecurityContext: pods.Isolation{Kind: backend.IsolationUserNamespace}.SecurityContext()}},
		}}},
	}
}

// denied says of what Tekton's webhook refuses that the Pipeline or the settings have to change,
// and of a webhook that does not answer that Tekton has to.
func denied(err error) error {
	switch err = whileAway(err, mcfgv1.ReasonWaiting); {
	case err == nil || fault.IsTerminal(err):
		return err
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "admission webhook"), apierrors.IsBadRequest(err):
		return fault.NewTerminal(mcfgv1.ReasonInvalid, err)
	}
	return err
}

// Observe says how far the build is, and makes the next attempt when it is due. That it is gone or
// has ended is said only after the API server was asked, whose word is final. While Tekton is not
// there nothing is known: what there was may be gone with it, and that was no one's will.
func (b *Backend) Observe(ctx context.Context, key backend.Key) (backend.State, error) {
	reader, err := b.presence.Reader(ctx)
	if fault.IsWaiting(err) {
		return backend.State{Phase: backend.Pending, After: fault.After(err), Failure: &backend.Failure{
			Class: fault.Waiting, Reason: fault.Reason(err), Message: fault.Message(err),
		}}, nil
	}
	if err != nil {
		return backend.State{}, err
	}
	known, err := b.gather(ctx, reader, b.cluster.Client, &key)
	if err == nil {
		err = b.cluster.GiveUp(ctx, &known.Facts)
	}
	if err != nil {
		return backend.State{}, err
	}
	if state := observe(known); (state.Phase == backend.Pending || state.Phase == backend.Running) && !isDue(known) {
		return state, b.dropReplaced(ctx, known)
	}
	if known, err = b.gather(ctx, b.cluster.Reader, b.cluster.Reader, &key); err != nil {
		return backend.State{}, err
	}
	state := observe(known)
	switch {
	case state.Phase == backend.Pending && isDue(known):
		return state, b.make(ctx, again(known.newest()), &key)
	case state.Phase == backend.Running && isDue(known):
		return state, b.make(ctx, next(known.newest()), &key)
	case state.Phase == backend.Failed:
		return state, b.stopOthers(ctx, known)
	}
	return state, nil
}

// isDue reports whether the last attempt has failed, and the next one is to be made.
func isDue(f *facts) bool {
	run := f.newest()
	if run == nil || !conditionOf(run).IsFalse() {
		return false
	}
	switch failureOf(f, run).Class {
	case fault.Waiting:
		return !f.Now.Before(againAt(run))
	case fault.Transient:
		return !countOf(run).AndOne().IsSpent() && !f.Now.Before(dueAt(run))
	case fault.Terminal:
	}
	return false
}

// dropReplaced removes runs that had no pod and were made again.
func (b *Backend) dropReplaced(ctx context.Context, known *facts) error {
	for i := range known.replaced {
		if err := b.cluster.Delete(ctx, &known.replaced[i]); err != nil {
			return err
		}
	}
	return nil
}

// stopOthers ends what a run that has failed still builds for other architectures. The run is left
// to end by itself: Tekton deletes the pods of what is cancelled, and with them the log of what
// failed.
func (b *Backend) stopOthers(ctx context.Context, f *facts) error {
	run := f.newest()
	for i := range f.tasks {
		task := &f.tasks[i]
		if !isTaskOf(task, run) || task.Labels[labelPipelineTask] != taskBuild || task.IsDone() || task.Spec.Status != "" || f.endingOf(run, task) != nil {
			continue
		}
		before := task.DeepCopy()
		task.Spec.Status, task.Spec.StatusMessage = tektonv1.TaskRunSpecStatusCancelled, "Layerwright cancelled it, since the build has failed elsewhere."
		if err := b.cluster.Client.Patch(ctx, task, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil { //nolint:gocritic // what is not found is no error
			return whileAway(fmt.Errorf("ending TaskRun %q: %w", task.Name, err), mcfgv1.ReasonWaiting)
		}
	}
	return nil
}

// Clean removes what a build that has ended no longer needs. Its runs and their pods stay for
// consoles until the build goes; one that has not ended is removed.
func (b *Backend) Clean(ctx context.Context, key backend.Key) error {
	if _, err := b.presence.Reader(ctx); fault.IsWaiting(err) {
		return b.cluster.Remove(ctx, &key, &corev1.ConfigMap{})
	} else if err != nil {
		return err
	}
	runs, err := b.runsOf(ctx, b.cluster.Reader, &key)
	if err != nil {
		return err
	}
	for i := range runs {
		if run := &runs[i]; !run.IsDone() && !isCancelled(run, conditionOf(run)) {
			if err := b.cluster.Delete(ctx, run); err != nil {
				return whileAway(err, mcfgv1.ReasonWaiting)
			}
		}
	}
	return b.cluster.Remove(ctx, &key, &corev1.ConfigMap{})
}

// Remove removes everything of the build, its PipelineRuns first. Without Tekton there are none.
func (b *Backend) Remove(ctx context.Context, key backend.Key) error {
	kinds := []client.Object{&tektonv1.PipelineRun{}, &corev1.ConfigMap{}}
	if _, err := b.presence.Reader(ctx); fault.IsWaiting(err) {
		kinds = kinds[1:]
	} else if err != nil {
		return err
	}
	return whileAway(b.cluster.Remove(ctx, &key, kinds...), mcfgv1.ReasonWaiting)
}

// gather reads everything that is known of a build: Tekton's objects from one reader, pods from the
// other. What only explains a delay is read where there is one.
func (b *Backend) gather(ctx context.Context, tekton, from client.Reader, key *backend.Key) (*facts, error) {
	f := &facts{}
	var err error
	if f.runs, err = b.runsOf(ctx, tekton, key); err != nil {
		return nil, err
	}
	if f.Facts, err = b.cluster.Gather(ctx, from, key, b.options.Clock.Now()); err != nil || len(f.runs) == 0 {
		return f, err
	}
	f.runs, f.replaced = newestOfEach(f.runs)
	var tasks tektonv1.TaskRunList
	if err := tekton.List(ctx, &tasks, b.cluster.OfBuild(key)...); err != nil {
		return nil, fmt.Errorf("listing the TaskRuns of build %q: %w", key.Build, err)
	}
	f.tasks = tasks.Items
	return f, b.explain(ctx, f)
}

// runsOf are the runs of a build that are not being deleted, the first attempt first.
func (b *Backend) runsOf(ctx context.Context, from client.Reader, key *backend.Key) ([]tektonv1.PipelineRun, error) {
	var list tektonv1.PipelineRunList
	// Tekton adds a Pipeline's labels and annotations to its runs where those have none: a run that
	// tests an image could become one of a build.
	ofBuild := append(b.cluster.OfBuild(key), client.MatchingLabels{pods.ComponentLabel: pods.Component})
	if err := from.List(ctx, &list, ofBuild...); err != nil {
		return nil, fmt.Errorf("listing the PipelineRuns of build %q: %w", key.Build, err)
	}
	runs := slices.DeleteFunc(list.Items, func(run tektonv1.PipelineRun) bool {
		return !pods.IsOf(&run, key) || !run.DeletionTimestamp.IsZero()
	})
	slices.SortFunc(runs, func(a, b tektonv1.PipelineRun) int {
		return cmp.Or(countOf(&a).Failed-countOf(&b).Failed, a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return runs, nil
}

// explain reads what keeps the newest run from going on, and how far its steps are.
func (b *Backend) explain(ctx context.Context, f *facts) error {
	run := f.newest()
	for i := range f.tasks {
		if c := f.tasks[i].Status.GetCondition(apis.ConditionSucceeded); c != nil && isRefused(c.Reason) {
			b.cluster.NameLimitRanges(ctx, &f.Facts, c.Message)
		}
	}
	if run.IsDone() {
		return nil
	}
	for i := range f.tasks {
		pod := f.podOf(&f.tasks[i])
		if pod == nil || pods.IsOver(pod) || !isTaskOf(&f.tasks[i], run) {
			continue
		}
		if err := b.cluster.Explain(ctx, &f.Facts, pod, pods.CurrentStep(pod)); err != nil {
			return err
		}
	}
	if f.isSlow(run) {
		return b.cluster.Warn(ctx, &f.Facts, run, tasksRefused)
	}
	return nil
}

// newestOfEach are the newest runs of each attempt, and those before. They are in order.
func newestOfEach(runs []tektonv1.PipelineRun) (newest, replaced []tektonv1.PipelineRun) {
	for i := range runs {
		if i+1 < len(runs) && countOf(&runs[i+1]).Failed == countOf(&runs[i]).Failed {
			replaced = append(replaced, runs[i])
			continue
		}
		newest = append(newest, runs[i])
	}
	return newest, replaced
}

// Notify has a function called with every object of Tekton's that changes, and with nil when Tekton
// has come or gone.
func (b *Backend) Notify(changed func(object client.Object)) { b.presence.Notify(changed) }

// Watches are the kinds in the manager's cache whose changes mean that the build they are of is to
// be observed. Tekton's own come by Presence.
func (*Backend) Watches() []client.Object { return []client.Object{&corev1.Pod{}} }

// BuildOf is the MachineOSBuild that a watched object is of; empty for those of others.
func (*Backend) BuildOf(o client.Object) string {
	return o.GetAnnotations()[mcfgv1.AnnotationMachineOSBuild]
}
