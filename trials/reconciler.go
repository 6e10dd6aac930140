package trials

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/retention"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/selected"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/trials/experiment"
	"github.com/layerwright/layerwright/trials/trial"
)

// Reconciler finds out what the move of a pool to another stream would change, for
// MachineOSConfigs with the annotation try-stream. It makes no MachineOSBuild and no
// MachineOSImage, and gives no tag that anything else reads: so nothing that it does can reach a
// node.
type Reconciler struct{ options Options }

// Options are what a Reconciler works with.
type Options struct {
	// Client reads from the cache, Reader asks the API server.
	Client client.Client
	Reader client.Reader
	Clock  clock.PassiveClock
	Events events.Publisher
	// Namespace has the secrets and ConfigMaps that MachineOSConfigs name, and gets the reports.
	Namespace string
	// Finder knows what an image depends on, and Remover removes it.
	Finder  *wanted.Finder
	Remover *retention.Remover
	// Experiment is what makes images on another stream.
	Experiment experiment.Options
	// InWork may be nil.
	InWork *inwork.Log
}

// New makes a reconciler.
func New(options Options) *Reconciler {
	return &Reconciler{options: options}
}

// scope is what one reconcile knows.
type scope struct {
	config *mcfgv1.MachineOSConfig
	stream string
	// pool has the configuration current.
	pool    *mcfgv1.MachineConfigPool
	objects trial.Objects
	current *mcfgv1.MachineConfig
	then    *trial.Rendered
	inputs  string
	// demand says which architectures the image is to be for.
	demand plan.Demand
}

// Times of trials.
const (
	// attempt is how long one reconcile of a trial may take: reading an OS image for the first
	// time, and its packages.
	attempt = 15 * time.Minute
	// retry is when a trial that failed is tried again.
	retry = 5 * time.Minute
	// changedInterval is when a trial is looked at again whose annotation has changed meanwhile.
	changedInterval = 200 * time.Millisecond
	// buildInterval is when to look at a build of content again.
	buildInterval = 5 * time.Second
	// maxConcurrent is how many pools are looked at at once. Each may read an image of some
	// GB.
	maxConcurrent = 2
)

// Reconcile reconciles the trial of one MachineOSConfig.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	config := &mcfgv1.MachineOSConfig{}
	if err := r.options.Client.Get(ctx, req.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !config.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the report goes with it, by its owner reference
	}
	s := &scope{config: config, stream: config.Annotations[mcfgv1.AnnotationTryStream]}
	before := config.Status.StreamTrial
	if s.stream == "" || before != nil && before.Stream != s.stream {
		if before == nil {
			return ctrl.Result{}, nil
		}
		if err := r.withdraw(ctx, s, before); err != nil {
			return status.Result(ctrl.Result{}, err)
		}
	}
	if s.stream == "" {
		return ctrl.Result{}, r.writeTrial(ctx, s, nil)
	}
	return r.try(ctx, s)
}

// try makes a trial, unless the one that status speaks of is still right.
func (r *Reconciler) try(ctx context.Context, s *scope) (ctrl.Result, error) {
	before := s.config.Status.StreamTrial
	err := r.gatherTrial(ctx, s)
	if err == nil && before != nil && before.State == mcfgv1.StreamTrialReported && before.Inputs == s.inputs {
		return ctrl.Result{RequeueAfter: wanted.Again(s.config.Name)}, nil
	}
	var result *mcfgv1.StreamTrial
	if err == nil {
		result, err = r.runTrialNoted(ctx, s)
	}
	if err != nil {
		return r.trialFailed(ctx, s, err)
	}
	if result == nil { // content is being built, and says so itself
		return ctrl.Result{RequeueAfter: buildInterval}, nil
	}
	if err := r.writeTrial(ctx, s, result); err != nil {
		return ctrl.Result{}, err
	}
	ctrl.LoggerFrom(ctx).Info("Tried a stream", "stream", s.stream, "blockers", result.BlockerCount, "image", result.ImagePullSpec)
	r.options.Events.Publish(s.config, events.StreamTried(s.stream, result.Message, result.BlockerCount > 0))
	return ctrl.Result{RequeueAfter: wanted.Again(s.config.Name)}, nil
}

// runTrialNoted looks at both sides, and notes meanwhile that they are in work.
func (r *Reconciler) runTrialNoted(ctx context.Context, s *scope) (*mcfgv1.StreamTrial, error) {
	running, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	end, err := r.options.InWork.Begin(running, inwork.Work{
		Object: fmt.Sprintf("the trial of stream %q for MachineOSConfig %q", s.stream, s.config.Name), Version: s.inputs,
	})
	if err != nil {
		return nil, err
	}
	defer end()
	return r.runTrial(running, s)
}

// runTrial makes the image and reports; nil while content is being built.
func (r *Reconciler) runTrial(ctx context.Context, s *scope) (*mcfgv1.StreamTrial, error) {
	before := s.config.Status.StreamTrial
	if before == nil {
		running := &mcfgv1.StreamTrial{Stream: s.stream, State: mcfgv1.StreamTrialRunning, Message: "the images of both streams are read"}
		if err := r.writeTrial(ctx, s, running); err != nil {
			return nil, err
		}
	}
	result, err := experiment.Run(ctx, &r.options.Experiment, experiment.Request{
		Config: s.config, Stream: s.stream, Pool: s.pool, Current: s.current, Then: s.then, Demand: s.demand,
		IsUnderWay: before != nil && before.Inputs == s.inputs,
		StillAsked: func(ctx context.Context) error { return r.stillAsked(ctx, s) },
	})
	switch {
	case err != nil:
		return nil, err
	case result.Report != nil:
		return r.publishReport(ctx, s, result.Report)
	case result.Says != "":
		return nil, r.writeRunning(ctx, s, result.Says)
	}
	return nil, nil
}

// trialFailed says why there is no report. What passes is tried again sooner; a report from before
// stays.
func (r *Reconciler) trialFailed(ctx context.Context, s *scope, err error) (ctrl.Result, error) {
	failed := &mcfgv1.StreamTrial{Stream: s.stream, State: mcfgv1.StreamTrialRunning, Message: fault.Message(err)}
	if before := s.config.Status.StreamTrial; before != nil && before.Stream == s.stream {
		failed = before.DeepCopy()
		if failed.State != mcfgv1.StreamTrialRunning {
			failed.Inputs = ""
		}
		failed.State, failed.Message = mcfgv1.StreamTrialRunning, fault.Message(err)
	}
	isTerminal := fault.IsTerminal(err)
	if isTerminal {
		failed.State = mcfgv1.StreamTrialFailed
	}
	before := s.config.Status.StreamTrial
	if writeErr := r.writeTrial(ctx, s, failed); writeErr != nil {
		return ctrl.Result{}, errors.Join(err, writeErr)
	}
	if isTerminal {
		if before == nil || before.State != failed.State || before.Message != failed.Message {
			r.options.Events.Publish(s.config, events.StreamTrialFailed(s.stream, failed.Message))
		}
		return ctrl.Result{RequeueAfter: retry}, nil
	}
	return status.Result(ctrl.Result{}, err)
}

// gatherTrial reads the objects that decide, and renders the configuration for the other stream.
func (r *Reconciler) gatherTrial(ctx context.Context, s *scope) error {
	s.pool = &mcfgv1.MachineConfigPool{}
	name := s.config.Spec.MachineConfigPool.Name
	if err := r.options.Client.Get(ctx, client.ObjectKey{Name: name}, s.pool); err != nil {
		return waitForPool(name, err)
	}
	if s.pool.Spec.Configuration.Name == "" {
		return waitForPool(name, errors.New("it has no rendered MachineConfig yet"))
	}
	var err error
	if s.current, err = objects.ReadRendered(ctx, r.options.Reader, s.pool.Spec.Configuration.Name); err != nil {
		return err
	}
	if s.objects, err = r.trialObjects(ctx, s.pool); err != nil {
		return err
	}
	s.then, err = trial.Render(s.objects, s.stream)
	var unknown *streams.Error
	if errors.As(err, &unknown) {
		return fault.NewTerminal(unknown.Reason, err)
	}
	if err != nil {
		return fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	if s.then.Stream.OSImage == "" {
		return fault.NewTerminal(mcfgv1.ReasonStreamNotFound, fmt.Errorf("stream %q has no OS image", s.stream))
	}
	s.inputs, err = r.trialInputs(ctx, s)
	return err
}

func waitForPool(name string, err error) error {
	if err != nil && !apierrors.IsNotFound(err) && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return fmt.Errorf("reading MachineConfigPool %q: %w", name, err)
	}
	const soon = 15 * time.Second
	return fault.NewWaiting(mcfgv1.ReasonWaitingForPool, soon, fmt.Errorf("MachineConfigPool %q: %w", name, err))
}

// trialObjects are those that rendering depends on.
func (r *Reconciler) trialObjects(ctx context.Context, pool *mcfgv1.MachineConfigPool) (trial.Objects, error) {
	objects := trial.Objects{Pool: pool, Version: version.Current().Version}
	worker := &mcfgv1.MachineConfigPool{}
	if err := r.options.Client.Get(ctx, client.ObjectKey{Name: mcfgv1.PoolWorker}, worker); err == nil {
		objects.Worker = worker
	} else if !apierrors.IsNotFound(err) {
		return objects, fmt.Errorf("reading MachineConfigPool %q: %w", mcfgv1.PoolWorker, err)
	}
	set := &mcfgv1.OSImageStream{}
	if err := r.options.Client.Get(ctx, client.ObjectKey{Name: mcfgv1.OSImageStreamName}, set); err == nil {
		objects.Streams = set
	} else if !apierrors.IsNotFound(err) {
		return objects, fmt.Errorf("reading OSImageStream %q: %w", mcfgv1.OSImageStreamName, err)
	}
	var err error
	objects.Configs, err = selected.Configs(ctx, r.options.Reader, pool, machineconfigs.IsRendered)
	return objects, err
}

// trialInputs identify all that a report speaks of: the name of a rendered MachineConfig has a hash
// of its content.
func (r *Reconciler) trialInputs(ctx context.Context, s *scope) (string, error) {
	var err error
	if s.demand, err = r.options.Finder.Demand(ctx, s.config, nil); err != nil {
		return "", err
	}
	files, err := r.options.Finder.Key(ctx, &wanted.Subject{Config: s.config, Rendered: s.current, Demand: s.demand})
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, part := range []string{
		files, s.stream, string(s.then.Stream.OSImage), string(s.then.Stream.OSExtensionsImage), string(s.then.Stream.Lifecycle),
		s.then.MachineConfig.Name, s.pool.Status.OSImageStream.Name,
	} {
		_, _ = fmt.Fprintf(sum, "%q\n", part)
	}
	const enough = 32
	return hex.EncodeToString(sum.Sum(nil))[:enough], nil
}

// stillAsked is an error where the annotation has changed meanwhile: the tag is for the newest
// trial.
func (r *Reconciler) stillAsked(ctx context.Context, s *scope) error {
	now := &mcfgv1.MachineOSConfig{}
	if err := r.options.Client.Get(ctx, client.ObjectKeyFromObject(s.config), now); err != nil {
		return err
	}
	if now.UID != s.config.UID || now.Annotations[mcfgv1.AnnotationTryStream] != s.stream {
		return fault.NewWaiting(mcfgv1.ReasonPreparing, changedInterval, fmt.Errorf("the annotation %s has changed", mcfgv1.AnnotationTryStream))
	}
	return nil
}

// writeRunning writes what happens, and for which inputs.
func (r *Reconciler) writeRunning(ctx context.Context, s *scope, message string) error {
	running := &mcfgv1.StreamTrial{Stream: s.stream}
	if before := s.config.Status.StreamTrial; before != nil {
		running = before.DeepCopy()
	}
	running.State, running.Message, running.Inputs = mcfgv1.StreamTrialRunning, message, s.inputs
	return r.writeTrial(ctx, s, running)
}

// writeTrial writes the trial into the status, and nothing else of it: all other fields are another
// reconciler's.
func (r *Reconciler) writeTrial(ctx context.Context, s *scope, result *mcfgv1.StreamTrial) error {
	before := s.config.DeepCopy()
	s.config.Status.StreamTrial = result
	if result != nil {
		result.Message = fault.Clean(result.Message)
	}
	changed := s.config.DeepCopy()
	if err := client.IgnoreNotFound(r.options.Client.Status().Patch(ctx, changed, client.MergeFrom(before))); err != nil {
		return fmt.Errorf("writing status.streamTrial of MachineOSConfig %q: %w", s.config.Name, err)
	}
	return nil
}

// withdraw removes the report, the build and the images of a trial that no one asks for any more.
func (r *Reconciler) withdraw(ctx context.Context, s *scope, result *mcfgv1.StreamTrial) error {
	report := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: names.StreamTrial(s.config.Name)}}
	if err := client.IgnoreNotFound(r.options.Client.Delete(ctx, report)); err != nil {
		return fmt.Errorf("deleting the report %q: %w", report.Name, err)
	}
	if builds, err := r.options.Experiment.Backends.For(s.config); err == nil {
		if err := builds.Remove(ctx, experiment.Key(s.config)); err != nil {
			return err
		}
	}
	if result.ImagePullSpec == "" {
		return nil
	}
	image := string(result.ImagePullSpec)
	credentials, err := r.options.Experiment.Checker.Credentials(ctx, s.config)
	if credentials.Push == nil {
		r.options.Events.Publish(s.config, events.ImageNotDeleted(image, fault.Message(err)))
		return nil
	}
	return r.options.Remover.RemoveTrial(ctx, s.config, credentials.Push, image)
}
