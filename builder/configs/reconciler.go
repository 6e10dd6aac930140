package configs

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/runs"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
)

// Reconciler finds out which image each MachineOSConfig wants, and sees to it that one build
// makes it.
type Reconciler struct{ options Options }

// New makes a reconciler.
func New(options Options) *Reconciler {
	return &Reconciler{options: options}
}

// Options are what a Reconciler works with.
type Options struct {
	// Client reads from the cache, Reader asks the API server.
	Client client.Client
	Reader client.Reader
	Clock  clock.PassiveClock
	Events events.Publisher
	// Namespace has the ConfigMaps that MachineOSConfigs name.
	Namespace string
	// Finder finds out which images are wanted.
	Finder *wanted.Finder
	// Builds ends those that no one wants any more, and HasBackend reports whether anything builds
	// content for a MachineOSConfig.
	Builds     superseder
	HasBackend func(*mcfgv1.MachineOSConfig) bool
	// Limit is how many images are made at once, and Running are the builds that do it now.
	Limit   int
	Running func() []string
	// IsGated means that something may keep images from nodes, whatever a MachineOSConfig says.
	IsGated func() bool
	// Enforces means that nodes are made to insist on signatures.
	Enforces bool
	// SlowAfter is how long a reconcile may take before its status says what it waits for; zero is
	// 2 seconds.
	SlowAfter time.Duration
	// Metrics may be nil.
	Metrics *metrics.Builds
	// Waits reports whether to look at no MachineOSConfig for a moment; nil waits for nothing.
	Waits func() bool
}

// superseder ends builds.
type superseder interface {
	// Supersede ends a build, since the image that is wanted is that of another one.
	Supersede(ctx context.Context, build *mcfgv1.MachineOSBuild, by string) error
}

// scope is what one reconcile of a MachineOSConfig knows. What comes from the cache is shared,
// and only read.
type scope struct {
	config *mcfgv1.MachineOSConfig
	// pool is nil if there is none.
	pool *mcfgv1.MachineConfigPool
	// rendered is nil if the pool names none, or one that is not there yet.
	rendered *mcfgv1.MachineConfig
	builds   []*mcfgv1.MachineOSBuild
	all      []mcfgv1.MachineOSBuild
	// demand says which architectures the image is to be for.
	demand plan.Demand

	// images are all MachineOSImages. A build that was made again has several: what something still
	// uses stays.
	images []mcfgv1alpha1.MachineOSImage

	// found is nil if no one can tell which image is wanted: then problem says why.
	found   *wanted.Image
	problem error
	// answer is all of what the finder said in this reconcile.
	answer wanted.Answer
	// late means that what was found is from before, because it can't be found out again right now.
	late error
	// untagged means that the pool's tag could not be moved to the image.
	untagged error
	decision *plan.Decision
	// build is the one that the decision is about, as far as it is there.
	build *mcfgv1.MachineOSBuild
}

// Times after which a MachineOSConfig is looked at again though nothing tells of a change.
const (
	// defaultSlowAfter is how long a reconcile may take before it says what it waits for.
	defaultSlowAfter = 2 * time.Second
	// waitAgain is for pools that get their configurations first.
	waitAgain = time.Second
	// secretCheck is for a secret that was put right.
	secretCheck = 15 * time.Second
)

// Reconcile reconciles one MachineOSConfig.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	config := &mcfgv1.MachineOSConfig{}
	if err := r.options.Client.Get(ctx, req.NamespacedName, config); err != nil {
		if apierrors.IsNotFound(err) {
			return r.forget(ctx, req.Name)
		}
		return ctrl.Result{}, err
	}
	s := &scope{config: config}
	if !config.DeletionTimestamp.IsZero() { // its builds go with it, by their owner reference, and each removes its image
		return status.Result(ctrl.Result{}, status.Run(ctx, s, r.gatherConfig, r.decide, r.interrupt))
	}
	if r.options.Waits != nil && r.options.Waits() {
		return ctrl.Result{RequeueAfter: waitAgain}, nil
	}
	if err := r.announce(ctx, config); err != nil {
		return ctrl.Result{}, err
	}
	before := config.DeepCopy()
	patch := status.NewPatcher(r.options.Client, config)
	defer func() {
		r.setConfigStatus(s, err)
		version := config.ResourceVersion
		res, err = patch.Finish(ctx, config, r.next(s), err)
		if config.ResourceVersion != version {
			r.reportConfig(before, config)
		}
		if err == nil && s.untagged != nil { // the image can be used without its tag
			res, err = ctrl.Result{}, s.untagged
		}
	}()
	if err := r.gatherConfig(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	announced := r.reportIfSlow(ctx, config)
	err = status.Run(ctx, s, r.inspect, r.decide)
	if written := announced(); written != nil { // what the reconcile finds is compared with what was said meanwhile
		patch, config.ResourceVersion = status.NewPatcher(r.options.Client, written), written.ResourceVersion
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, status.Run(ctx, s, r.interrupt, r.remove, r.ensureBuild, r.labelBuild, r.nameConfiguration, r.acknowledge, r.nameBuild, r.retag, r.prune, r.tellPool, r.requeue)
}

// announce says that work begins, where nothing says so yet: reading a base image for the first
// time takes some seconds.
func (r *Reconciler) announce(ctx context.Context, config *mcfgv1.MachineOSConfig) error {
	if ready := status.Find(config.Status.Conditions, status.Ready); ready != nil && ready.Reason != mcfgv1.ReasonWaitingForPool {
		return nil
	}
	pool := &mcfgv1.MachineConfigPool{}
	if err := r.options.Client.Get(ctx, client.ObjectKey{Name: config.Spec.MachineConfigPool.Name}, pool); err != nil {
		return client.IgnoreNotFound(err)
	}
	facts := objects.PoolFacts(pool)
	if facts.Config == "" || facts.Degraded != "" {
		return nil
	}
	if _, err := objects.ReadRendered(ctx, r.options.Client, facts.Config); err != nil {
		return nil //nolint:nilerr // the reconcile itself says so
	}
	patch := status.NewPatcher(r.options.Client, config, status.KeepGeneration())
	conditions := config.GetConditions()
	status.SetSummary(&conditions, status.NotBefore(r.options.Clock.Now(), conditions), config.Generation, status.Summary{
		State: status.StateReconciling, Reason: mcfgv1.ReasonPreparing, Message: "secrets, images and the Containerfile are looked at",
	})
	config.SetConditions(conditions)
	_, err := patch.Finish(ctx, config, ctrl.Result{}, nil)
	return err
}

// reportIfSlow writes that a registry is slow if what follows takes longer than SlowAfter. The
// function that it returns ends that, and returns the object that was written, nil if none was.
func (r *Reconciler) reportIfSlow(ctx context.Context, config *mcfgv1.MachineOSConfig) func() *mcfgv1.MachineOSConfig {
	written := make(chan *mcfgv1.MachineOSConfig, 1)
	mine := config.DeepCopy()
	slow := cmp.Or(r.options.SlowAfter, defaultSlowAfter)
	timer := time.AfterFunc(slow, func() { written <- r.writeSlow(ctx, mine) }) //nolint:forbidigo // a registry is slow in real time
	return func() *mcfgv1.MachineOSConfig {
		if timer.Stop() {
			return nil
		}
		return <-written
	}
}

// writeSlow writes that a registry is slow; it returns nil if that could not be written.
func (r *Reconciler) writeSlow(ctx context.Context, config *mcfgv1.MachineOSConfig) *mcfgv1.MachineOSConfig {
	if is := status.Find(config.Status.Conditions, status.Stalled); is != nil && is.Status == metav1.ConditionTrue {
		return nil // that says more
	}
	if is := status.Find(config.Status.Conditions, status.Ready); is != nil && is.Reason == mcfgv1.ReasonWaitingForTurn {
		return nil // that does too, and would come again with the next turn that is refused
	}
	patch := status.NewPatcher(r.options.Client, config, status.KeepGeneration())
	conditions := config.GetConditions()
	status.SetSummary(&conditions, status.NotBefore(r.options.Clock.Now(), conditions), config.Generation, status.Summary{
		State: status.StateReconciling, Reason: mcfgv1.ReasonPreparing,
		Message: fmt.Sprintf("a registry takes long to answer: that of the base image, or that of spec.renderedImagePushSpec %q", config.Spec.RenderedImagePushSpec),
	})
	config.SetConditions(conditions)
	if _, err := patch.Finish(ctx, config, ctrl.Result{}, nil); err != nil {
		ctrl.LoggerFrom(ctx).V(4).Info("Slow registry not told", "reason", err.Error())
		return nil
	}
	return config
}

// requeue ends the reconcile of what can be tried again with the error that says why.
func (*Reconciler) requeue(_ context.Context, s *scope) error {
	if fault.IsTransient(s.problem) {
		return s.problem
	}
	if fault.IsWaiting(s.late) { // for a turn, which changes nothing about the image
		return nil
	}
	return s.late
}

// next is when to look again without being told.
func (r *Reconciler) next(s *scope) ctrl.Result {
	if s.decision == nil {
		return ctrl.Result{}
	}
	after := wanted.Again(s.config.Name)
	switch {
	case s.decision.Action == plan.Stop:
		after = secretCheck
		if s.decision.After > 0 {
			after = min(s.decision.After, secretCheck)
		}
	case s.decision.After > 0:
		after = min(s.decision.After, wanted.Idle)
	case fault.After(s.problem) > 0:
		after = fault.After(s.problem)
	case fault.After(s.late) > 0:
		after = fault.After(s.late)
	case s.build != nil && status.BuildStageOf(s.build.Status.Conditions) == mcfgv1.BuildStagePending:
		after = runs.Queued
	}
	return ctrl.Result{RequeueAfter: after}
}

// forget drops what is known of a MachineOSConfig that is gone, and tells its pool.
func (r *Reconciler) forget(ctx context.Context, name string) (ctrl.Result, error) {
	r.options.Finder.Forget(name)
	r.options.Metrics.Forget(name)
	pool := &mcfgv1.MachineConfigPool{}
	if err := r.options.Client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return r.writePool(ctx, pool, func(conditions *[]metav1.Condition, now time.Time) { setNoLayer(conditions, now) })
}

// reportConfig tells about the transitions between two states that have been written.
func (r *Reconciler) reportConfig(before, after *mcfgv1.MachineOSConfig) {
	was, is := status.Find(before.Status.Conditions, status.Stalled), status.Find(after.Status.Conditions, status.Stalled)
	switch {
	case is != nil && (was == nil || was.Reason != is.Reason || was.Message != is.Message):
		r.options.Events.Publish(after, events.ConfigReconcileFailed(is.Reason, is.Message))
	case was != nil && is == nil:
		r.options.Events.Publish(after, events.ConfigReconciled())
	}
	if waits := objects.BeginsToWait(before.Status.Conditions, after.Status.Conditions); waits != nil {
		r.options.Events.Publish(after, events.Waiting(waits.Reason, waits.Message))
	}
}
