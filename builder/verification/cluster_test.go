package verification

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/testjobs"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const controllerUser = "verification-under-test"

const plain = `apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      containers:
        - name: image
          image: $(IMAGE)
          command: ["true"]
`

// cluster is a real API server with the controller of Jobs, and no kubelet: the test is one.
type cluster struct {
	client.Client
	t         *testing.T
	config    *rest.Config
	namespace string
	clock     *clocktesting.FakePassiveClock
	counted   *metrics.Verifications
	stop      func()
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{
		t: t, config: clustertest.ControlPlane(t), namespace: clustertest.Namespace(t), clock: clocktesting.NewFakePassiveClock(time.Now()),
		counted: metrics.NewVerifications(), stop: func() {},
	}
	install.Kinds(t, c.config)
	var err error
	c.Client, err = client.New(c.config, client.Options{Scheme: apitest.Scheme(t)})
	require.NoError(t, err)
	install.ControllerRights(t, c.config, c.namespace, controllerUser)
	t.Cleanup(func() { c.stop() })
	return c
}

// start runs the reconciler with the rights of deploy/base, as a process of its own would; an
// earlier one is ended first.
func (c *cluster) start(changes ...func(*Options)) {
	c.t.Helper()
	c.stop()
	work := cache.ByObject{Namespaces: map[string]cache.Config{c.namespace: {LabelSelector: labels.SelectorFromSet(labels.Set{testjobs.ComponentLabel: testjobs.Component})}}}
	manager := clustertest.Manager(c.t, clustertest.As(c.config, controllerUser), apitest.Scheme(c.t), cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{c.namespace: {}}}, &batchv1.Job{}: work, &corev1.Pod{}: work,
	}})
	options := Options{Namespace: c.namespace, Metrics: c.counted}
	for _, change := range changes {
		change(&options)
	}
	v := New(options)
	v.clock = c.clock
	require.NoError(c.t, v.SetupWithManager(manager))
	c.stop = clustertest.Run(c.t, manager.Start)
}

// tested is an image whose MachineOSConfig asks for a test.
type tested struct {
	*cluster
	t    *testing.T
	name string
}

// image makes a MachineOSConfig with the test in the ConfigMap of its name, and an image of it.
func (c *cluster) image(t *testing.T, name string, changes ...func(*mcfgv1.MachineOSConfig, *mcfgv1alpha1.MachineOSImage)) *tested {
	t.Helper()
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: name}, ImageBuilder: mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"}, RenderedImagePushSpec: "registry.example.com/os/worker:latest",
		Verification: &mcfgv1.ImageVerification{Type: mcfgv1.JobBuilder, Job: &mcfgv1.ConfigMapKeyReference{Name: name}},
	}}
	image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: name + "-aaaa"}, Spec: mcfgv1alpha1.MachineOSImageSpec{
		PullSpec: pinned, MachineConfigPool: name,
	}}
	for _, change := range changes {
		change(config, image)
	}
	require.NoError(t, c.Create(t.Context(), config))
	t.Cleanup(func() { require.NoError(t, c.Delete(context.WithoutCancel(t.Context()), config)) })
	if image.OwnerReferences == nil {
		image.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: mcfgv1.GroupVersion.String(), Kind: owner.Kind, Name: config.Name, UID: config.UID, Controller: new(true),
		}}
	}
	require.NoError(t, c.Create(t.Context(), image))
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), image))) })
	return &tested{cluster: c, t: t, name: name}
}

func (i *tested) object() *mcfgv1alpha1.MachineOSImage {
	i.t.Helper()
	image := &mcfgv1alpha1.MachineOSImage{}
	require.NoError(i.t, i.Get(i.t.Context(), client.ObjectKey{Name: i.name + "-aaaa"}, image))
	return image
}

// says waits until the condition Verified begins so, and gives the image.
func (i *tested) says(want string) *mcfgv1alpha1.MachineOSImage {
	i.t.Helper()
	var image *mcfgv1alpha1.MachineOSImage
	i.eventually(func(t *assert.CollectT) {
		image = i.object()
		require.True(t, strings.HasPrefix(verifiedText(image), want), "%q, not %q", verifiedText(image), want)
	})
	return image
}

func verifiedText(image *mcfgv1alpha1.MachineOSImage) string {
	c := status.Find(image.Status.Conditions, mcfgv1alpha1.ImageVerified)
	if c == nil {
		return "none"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
}

func (i *tested) eventually(holds func(*assert.CollectT)) {
	i.t.Helper()
	require.EventuallyWithT(i.t, holds, 2*time.Minute, 20*time.Millisecond)
}

// write writes the manifest of the test.
func (i *tested) write(manifest string) {
	i.t.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: i.name}, Data: map[string]string{testjobs.DefaultKey: manifest}}
	if err := i.Create(i.t.Context(), configMap); err != nil {
		require.NoError(i.t, i.Update(i.t.Context(), configMap))
	}
}

// job waits until the image has one Job, which is none of those that the caller knows.
func (i *tested) job(but ...*batchv1.Job) *batchv1.Job {
	i.t.Helper()
	var found []batchv1.Job
	i.eventually(func(t *assert.CollectT) {
		var list batchv1.JobList
		require.NoError(t, i.List(i.t.Context(), &list, client.InNamespace(i.namespace)))
		found = nil
		for _, job := range list.Items {
			if job.Annotations[mcfgv1.AnnotationMachineOSImage] == i.name+"-aaaa" {
				found = append(found, job)
			}
		}
		require.Len(t, found, 1)
		for _, known := range but {
			require.NotEqual(t, known.UID, found[0].UID)
		}
	})
	return &found[0]
}

// kubelet writes the status of a Job's pod, as soon as there is one that has not ended.
func (i *tested) kubelet(job *batchv1.Job, s corev1.PodStatus) {
	i.t.Helper()
	i.eventually(func(t *assert.CollectT) {
		var pods corev1.PodList
		require.NoError(t, i.List(i.t.Context(), &pods, client.InNamespace(i.namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}))
		for _, pod := range pods.Items {
			if metav1.IsControlledBy(&pod, job) && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
				pod.Status = s
				require.NoError(t, i.Status().Update(i.t.Context(), &pod))
				return
			}
		}
		require.Fail(t, "it has no pod")
	})
}

func endedWith(code int32, message string) corev1.PodStatus {
	phase := corev1.PodFailed
	if code == 0 {
		phase = corev1.PodSucceeded
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return corev1.PodStatus{Phase: phase, StartTime: &now, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "image", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, StartedAt: now, FinishedAt: now}},
	}}}
}

func runs() corev1.PodStatus {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "image", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}}}
}

func (i *tested) remove(o client.Object) {
	i.t.Helper()
	require.NoError(i.t, i.Delete(i.t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// told waits for an event about the image with the reason.
func (i *tested) told(reason string, times int) {
	i.t.Helper()
	i.eventually(func(t *assert.CollectT) {
		var list eventsv1.EventList
		require.NoError(t, i.List(i.t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
		about := map[string]int{}
		for _, e := range list.Items {
			if e.Reason == reason {
				n := 1
				if e.Series != nil {
					n = int(e.Series.Count)
				}
				about[e.Regarding.Kind+"/"+e.Regarding.Name] += n
			}
		}
		require.Equal(t, times, about[imageKind+"/"+i.name+"-aaaa"], reason)
		require.Equal(t, times, about[owner.Kind+"/"+i.name], reason)
	})
}

func TestOnARealAPIServer(t *testing.T) {
	c := newCluster(t)
	c.start()
	for name, run := range map[string]func(*testing.T, *cluster){
		"a test fails, is run again, and passes":       testFailsThenPasses,
		"a test that is changed while it runs":         testChangedWhileRunning,
		"a test that failed is run again when changed": testChangedAfterFailing,
		"a disruption is no result":                    testDisruptions,
		"a test that takes too long":                   testTooLong,
		"manifests that can't be run":                  testManifests,
		"no one asks":                                  testNotRequested,
		"no pipelines":                                 testPipeline,
		"the request is withdrawn":                     testWithdrawn,
	} {
		t.Run(name, func(t *testing.T) { run(t, c) })
	}
	t.Run("a restart changes nothing", func(t *testing.T) { testRestart(t, c) })
	t.Run("a pipeline fails, is run again, and passes", func(t *testing.T) { testTekton(t, c) })
	t.Run("what is signed is tested", func(t *testing.T) { testSigned(t, c) })
}

func testFailsThenPasses(t *testing.T, c *cluster) {
	t.Helper()
	i := c.image(t, "passes")
	image := i.says("False WaitingForConfigMap spec.verification.job: ConfigMap \"passes\" does not exist in namespace")
	assert.Nil(t, image.Status.Verification)
	i.write("")
	i.says("False InvalidVerification key \"job.yaml\" of ConfigMap \"passes\": the manifest is empty")
	i.write(plain)
	first := i.job()
	image = i.says("False VerificationRunning Job \"verify-passes-aaaa-")
	require.NotNil(t, image.Status.Verification)
	assert.Equal(t, first.Name, image.Status.Verification.Job)
	assert.Equal(t, testjobs.Hash(plain, time.Hour), image.Status.Verification.TestHash)
	assert.Nil(t, image.Status.Verification.ExitCode)

	i.kubelet(first, endedWith(3, "no os-release\n"))
	image = i.says(fmt.Sprintf("False VerificationFailed Job %q: container \"image\" ended with exit code 3: no os-release", first.Name))
	result := image.Status.Verification
	assert.Equal(t, "image", result.Container)
	assert.Equal(t, new(int32(3)), result.ExitCode)
	assert.Equal(t, "no os-release", result.Message)
	assert.NotNil(t, result.StartTime)
	assert.NotNil(t, result.CompletionTime)
	i.told("VerificationStarted", 1)
	i.told("ImageVerificationFailed", 2) // the empty manifest was one
	i.told("ImageVerified", 0)

	var pods corev1.PodList
	require.NoError(t, i.List(t.Context(), &pods, client.InNamespace(i.namespace), client.MatchingLabels{batchv1.JobNameLabel: first.Name}))
	require.Len(t, pods.Items, 1)
	i.remove(&pods.Items[0])
	i.says("False VerificationFailed")
	assert.Equal(t, first.UID, i.job().UID, "that the pod is gone changes nothing")

	i.remove(first)
	second := i.job(first)
	image = i.says("False VerificationRunning")
	assert.Nil(t, image.Status.Verification.CompletionTime)
	i.kubelet(second, endedWith(0, "all fine"))
	image = i.says("True Verified")
	assert.Equal(t, "all fine", image.Status.Verification.Message)
	i.told("VerificationStarted", 2)
	i.told("ImageVerified", 1)
	assert.Equal(t, map[string]float64{"passed": 1, "failed": 1}, i.counts(i.name))

	i.write(plain + "# another\n")
	i.remove(second)
	i.never("an image that passed is not tested again, whatever becomes of the test", func() bool { return verifiedText(i.object()) != "True Verified" })
	var jobs batchv1.JobList
	require.NoError(t, i.List(t.Context(), &jobs, client.InNamespace(i.namespace)))
	for _, job := range jobs.Items {
		assert.NotEqual(t, i.name+"-aaaa", job.Annotations[mcfgv1.AnnotationMachineOSImage])
	}
}

// never waits until the reconciler has looked, by the events of another image, and checks that
// something did not happen.
func (i *tested) never(why string, happened func() bool) {
	i.t.Helper()
	other := i.image(i.t, i.name+"-marker")
	other.says("False WaitingForConfigMap")
	assert.False(i.t, happened(), why)
}

// counts are the ends of tests of a pool.
func (c *cluster) counts(pool string) map[string]float64 {
	c.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(c.t, registry.Register(c.counted))
	families, err := registry.Gather()
	require.NoError(c.t, err)
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetCounter() != nil && m.GetLabel()[0].GetValue() == pool {
				out[m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return out
}

func testChangedWhileRunning(t *testing.T, c *cluster) {
	t.Helper()
	i := c.image(t, "changed")
	i.write(plain)
	first := i.job()
	i.write(plain + "# another\n")
	second := i.job(first)
	i.kubelet(second, endedWith(0, ""))
	image := i.says("True Verified")
	assert.Equal(t, testjobs.Hash(plain+"# another\n", time.Hour), image.Status.Verification.TestHash)
	assert.Equal(t, second.Name, image.Status.Verification.Job)
}

func testChangedAfterFailing(t *testing.T, c *cluster) {
	t.Helper()
	i := c.image(t, "mended")
	i.write(plain)
	first := i.job()
	i.kubelet(first, endedWith(1, ""))
	i.says("False VerificationFailed")
	i.write("nonsense")
	image := i.says("False InvalidVerification")
	assert.Equal(t, first.UID, i.job().UID, "a test that ended stays while there is no newer one")
	assert.Equal(t, first.Name, image.Status.Verification.Job)
	i.write(plain + "# another\n")
	second := i.job(first)
	i.kubelet(second, endedWith(0, ""))
	i.says("True Verified")
}

func testDisruptions(t *testing.T, c *cluster) {
	t.Helper()
	i := c.image(t, "disrupted")
	i.write(plain)
	var jobs []*batchv1.Job
	for attempt := range testjobs.MaxAttempts {
		job := i.job(jobs...)
		assert.Equal(t, attempt, testjobs.Attempt(job))
		c.clock.SetTime(time.Now())
		s := runs()
		s.Phase = corev1.PodFailed
		s.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager", Message: "the node is gone"}}
		i.kubelet(job, s)
		jobs = append(jobs, job)
		if attempt+1 < testjobs.MaxAttempts {
			i.says(fmt.Sprintf("False VerificationRunning Job %q has to be repeated: its pod was disrupted", job.Name))
			c.clock.SetTime(c.clock.Now().Add(time.Hour))
			change := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: i.name}}
			require.NoError(t, i.Patch(t.Context(), change, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, attempt)))) // wakes it before its time
		}
	}
	i.says(fmt.Sprintf("False VerificationFailed the test was not run to its end, 3 times; Job %q: its pod was disrupted", jobs[2].Name))
	i.eventually(func(t *assert.CollectT) { // what is written is counted after that
		require.Equal(t, map[string]float64{"interrupted": 2, "failed": 1}, i.counts(i.name))
	})
	i.remove(jobs[2])
	again := i.job(jobs...)
	assert.Zero(t, testjobs.Attempt(again), "a person begins anew")
}

func testTooLong(t *testing.T, c *cluster) {
	t.Helper()
	i := c.image(t, "slow")
	i.write(strings.Replace(plain, "spec:\n", "spec:\n  activeDeadlineSeconds: 3\n", 1))
	job := i.job()
	i.kubelet(job, runs())
	i.eventually(func(t *assert.CollectT) {
		result := i.object().Status.Verification
		require.NotNil(t, result)
		require.NotNil(t, result.StartTime)
	})
	i.finalize(job)
	image := i.says(fmt.Sprintf("False VerificationFailed Job %q: it did not end within 3s", job.Name))
	assert.Nil(t, image.Status.Verification.ExitCode)
	assert.Equal(t, "it did not end within 3s", image.Status.Verification.Message)
}

// finalize ends pods that are being deleted, as a kubelet does.
func (i *tested) finalize(job *batchv1.Job) {
	i.t.Helper()
	i.eventually(func(t *assert.CollectT) {
		var pods corev1.PodList
		require.NoError(t, i.List(i.t.Context(), &pods, client.InNamespace(i.namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}))
		for _, pod := range pods.Items {
			require.False(t, pod.DeletionTimestamp.IsZero())
			require.NoError(t, client.IgnoreNotFound(i.Delete(i.t.Context(), &pod, client.GracePeriodSeconds(0))))
		}
	})
}

func testManifests(t *testing.T, c *cluster) {
	t.Helper()
	i := c.image(t, "nonsense")
	for manifest, want := range map[string]string{
		plain + "---\n" + plain:       "the manifest has 2 documents",
		plain + "          imag: x\n": "unknown field \"spec.template.spec.containers[0].imag\"",
		plain + "      volumes: [{name: key, secret: {secretName: " + names.SigningKey + "}}]\n": "this is the secret with the signing key",
		plain + "      volumes: [{name: key, secret: {secretName: push}}]\n":                     "this is a secret for pushing images",
		plain + "      serviceAccountName: layerwright-controller\n":                             "tests may run as service accounts whose names begin with verification-",
		plain + "      restartPolicy: Always\n":                                                  "the API server does not take it",
	} {
		i.write(manifest)
		i.eventually(func(t *assert.CollectT) {
			text := verifiedText(i.object())
			require.True(t, strings.HasPrefix(text, "False InvalidVerification key \"job.yaml\" of ConfigMap \"nonsense\": "), text)
			require.Contains(t, text, want)
		})
	}
	var jobs batchv1.JobList
	require.NoError(t, i.List(t.Context(), &jobs, client.InNamespace(i.namespace)))
	for _, job := range jobs.Items {
		assert.NotEqual(t, i.name+"-aaaa", job.Annotations[mcfgv1.AnnotationMachineOSImage])
	}
	i.write(plain)
	i.says("False VerificationRunning")
	i.write("nonsense")
	i.says("False InvalidVerification")
	i.eventually(func(t *assert.CollectT) {
		var jobs batchv1.JobList
		require.NoError(t, i.List(i.t.Context(), &jobs, client.InNamespace(i.namespace)))
		for _, job := range jobs.Items {
			assert.NotEqual(t, i.name+"-aaaa", job.Annotations[mcfgv1.AnnotationMachineOSImage], "a test that no one wants does not go on")
		}
	})
}

func testNotRequested(t *testing.T, c *cluster) {
	t.Helper()
	for name, change := range map[string]func(*mcfgv1.MachineOSConfig, *mcfgv1alpha1.MachineOSImage){
		"unasked": func(config *mcfgv1.MachineOSConfig, _ *mcfgv1alpha1.MachineOSImage) { config.Spec.Verification = nil },
		"prebuilt": func(_ *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage) {
			image.Annotations = map[string]string{mcfgv1.AnnotationPreBuiltImage: ""}
		},
		"others": func(_ *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage) {
			image.OwnerReferences = []metav1.OwnerReference{}
		},
	} {
		image := c.image(t, name, change).says("True NotRequested")
		assert.Nil(t, image.Status.Verification)
	}
}

func testPipeline(t *testing.T, c *cluster) {
	t.Helper()
	i := c.image(t, "pipeline", func(config *mcfgv1.MachineOSConfig, _ *mcfgv1alpha1.MachineOSImage) {
		config.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.PipelineBuilder, Pipeline: &mcfgv1.PipelineReference{Name: "p"}}
	})
	i.says("False VerificationUnavailable spec.verification.type of MachineOSConfig \"pipeline\": this installation runs no Pipelines; apply deploy/components/tekton, or use type Job")
	i.told("ImageVerificationFailed", 1)
}

// tekton is Pipelines that the test runs.
type tekton struct {
	t       *testing.T
	missing error

	mu     sync.Mutex
	runs   []batchv1.Job
	pods   []corev1.Pod
	notify func(client.Object)
}

func (k *tekton) Runs(context.Context) ([]batchv1.Job, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.runs), k.missing
}

func (k *tekton) Create(_ context.Context, job *batchv1.Job, pipeline string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	assert.Equal(k.t, "p", pipeline)
	job.UID, job.CreationTimestamp = types.UID(job.Name), metav1.Now()
	k.runs = append(k.runs, *job)
	return nil
}

func (k *tekton) Delete(_ context.Context, job *batchv1.Job, _ ...client.DeleteOption) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs = slices.DeleteFunc(k.runs, func(run batchv1.Job) bool { return run.Name == job.Name })
	return nil
}

func (k *tekton) Pods(context.Context, client.Reader, *batchv1.Job) ([]corev1.Pod, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods, nil
}

func (k *tekton) Notify(changed func(client.Object)) { k.notify = changed }

// says has Tekton come or go, or end the newest run.
func (k *tekton) says(missing error, kind batchv1.JobConditionType, pods ...corev1.Pod) {
	k.mu.Lock()
	k.missing, k.pods = missing, pods
	if kind != "" {
		run := &k.runs[len(k.runs)-1]
		run.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Message: "Tasks Completed: 1 (Failed: 1)", LastTransitionTime: metav1.Now()}}
	}
	k.mu.Unlock()
	k.notify(nil)
}

func testTekton(t *testing.T, c *cluster) {
	t.Helper()
	k := &tekton{t: t, missing: fault.NewWaiting(mcfgv1.ReasonKindNotInstalled, 0, errors.New("Tekton is not installed"))}
	c.start(func(o *Options) { o.Pipelines = k })
	i := c.image(t, "tekton", func(config *mcfgv1.MachineOSConfig, _ *mcfgv1alpha1.MachineOSImage) {
		config.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.PipelineBuilder, Pipeline: &mcfgv1.PipelineReference{Name: "p"}}
	})
	i.says("False VerificationPending Tekton is not installed")
	k.says(nil, "")
	i.says("False VerificationRunning PipelineRun \"verify-tekton-aaaa-")
	variables := k.runs[0].Spec.Template.Spec.Containers[0].Env
	assert.Contains(t, variables, corev1.EnvVar{Name: variableImage, Value: pinned})
	k.says(nil, batchv1.JobFailed, corev1.Pod{Status: endedWith(3, "")})
	image := i.says("False VerificationFailed PipelineRun \"verify-tekton-aaaa-")
	assert.Equal(t, new(int32(3)), image.Status.Verification.ExitCode)

	require.NoError(t, k.Delete(t.Context(), &k.runs[0]), "a person has it run again")
	k.says(nil, "")
	i.says("False VerificationRunning")
	k.says(nil, batchv1.JobFailed)
	i.says("False VerificationFailed PipelineRun \"" + image.Status.Verification.Job + "\": Tasks Completed: 1 (Failed: 1)")

	require.NoError(t, k.Delete(t.Context(), &k.runs[0]))
	k.says(nil, "")
	i.says("False VerificationRunning")
	k.says(nil, batchv1.JobComplete)
	i.says("True Verified")
}

func testWithdrawn(t *testing.T, c *cluster) {
	t.Helper()
	i := c.image(t, "withdrawn")
	i.write(plain)
	i.says("False VerificationRunning")
	i.change(func(config *mcfgv1.MachineOSConfig) { config.Spec.Verification = nil })
	assert.Nil(t, i.says("True NotRequested").Status.Verification)
	i.eventually(func(t *assert.CollectT) {
		var jobs batchv1.JobList
		require.NoError(t, i.List(i.t.Context(), &jobs, client.InNamespace(i.namespace)))
		for _, job := range jobs.Items {
			assert.NotEqual(t, i.name+"-aaaa", job.Annotations[mcfgv1.AnnotationMachineOSImage])
		}
	})
}

func (i *tested) change(edit func(*mcfgv1.MachineOSConfig)) {
	i.t.Helper()
	config := &mcfgv1.MachineOSConfig{}
	require.NoError(i.t, i.Get(i.t.Context(), client.ObjectKey{Name: i.name}, config))
	edit(config)
	require.NoError(i.t, i.Update(i.t.Context(), config))
}

func testRestart(t *testing.T, c *cluster) {
	t.Helper()
	i := c.image(t, "restarted")
	i.write(plain)
	job := i.job()
	c.stop()
	i.kubelet(job, endedWith(0, ""))
	c.start()
	i.says("True Verified")
	assert.Equal(t, job.UID, i.job().UID)
	i.told("ImageVerified", 1) // else it might be lost with the process
	c.start()
	i.never("nothing is said twice", func() bool { return i.counts(i.name)["passed"] != 1 })
	i.told("ImageVerified", 1)
}

func testSigned(t *testing.T, c *cluster) {
	t.Helper()
	c.start(func(o *Options) { o.Signed, o.SigningSecret = true, "verification-signing" })
	i := c.image(t, "signed")
	i.write(plain + "      volumes: [{name: key, secret: {secretName: verification-signing}}]\n")
	i.says("False VerificationPending the verification begins when the image is signed")
	image := i.object()
	image.Status.Conditions = append(image.Status.Conditions, metav1.Condition{
		Type: mcfgv1alpha1.ImageSigned, Status: metav1.ConditionTrue, Reason: mcfgv1alpha1.ReasonSigned, LastTransitionTime: metav1.Now(),
	})
	require.NoError(t, i.Status().Update(t.Context(), image))
	i.eventually(func(t *assert.CollectT) {
		assert.Contains(t, verifiedText(i.object()), "this is the secret with the signing key", "whatever its name")
	})
	i.write(plain)
	i.kubelet(i.job(), endedWith(0, ""))
	image = i.says("True Verified")
	assert.True(t, status.IsTrue(image.Status.Conditions, mcfgv1alpha1.ImageSigned), "conditions of others stay")
}
