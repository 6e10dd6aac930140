package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/buildertest"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
)

var errCrash = errors.New("crash")

// world is an API server in memory.
type world struct {
	client.WithWatch
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	// writes counts those that are no dry run. failAt and then say which one fails, and whether it
	// has happened.
	writes, failAt int
	then           bool
	// dropHostUsers is an API server whose user namespaces are turned off; refuse is what it
	// answers to creating a Job.
	dropHostUsers bool
	refuse        error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(t0.Add(time.Minute)), failAt: -1}
	base := fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithStatusSubresource(&batchv1.Job{}, &corev1.Pod{}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
			event, _ := o.(*corev1.Event)
			return []string{string(event.InvolvedObject.UID)}
		}).WithObjects(objects...).Build()
	w.WithWatch = interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			job, isJob := o.(*batchv1.Job)
			if isJob && w.refuse != nil {
				return w.refuse
			}
			if isJob && w.dropHostUsers {
				job.Spec.Template.Spec.HostUsers = nil
			}
			if slices.Contains(opts, client.CreateOption(client.DryRunAll)) {
				return c.Create(ctx, o, opts...)
			}
			o.SetUID(types.UID(o.GetName() + "-uid"))
			return w.write(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.write(func() error { return c.Delete(ctx, o, opts...) })
		},
	})
	return w
}

// write does a write, unless it is the one that the process dies at.
func (w *world) write(do func() error) error {
	w.writes++
	if w.writes-1 != w.failAt {
		return do()
	}
	if w.then {
		require.NoError(w.t, do())
	}
	return errCrash
}

func (w *world) backend(change ...func(*Options)) *Backend {
	w.t.Helper()
	o := Options{Namespace: namespace, Image: image, Clock: w.clock}
	for _, c := range change {
		c(&o)
	}
	b, err := New(o, w, w)
	require.NoError(w.t, err)
	return b
}

// inputs are what fullSpec names.
func inputs() []client.Object {
	var objects []client.Object
	for _, name := range []string{"pull", "push", "etc-pki-entitlement-worker", "etc-pki-rpm-gpg"} {
		objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	return append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "etc-yum-repos-d"}})
}

// ours are the names of the objects that a build has now.
func (w *world) ours() (found []string) {
	var jobs batchv1.JobList
	var configMaps corev1.ConfigMapList
	require.NoError(w.t, w.List(w.t.Context(), &jobs))
	require.NoError(w.t, w.List(w.t.Context(), &configMaps, client.HasLabels{mcfgv1.LabelEphemeralBuildObject}))
	for i := range jobs.Items {
		found = append(found, jobs.Items[i].Name)
	}
	for i := range configMaps.Items {
		found = append(found, configMaps.Items[i].Name)
	}
	return found
}

func TestEnsureCanBeRepeatedAndDieAnywhere(t *testing.T) {
	t.Parallel()
	want := []string{
		"build-" + buildName, "additionaltrustbundle-" + buildName, "containerfile-" + buildName, "context-" + buildName, "etc-policy-" + buildName, "etc-registries-" + buildName,
	}
	for failAt := range len(want) {
		for _, then := range []bool{false, true} {
			w := newWorld(t, inputs()...)
			w.failAt, w.then = failAt, then
			require.ErrorIs(t, w.backend().Ensure(t.Context(), *fullSpec()), errCrash, "write %d", failAt)
			require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()), "write %d", failAt)
			require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()), "a third time")
			assert.Equal(t, want, w.ours(), "write %d", failAt)
		}
	}
	w := newWorld(t, inputs()...)
	w.failAt = len(want)
	require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()), "there are no more writes than objects")
}

func TestRemoveCanBeRepeatedAndDieAnywhere(t *testing.T) {
	t.Parallel()
	for failAt := range 6 {
		for _, then := range []bool{false, true} {
			w := newWorld(t, inputs()...)
			require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()))
			w.writes, w.failAt, w.then = 0, failAt, then
			require.ErrorIs(t, w.backend().Remove(t.Context(), key), errCrash)
			require.NoError(t, w.backend().Remove(t.Context(), key))
			assert.Empty(t, w.ours())
			require.NoError(t, w.backend().Remove(t.Context(), key), "a third time")
		}
	}
}

func TestRemoveKeepsAnotherBuildOfTheName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inputs()...)
	require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()))
	require.NoError(t, w.backend().Remove(t.Context(), backend.Key{Build: buildName, UID: "an earlier one"}))
	assert.Len(t, w.ours(), 6)
	var secrets corev1.SecretList
	require.NoError(t, w.List(t.Context(), &secrets))
	require.NoError(t, w.backend().Remove(t.Context(), key))
	assert.Len(t, secrets.Items, 4, "what administrators made stays")
}

func TestRepeatedBuildReplacesObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inputs()...)
	require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()))
	again := fullSpec()
	again.Key.UID = "uid-2"
	b := w.backend()
	state, err := b.Observe(t.Context(), again.Key)
	require.NoError(t, err)
	assert.Equal(t, backend.Absent, state.Phase, "the old build's Job is not the new one's")
	for range 6 {
		err := b.Ensure(t.Context(), *again)
		require.True(t, fault.IsWaiting(err), "%v", err)
		require.ErrorContains(t, err, "of an earlier build is removed first")
		assert.Equal(t, time.Second, fault.After(err))
	}
	require.NoError(t, b.Ensure(t.Context(), *again))
	var job batchv1.Job
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "build-" + buildName}, &job))
	assert.Equal(t, "uid-2", job.Annotations[mcfgv1.AnnotationMachineOSBuildUID])
}

func TestAnObjectThatIsBeingDeletedIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inputs()...)
	require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "build-" + buildName}}
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	job.Finalizers = []string{"foregroundDeletion"}
	require.NoError(t, w.Update(t.Context(), job))
	require.NoError(t, w.Delete(t.Context(), job))

	state, err := w.backend().Observe(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, backend.Absent, state.Phase)
	err = w.backend().Ensure(t.Context(), *fullSpec())
	assert.True(t, fault.IsWaiting(err), "%v", err)
	assert.ErrorContains(t, err, `Job "build-`+buildName+`" of an earlier build is being deleted, and waits for its finalizers foregroundDeletion; find out who set them`)
}

// TestPodsOfAnotherBuilderGoFirst is about a kubelet that gives a new pod the ConfigMap that
// another pod of its node still has.
func TestPodsOfAnotherBuilderGoFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inputs()...)
	require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()))
	var job batchv1.Job
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "build-" + buildName}, &job))
	require.NoError(t, w.backend().Remove(t.Context(), key))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "build-of-tekton", Labels: job.Labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "tekton.dev/v1", Kind: "TaskRun", Name: "build", UID: "task-uid", Controller: new(true)}},
	}}
	require.NoError(t, w.Create(t.Context(), pod))
	err := w.backend().Ensure(t.Context(), *fullSpec())
	require.True(t, fault.IsWaiting(err), "%v", err)
	require.ErrorContains(t, err, `pod "build-of-tekton" of what built before imageBuilderType was changed has not ended yet`)
	assert.Empty(t, w.ours())
	require.NoError(t, w.Delete(t.Context(), pod))
	require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()))
}

func TestForeignJobIsKept(t *testing.T) {
	t.Parallel()
	theirs := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "build-" + buildName}}
	w := newWorld(t, append(inputs(), theirs)...)
	err := w.backend().Ensure(t.Context(), *fullSpec())
	require.True(t, fault.IsWaiting(err), "%v", err)
	require.EqualError(t, err, `Job "build-`+buildName+`" does not belong to this build, but has the name that it needs: delete it`)
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
}

// TestOlderObjectIsReplaced has ConfigMaps that others made under the names of a
// build, as close to the controller's own as they can be.
func TestOlderObjectIsReplaced(t *testing.T) {
	t.Parallel()
	made, err := newObjects(&Options{Namespace: namespace, Image: image}, fullSpec(), []pods.Isolation{{Kind: backend.IsolationUserNamespace}})
	require.NoError(t, err)
	name := "containerfile-" + buildName
	i := slices.IndexFunc(made.configMaps, func(c *corev1.ConfigMap) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0)
	for what, change := range map[string]func(c *corev1.ConfigMap){
		"other instructions": func(c *corev1.ConfigMap) { c.Data["instructions.json"] = "{}" },
		"a file more":        func(c *corev1.ConfigMap) { c.BinaryData = map[string][]byte{"x": {0xff}} },
		"one that changes":   func(c *corev1.ConfigMap) { c.Immutable = nil },
		"another owner":      func(c *corev1.ConfigMap) { c.OwnerReferences = nil },
		"no annotations":     func(c *corev1.ConfigMap) { c.Annotations = nil },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			theirs := made.configMaps[i].DeepCopy()
			change(theirs)
			w := newWorld(t, append(inputs(), theirs)...)
			err := w.backend().Ensure(t.Context(), *fullSpec())
			require.True(t, fault.IsWaiting(err), "%v", err)
			assert.Equal(t, mcfgv1.ReasonInputsChanged, fault.Reason(err))
			require.ErrorContains(t, err, `ConfigMap "`+name+`" existed before the build`)
			require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()))
			got := &corev1.ConfigMap{}
			require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(theirs), got))
			assert.Equal(t, made.configMaps[i].Data, got.Data)
			assert.Equal(t, made.configMaps[i].OwnerReferences, got.OwnerReferences)
			assert.True(t, *got.Immutable)
		})
	}
}

// TestStepsKnowTheHashOfTheirMounts reads the pod's template, which no one changes once the
// Job is there.
func TestStepsKnowTheHashOfTheirMounts(t *testing.T) {
	t.Parallel()
	made, err := newObjects(&Options{Namespace: namespace, Image: image}, fullSpec(), []pods.Isolation{{Kind: backend.IsolationUserNamespace}})
	require.NoError(t, err)
	contents := map[string]map[string][]byte{} // of the ConfigMaps that the controller makes
	for _, c := range made.configMaps {
		files := map[string][]byte{}
		maps.Copy(files, c.BinaryData)
		for name, text := range c.Data {
			files[name] = []byte(text)
		}
		contents[c.Name] = files
	}
	pod := made.jobs[0].Spec.Template.Spec
	want := map[string]map[string]string{}
	got := map[string]map[string]string{}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		want[c.Name] = map[string]string{}
		for _, m := range c.VolumeMounts {
			if files := filesOfVolume(pod.Volumes, m.Name, contents); len(files) > 0 {
				want[c.Name][m.MountPath] = backend.Fingerprint(files)
			}
		}
		e := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == backend.ExpectedVariable })
		require.GreaterOrEqual(t, e, 0, c.Name)
		expected := map[string]string{}
		require.NoError(t, json.Unmarshal([]byte(c.Env[e].Value), &expected))
		got[c.Name] = expected
	}
	assert.Equal(t, want, got)
	assert.Len(t, got["build"], 3, "instructions, context and trust")
	assert.Len(t, got["push"], 3, "instructions, trust and registries")
}

// filesOfVolume are the files of a volume that come from some ConfigMaps.
func filesOfVolume(volumes []corev1.Volume, name string, contents map[string]map[string][]byte) map[string][]byte {
	files := map[string][]byte{}
	for _, v := range volumes {
		switch {
		case v.Name != name:
		case v.ConfigMap != nil:
			maps.Copy(files, contents[v.ConfigMap.Name])
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				maps.Copy(files, contents[source.ConfigMap.Name])
			}
		}
	}
	return files
}

func TestEnsureWaitsForInputs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ reason, message string }{
		"pull":                       {mcfgv1.ReasonWaitingForSecret, `Secret "pull" is not in namespace "layerwright"`},
		"push":                       {mcfgv1.ReasonWaitingForSecret, `Secret "push" is not in namespace "layerwright"`},
		"etc-pki-entitlement-worker": {mcfgv1.ReasonWaitingForSecret, `Secret "etc-pki-entitlement-worker" is not in namespace "layerwright"`},
		"etc-yum-repos-d":            {mcfgv1.ReasonWaitingForConfigMap, `ConfigMap "etc-yum-repos-d" is not in namespace "layerwright"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slices.DeleteFunc(inputs(), func(o client.Object) bool { return o.GetName() == name })...)
			err := w.backend().Ensure(t.Context(), *fullSpec())
			require.EqualError(t, err, want.message)
			assert.True(t, fault.IsWaiting(err))
			assert.Equal(t, want.reason, fault.Reason(err))
			assert.Empty(t, w.ours(), "it is no attempt")
		})
	}
}

func TestIsolationAfterAdmission(t *testing.T) {
	t.Parallel()
	node := newNode("a", "amd64", true)
	isolationOf := func(t *testing.T, w *world) (string, *bool) {
		t.Helper()
		var job batchv1.Job
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "build-" + buildName}, &job))
		return job.Annotations[mcfgv1.AnnotationBuildIsolation], job.Spec.Template.Spec.HostUsers
	}
	t.Run("user namespaces", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, append(inputs(), &node)...)
		require.NoError(t, w.backend().Ensure(t.Context(), *fullSpec()), "fullSpec selects nodes of another kind")
		note, _ := isolationOf(t, w)
		assert.Equal(t, "Capabilities (no node that fits is there yet, so nothing is known of its user namespaces)", note)
	})
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, node.DeepCopy())
		require.NoError(t, w.backend().Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
		note, hostUsers := isolationOf(t, w)
		assert.Equal(t, "UserNamespace", note)
		assert.Equal(t, new(false), hostUsers)
	})
	t.Run("dropped", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, node.DeepCopy())
		w.dropHostUsers = true
		require.NoError(t, w.backend().Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
		note, hostUsers := isolationOf(t, w)
		assert.Equal(t, "Capabilities (the API server drops hostUsers)", note)
		assert.Nil(t, hostUsers)
	})
	t.Run("dropped, and required", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.dropHostUsers = true
		err := w.backend(func(o *Options) { o.UserNamespaces = pods.UserNamespacesAlways }).Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64))
		assert.True(t, fault.IsTerminal(err), "%v", err)
		assert.Empty(t, w.ours())
	})
}

func TestRefusedJob(t *testing.T) {
	t.Parallel()
	group := batchv1.SchemeGroupVersion.WithResource("jobs").GroupResource()
	for name, test := range map[string]struct {
		answer error
		want   fault.Class
	}{
		"a quota or policy":    {apierrors.NewForbidden(group, "build", errors.New("exceeded quota")), fault.Waiting},
		"a request over limit": {apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), "build", nil), fault.Terminal},
		"a busy API server":    {apierrors.NewTooManyRequests("slow down", 1), fault.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.refuse = test.answer
			err := w.backend().Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64))
			require.ErrorContains(t, err, `creating Job "build-`+buildName+`": `)
			assert.Equal(t, test.want, fault.ClassOf(err))
		})
	}
}

// emptyCache is a cache that has heard of nothing.
type emptyCache struct{ client.Client }

func (emptyCache) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestEmptyCacheIsVerified(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.backend().Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
	b, err := New(Options{Namespace: namespace, Image: image, Clock: w.clock}, emptyCache{w}, w)
	require.NoError(t, err)
	state, err := b.Observe(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, backend.Pending, state.Phase)
}

// podFor adds a pod to a Job, as the Job controller would.
func (w *world) podFor(jobName string, changes ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	var job batchv1.Job
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: jobName}, &job))
	s := &scene{t: w.t, facts: facts{Facts: pods.Facts{Now: t0}, jobs: []batchv1.Job{job}}}
	pod := &s.pod(changes...).Pods[0]
	pod.Labels = job.Spec.Template.Labels
	status := pod.Status
	require.NoError(w.t, w.Create(w.t.Context(), pod))
	pod.Status = status
	require.NoError(w.t, w.Status().Update(w.t.Context(), pod))
	return pod
}

func TestOneFailedArchitectureEndsTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.backend()
	require.NoError(t, b.Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64)))
	jobs := []string{"build-" + buildName + "-amd64", "build-" + buildName + "-arm64"}
	w.podFor(jobs[0], buildertest.Runs(backend.Build))
	w.podFor(jobs[1], buildertest.Ends(backend.Build, 42, "Error", ""))
	for range 2 {
		state, err := b.Observe(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, backend.Failed, state.Phase)
		assert.Equal(t, mcfgv1.ArchitectureARM64, state.Failure.Architecture)
	}
	assert.NotContains(t, w.ours(), jobs[0])
	assert.Contains(t, w.ours(), jobs[1], "what failed stays for someone to look at")
}

func event(reason, message string, about types.UID, at time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "e-"}, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		InvolvedObject: corev1.ObjectReference{UID: about}, LastTimestamp: metav1.NewTime(at),
	}
}

func TestEventsExplainAMissingPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.backend()
	require.NoError(t, b.Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
	jobUID := types.UID("build-" + buildName + "-uid")
	for _, e := range []*corev1.Event{
		event("FailedCreate", "an older one", jobUID, t0), event("FailedCreate", "exceeded quota: builds.", jobUID, t0.Add(time.Second)),
		event("FailedCreate", "of another Job", "other", t0.Add(time.Hour)), event("SuccessfulCreate", "of another kind", jobUID, t0.Add(time.Hour)),
	} {
		e.Name = strings.ReplaceAll(e.Message, " ", "-")
		require.NoError(t, w.Create(t.Context(), e))
	}
	state, err := b.Observe(t.Context(), key)
	require.NoError(t, err)
	require.NotNil(t, state.Failure)
	assert.Contains(t, state.Failure.Message, "the cluster refuses to create the pod: exceeded quota: builds;")

	pod := w.podFor("build-" + buildName)
	podEvent := event("FailedMount", "MountVolume.SetUp failed", pod.UID, t0.Add(time.Minute))
	podEvent.Name = "mount"
	require.NoError(t, w.Create(t.Context(), podEvent))
	state, err = b.Observe(t.Context(), key)
	require.NoError(t, err)
	require.NotNil(t, state.Failure)
	assert.Equal(t, "node node-1 cannot start the pod: MountVolume.SetUp failed", state.Failure.Message, "the Job's own are history")
}

func TestMissingMountIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inputs()...)
	b := w.backend()
	require.NoError(t, b.Ensure(t.Context(), *fullSpec()))
	w.podFor("build-" + buildName)
	gone := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "push"}}
	require.NoError(t, w.Delete(t.Context(), gone))
	state, err := b.Observe(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, backend.Pending, state.Phase)
	assert.Equal(t, &backend.Failure{Class: fault.Waiting, Reason: mcfgv1.ReasonWaitingForSecret, Message: `secret "push" is not in namespace "layerwright"`}, state.Failure)
}

// TestDeletedConfigMapIsMadeAgain has a ConfigMap of the build deleted before its pod has mounted
// it.
func TestDeletedConfigMapIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inputs()...)
	b := w.backend()
	require.NoError(t, b.Ensure(t.Context(), *fullSpec()))
	w.podFor("build-" + buildName)
	made := &corev1.ConfigMap{}
	name := client.ObjectKey{Namespace: namespace, Name: "containerfile-" + buildName}
	require.NoError(t, w.Get(t.Context(), name, made))
	require.NoError(t, w.Delete(t.Context(), made.DeepCopy()))

	state, err := b.Observe(t.Context(), key)
	require.NoError(t, err)
	assert.True(t, state.IsIncomplete)
	assert.Nil(t, state.Failure, "no one has to act")
	assert.Equal(t, `ConfigMap "containerfile-`+buildName+`" was deleted; the controller creates it again`, state.Message)

	require.NoError(t, b.Ensure(t.Context(), *fullSpec()))
	again := &corev1.ConfigMap{}
	require.NoError(t, w.Get(t.Context(), name, again))
	assert.Equal(t, made.Data, again.Data)
	state, err = b.Observe(t.Context(), key)
	require.NoError(t, err)
	assert.False(t, state.IsIncomplete)
}

// told is progress that a log has.
type told struct {
	progress backend.Progress
	err      error
}

func (l told) Progress(context.Context, types.NamespacedName, backend.Step) (backend.Progress, bool, error) {
	return l.progress, true, l.err
}

func TestALogThatCannotBeReadHidesOnlyProgress(t *testing.T) {
	t.Parallel()
	for want, log := range map[string]told{
		"step build, instruction 2 of 3": {progress: backend.Progress{Step: backend.Build, Done: 2, Total: 3}},
		"step build":                     {err: errCrash},
	} {
		w := newWorld(t)
		b := w.backend(func(o *Options) { o.Logs = log })
		require.NoError(t, b.Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
		w.podFor("build-"+buildName, buildertest.Ends(backend.Fetch, 0, "", ""), buildertest.Runs(backend.Build))
		state, err := b.Observe(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, want, state.Message)
		assert.Equal(t, 5*time.Second, state.After)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Namespace: namespace}, {Image: image}, {Namespace: namespace, Image: image, UserNamespaces: "Perhaps"}} {
		_, err := New(o, nil, nil)
		require.ErrorContains(t, err, "setting up Jobs: ")
	}
	b, err := New(Options{Namespace: namespace, Image: image}, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, "layerwright-build", b.options.ServiceAccount)
	assert.Equal(t, pods.UserNamespacesAuto, b.options.UserNamespaces)
	assert.NotNil(t, b.options.Clock)
}

func TestOnlyObjectsOfBuildsAreWatched(t *testing.T) {
	t.Parallel()
	made, err := newObjects(testOptions(), plainSpec(mcfgv1.ArchitectureAMD64), []pods.Isolation{{}})
	require.NoError(t, err)
	job := made.jobs[0]
	options := CacheOptions(namespace)
	require.Len(t, options, 2)
	for kind, of := range options {
		require.Len(t, of.Namespaces, 1)
		selector := of.Namespaces[namespace].LabelSelector
		assert.True(t, selector.Matches(labels.Set(job.Labels)), "%T", kind)
		assert.True(t, selector.Matches(labels.Set(job.Spec.Template.Labels)), "%T", kind)
		assert.False(t, selector.Matches(labels.Set{"app.kubernetes.io/name": "layerwright"}), "%T", kind)
	}
	var b *Backend
	assert.Len(t, b.Watches(), len(options))
	assert.Equal(t, buildName, b.BuildOf(job))
	assert.Equal(t, buildName, b.BuildOf(&corev1.Pod{ObjectMeta: job.Spec.Template.ObjectMeta}))
	assert.Empty(t, b.BuildOf(&corev1.Pod{}))
	assert.Equal(t, names.BuildLabel(buildName), job.Labels[mcfgv1.LabelMachineOSBuild])
}
