package verification

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/testjobs"
)

const imageKind = "MachineOSImage"

// Waits.
const (
	// whileStarting is when to ask again why a Job has no pod: the API server's refusal is in an
	// event, and events are not watched.
	whileStarting = 5 * time.Second
	// recheck is when to look again for what may have been made without anybody telling.
	recheck = time.Minute
	// inTheWay is when to look again for an object of the same name that is being deleted.
	inTheWay = time.Second
)

// Options are what a Verifier works with.
type Options struct {
	// Namespace is Layerwright's: it has the ConfigMaps with tests, and tests run in it.
	Namespace string
	// Signed reports whether images are signed: then they are tested once they are.
	Signed bool
	// SigningSecret is the secret with the signing key, which no test may use; empty where there is
	// none.
	SigningSecret string
	// UsersAssigned reports whether the cluster gives pods a user, as OpenShift does.
	UsersAssigned bool
	// Pipelines runs tests that are Pipelines; nil where the installation has none.
	Pipelines Pipelines
	// Metrics may be nil.
	Metrics *metrics.Verifications
}

// Verifier has the reconciler of tests of MachineOSImages.
type Verifier struct {
	options Options
	// client reads from the cache, reader asks the API server.
	client client.Client
	reader client.Reader
	clock  clock.PassiveClock
	events events.Publisher
}

// New makes a Verifier; SetupWithManager gives it what it works with.
func New(options Options) *Verifier { return &Verifier{options: options, clock: clock.RealClock{}} }

// scope is what one reconcile of an image knows.
type scope struct {
	image *mcfgv1alpha1.MachineOSImage
	// config is the one that the image was made for; nil for images of others.
	config *mcfgv1.MachineOSConfig
	// jobs are those of the image that are not being deleted, with runs of Pipelines among them.
	jobs []*batchv1.Job
	// missing is why no Pipelines can run now; nil where they can.
	missing error
	// test is what is to be run.
	test     string
	hash     string
	timeout  time.Duration
	manifest *batchv1.Job
}

// outcome is what a reconcile found out: the condition Verified, what status.verification is to be,
// and when to look again.
type outcome struct {
	status          metav1.ConditionStatus
	reason, message string
	result          *mcfgv1alpha1.ImageVerificationResult
	after           time.Duration
}

// Reconcile reconciles one image.
func (v *Verifier) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	image := &mcfgv1alpha1.MachineOSImage{}
	if err := v.client.Get(ctx, req.NamespacedName, image); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !image.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // its Jobs go with it, by their owner reference
	}
	s := &scope{image: image}
	isKnown, err := v.gatherConfig(ctx, s)
	if err != nil || !isKnown {
		return ctrl.Result{}, err
	}
	o, err := v.verify(ctx, s)
	if fault.IsTransient(err) {
		return status.Result(ctrl.Result{}, err)
	}
	if err != nil {
		o = outcome{status: metav1.ConditionFalse, reason: fault.Reason(err), message: fault.Message(err), result: image.Status.Verification, after: fault.After(err)}
	}
	return v.write(ctx, s, &o)
}

// verify does what is to be done for the image now. Waiting and terminal errors are states of the
// image like any other.
func (v *Verifier) verify(ctx context.Context, s *scope) (outcome, error) {
	if err := v.gatherJobs(ctx, s); err != nil {
		return outcome{}, err
	}
	switch {
	case hasPassed(s.image):
		c := status.Find(s.image.Status.Conditions, mcfgv1alpha1.ImageVerified)
		return outcome{status: c.Status, reason: c.Reason, message: c.Message, result: s.image.Status.Verification}, v.removeUnfinished(ctx, s)
	case s.config == nil || s.config.Spec.Verification == nil:
		return outcome{status: metav1.ConditionTrue, reason: mcfgv1alpha1.ReasonNotRequested}, v.removeOthers(ctx, s, "")
	case s.pipeline() != "" && v.options.Pipelines == nil:
		return outcome{}, cmp.Or(v.removeUnfinished(ctx, s), fault.NewTerminal(mcfgv1alpha1.ReasonVerificationUnavailable, fmt.Errorf(
			"spec.verification.type of MachineOSConfig %q: this installation runs no Pipelines; apply deploy/components/tekton, or use type Job", s.config.Name)))
	case v.options.Signed && !status.IsTrue(s.image.Status.Conditions, mcfgv1alpha1.ImageSigned):
		return outcome{}, fault.NewWaiting(mcfgv1alpha1.ReasonVerificationPending, 0, errors.New("the verification begins when the image is signed"))
	}
	if err := v.readTest(ctx, s); err != nil {
		return outcome{}, err
	}
	job := testjobs.Newest(s.jobs, s.hash)
	if job == nil {
		return v.begin(ctx, s, 0)
	}
	if err := v.removeOthers(ctx, s, job.Name); err != nil {
		return outcome{}, err
	}
	return v.follow(ctx, s, job)
}

// gatherConfig reads the image's MachineOSConfig. Where that is gone nothing is known of the image,
// which is about to follow it. Images without one were made elsewhere, and no one here asks for a
// test of them.
func (v *Verifier) gatherConfig(ctx context.Context, s *scope) (isKnown bool, err error) {
	if owner.Of(s.image) == nil || owner.IsPreBuilt(s.image) {
		return true, nil
	}
	s.config, err = owner.Config(ctx, v.client, s.image)
	return s.config != nil, err
}

// hasPassed reports whether the image has passed a test, whichever it was then.
func hasPassed(image *mcfgv1alpha1.MachineOSImage) bool {
	c := status.Find(image.Status.Conditions, mcfgv1alpha1.ImageVerified)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == mcfgv1alpha1.ReasonVerified
}

// readTest reads the manifest of the test.
func (v *Verifier) readTest(ctx context.Context, s *scope) error {
	spec := s.config.Spec.Verification
	var err error
	s.timeout = DefaultTimeout
	if spec.Timeout != "" {
		if s.timeout, err = time.ParseDuration(spec.Timeout); err != nil {
			return fault.NewTerminal(mcfgv1alpha1.ReasonInvalidVerification, fmt.Errorf("spec.verification.timeout: %w", err))
		}
	}
	if name := s.pipeline(); name != "" {
		s.hash = testjobs.Hash(testjobs.KindPipelineRun+" of "+name, s.timeout)
		return s.missing
	}
	key := cmp.Or(spec.Job.Key, testjobs.DefaultKey)
	configMap := &corev1.ConfigMap{}
	err = v.reader.Get(ctx, client.ObjectKey{Namespace: v.options.Namespace, Name: spec.Job.Name}, configMap)
	if apierrors.IsNotFound(err) {
		return fault.NewWaiting(mcfgv1.ReasonWaitingForConfigMap, recheck, fmt.Errorf(
			"spec.verification.job: ConfigMap %q does not exist in namespace %q; create it, or correct the name", spec.Job.Name, v.options.Namespace))
	}
	if err != nil {
		return fmt.Errorf("reading ConfigMap %q: %w", spec.Job.Name, err)
	}
	manifest, has := configMap.Data[key]
	if !has {
		return fault.NewWaiting(mcfgv1.ReasonWaitingForConfigMap, recheck, fmt.Errorf(
			"spec.verification.job: ConfigMap %q has no key %q; add it, or correct spec.verification.job.key", spec.Job.Name, key))
	}
	s.test, s.hash = manifest, testjobs.Hash(manifest, s.timeout)
	return nil
}

// begin makes the Job of an attempt.
func (v *Verifier) begin(ctx context.Context, s *scope, attempt int) (outcome, error) {
	rule, err := v.rule(ctx, s)
	if err != nil {
		return outcome{}, err
	}
	if s.pipeline() != "" {
		s.manifest = forPipeline()
	} else if s.manifest, err = testjobs.Parse(s.test); err == nil {
		err = rule.Check(s.manifest)
	}
	if err != nil {
		return outcome{}, cmp.Or(v.removeUnfinished(ctx, s), v.invalid(s, err))
	}
	stream, err := v.stream(ctx, s)
	if err != nil {
		return outcome{}, err
	}
	job := Make(s.manifest, &Subject{
		Image: s.image, Config: s.config.Name, Stream: stream, Namespace: v.options.Namespace, PullSecret: rule.PullSecret,
		Timeout: s.timeout, TestHash: s.hash, Attempt: attempt, UsersAssigned: v.options.UsersAssigned,
	})
	job.Kind = s.kind()
	made, err := v.create(ctx, s, job)
	if err != nil {
		return outcome{}, err
	}
	if made && attempt > 0 {
		v.options.Metrics.Interrupted(s.image.Spec.MachineConfigPool)
	}
	if err := v.removeOthers(ctx, s, job.Name); err != nil {
		return outcome{}, err
	}
	return v.running(s, job, &testjobs.Observation{}), nil
}

// stream is that of the image's base; empty where it is of none.
func (v *Verifier) stream(ctx context.Context, s *scope) (string, error) {
	builds, err := owner.Builds(ctx, v.client, s.config.Name)
	for _, build := range builds {
		if build.Status.DigestedImagePushSpec == s.image.Spec.PullSpec {
			return build.Asked().OSImageStream, err
		}
	}
	return "", err
}

func (v *Verifier) invalid(s *scope, err error) error {
	spec := s.config.Spec.Verification.Job
	if name := s.pipeline(); name != "" {
		return fault.NewTerminal(mcfgv1alpha1.ReasonInvalidVerification, fmt.Errorf("spec.verification.pipeline: Pipeline %q: %w", name, err))
	}
	return fault.NewTerminal(mcfgv1alpha1.ReasonInvalidVerification, fmt.Errorf("key %q of ConfigMap %q: %w", cmp.Or(spec.Key, testjobs.DefaultKey), spec.Name, err))
}

// rule is what the test may not do.
func (v *Verifier) rule(ctx context.Context, s *scope) (testjobs.Rule, error) {
	rule := testjobs.Rule{Namespace: v.options.Namespace, PullSecret: s.config.Spec.RenderedImagePushSecret.Name, Variables: variables}
	if secret := s.config.Spec.CurrentImagePullSecret; secret != nil {
		rule.PullSecret = secret.Name
	}
	var configs mcfgv1.MachineOSConfigList
	if err := v.client.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return rule, fmt.Errorf("listing MachineOSConfigs: %w", err)
	}
	rule.Reserved = testjobs.Reserved(configs.Items, v.options.SigningSecret)
	return rule, nil
}

// follow says what became of a Job, and makes the next one where something else than the test ended
// it.
func (v *Verifier) follow(ctx context.Context, s *scope, job *batchv1.Job) (outcome, error) {
	if c := s.recordedFailure(job); c != nil {
		return outcome{status: c.Status, reason: c.Reason, message: c.Message, result: s.image.Status.Verification}, nil
	}
	o, err := v.observe(ctx, s, job)
	if err != nil {
		return outcome{}, err
	}
	switch {
	case o.Phase == testjobs.Running:
		return v.running(s, job, &o), nil
	case o.Phase == testjobs.Passed:
		return outcome{status: metav1.ConditionTrue, reason: mcfgv1alpha1.ReasonVerified, result: resultOf(s, job, &o)}, nil
	case !o.IsInterrupted():
		return outcome{
			status: metav1.ConditionFalse, reason: mcfgv1alpha1.ReasonVerificationFailed, result: resultOf(s, job, &o),
			message: fmt.Sprintf("%s %q: %s", s.kind(), job.Name, o.Text),
		}, nil
	}
	count := testjobs.Interrupted(job)
	if count.IsSpent() {
		return outcome{
			status: metav1.ConditionFalse, reason: mcfgv1alpha1.ReasonVerificationFailed, result: resultOf(s, job, &o),
			message: fmt.Sprintf("the test was not run to its end, %d times; %s %q: %s", testjobs.MaxAttempts, s.kind(), job.Name, o.Text),
		}, nil
	}
	if wait := testjobs.RetryAt(count, o.Ended.Time).Sub(v.clock.Now()); wait > 0 {
		return outcome{
			status: metav1.ConditionFalse, reason: mcfgv1alpha1.ReasonVerificationRunning, result: resultOf(s, job, &o), after: wait,
			message: fmt.Sprintf("%s %q has to be repeated: %s", s.kind(), job.Name, o.Text),
		}, nil
	}
	return v.begin(ctx, s, count.Failed)
}

// recordedFailure returns the condition if it already says that the image failed by this Job, whose
// pods may be gone.
func (s *scope) recordedFailure(job *batchv1.Job) *metav1.Condition {
	c, result := status.Find(s.image.Status.Conditions, mcfgv1alpha1.ImageVerified), s.image.Status.Verification
	if c == nil || c.Reason != mcfgv1alpha1.ReasonVerificationFailed || !testjobs.IsFinished(job) {
		return nil
	}
	if result == nil || result.Job != job.Name || result.CompletionTime == nil || result.CompletionTime.Before(&job.CreationTimestamp) {
		return nil
	}
	return c
}

// observe reads the pods of a Job, and why it has none. Of a Job that has ended the API server is
// asked: a cache may not have heard how its pods ended.
func (v *Verifier) observe(ctx context.Context, s *scope, job *batchv1.Job) (testjobs.Observation, error) {
	reader := client.Reader(v.client)
	if testjobs.IsFinished(job) {
		reader = v.reader
	}
	pods, err := v.podsOf(ctx, reader, job)
	if err != nil {
		return testjobs.Observation{}, fmt.Errorf("listing the pods of %s %q: %w", s.kind(), job.Name, err)
	}
	var begun *metav1.Time
	if was := s.image.Status.Verification; was != nil && was.Job == job.Name && was.StartTime != nil && !was.StartTime.Before(&job.CreationTimestamp) {
		begun = was.StartTime
	}
	o := testjobs.Observe(job, pods, begun)
	if o.Phase == testjobs.Running && len(pods) == 0 && s.pipeline() == "" && v.clock.Since(job.CreationTimestamp.Time) > inTheWay {
		o.Text, err = testjobs.Refusal(ctx, v.reader, job)
	}
	return o, err
}

// podsOf are the pods of a Job.
func (v *Verifier) podsOf(ctx context.Context, reader client.Reader, job *batchv1.Job) ([]corev1.Pod, error) {
	if job.Kind == testjobs.KindPipelineRun {
		return v.options.Pipelines.Pods(ctx, reader, job)
	}
	return testjobs.Pods(ctx, reader, job)
}

func (v *Verifier) running(s *scope, job *batchv1.Job, o *testjobs.Observation) outcome {
	out := outcome{
		status: metav1.ConditionFalse, reason: mcfgv1alpha1.ReasonVerificationRunning, result: resultOf(s, job, o),
		message: fmt.Sprintf("%s %q in namespace %q tests the image", s.kind(), job.Name, job.Namespace),
	}
	if o.Text != "" {
		out.message += ": " + o.Text
	}
	if o.Started == nil && s.pipeline() == "" {
		out.after = whileStarting
	}
	return out
}

// resultOf is status.verification for what became of a Job.
func resultOf(s *scope, job *batchv1.Job, o *testjobs.Observation) *mcfgv1alpha1.ImageVerificationResult {
	result := &mcfgv1alpha1.ImageVerificationResult{
		Job: job.Name, TestHash: s.hash, Container: o.Container, ExitCode: o.ExitCode, Message: o.Message, StartTime: o.Started, CompletionTime: o.Ended,
	}
	if result.Message == "" && o.Phase == testjobs.Failed {
		result.Message = testjobs.Clean(o.Text)
	}
	return result
}
