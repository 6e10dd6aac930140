package builds

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/cleanup"
	"github.com/layerwright/layerwright/builder/making"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/report"
	"github.com/layerwright/layerwright/builder/runs"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/status"
)

// Reconciler makes the images that MachineOSBuilds ask for.
type Reconciler struct{ options Options }

// Options are what a Reconciler works with.
type Options struct {
	// Client reads from the cache.
	Client client.Client
	Clock  clock.PassiveClock
	// Imager obtains the images of builds, Cleaner removes what builds leave, and Report tells
	// about them.
	Imager  *making.Imager
	Cleaner *cleanup.Cleaner
	Report  *report.Reporter
	// Backends build content; what they have made is watched.
	Backends backends.Set
	// Runs are the builds that this process works on.
	Runs *runs.Runs
	// Limit is how many images are made at once, and MaxConcurrentContent how many of them have
	// their content built.
	Limit, MaxConcurrentContent int
	// Attempt is how long one attempt to append may take.
	Attempt time.Duration
	// InWork remembers what is worked on, so that what kills the process is found; nil remembers
	// nothing.
	InWork *inwork.Log
}

// New makes a reconciler.
func New(options Options) *Reconciler {
	return &Reconciler{options: options}
}

// resyncInterval is when to look again at what a watch should have reported.
const resyncInterval = time.Second

// scope is one reconcile of a build: what it works with, and what it knows.
type scope struct {
	options *Options
	build   *mcfgv1.MachineOSBuild
	// config is nil if it is gone, or another one of its name.
	config *mcfgv1.MachineOSConfig
	record *plan.Record
	// show is what the conditions are to say.
	show status.Build
	// after is when to look again.
	after time.Duration
	// began is when the backend says that it began; zero where it has not, or there is none.
	began time.Time
}

// Reconcile reconciles one build. The first reconcile that finds everything there says that the
// build has begun, and the next one, which sees that, makes the image: so that whoever looks at any
// time sees what happens, and a process that dies in between is continued.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	build := &mcfgv1.MachineOSBuild{}
	if err := r.options.Client.Get(ctx, req.NamespacedName, build); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s := &scope{options: &r.options, build: build, show: shown(build)}
	if !build.DeletionTimestamp.IsZero() {
		after, err := r.options.Cleaner.Release(ctx, build)
		return status.Result(ctrl.Result{RequeueAfter: after}, err)
	}
	if s.show.Stage.IsFinal() {
		return ctrl.Result{}, r.options.Cleaner.Clean(ctx, build)
	}
	before := build.DeepCopy()
	patch := status.NewPatcher(r.options.Client, build, status.Freezing(status.FinalBuildTypes()...))
	defer func() {
		s.setStatus(err)
		version := build.ResourceVersion
		res, err = patch.Finish(ctx, build, ctrl.Result{RequeueAfter: s.after}, err)
		if build.ResourceVersion != version {
			r.options.Report.Transition(ctx, before, build)
		}
	}()
	return ctrl.Result{}, s.noteTimeout(ctx, s.runBuild(ctx))
}

// runBuild makes the steps.
func (s *scope) runBuild(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.gather, s.beginBuild, s.makeImage} {
		if err := step(ctx); err != nil {
			return err
		}
		if s.show.Stage.IsFinal() || s.after > 0 {
			return nil
		}
	}
	return nil
}

// gather reads what the build was asked to do.
func (s *scope) gather(ctx context.Context) error {
	config := &mcfgv1.MachineOSConfig{}
	err := s.options.Client.Get(ctx, client.ObjectKey{Name: s.build.Spec.MachineOSConfig.Name}, config)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading MachineOSConfig %q: %w", s.build.Spec.MachineOSConfig.Name, err)
	case apierrors.IsNotFound(err), !config.DeletionTimestamp.IsZero(), !objects.IsOwnedBy(s.build, config):
		s.show = status.Build{
			Stage: mcfgv1.BuildStageInterrupted, Reason: mcfgv1.ReasonMachineOSConfigDeleted, Generation: s.build.Generation,
			Message: fmt.Sprintf("MachineOSConfig %q, which requested this build, was deleted", s.build.Spec.MachineOSConfig.Name),
		}
		return nil
	}
	s.config = config
	if s.record, err = plan.RecordOf(s.build); err != nil {
		return fault.NewTerminal(mcfgv1.ReasonInvalid, err)
	}
	if s.record == nil || !objects.IsNamedByKey(s.build, s.record.Keys.Build) {
		return fault.NewWaiting(mcfgv1.ReasonWaiting, 0, errors.New(
			"this build was not requested by Layerwright: spec.decision is missing or is that of a build of another name; delete the build, or wait until the next build supersedes it"))
	}
	return nil
}

// beginBuild says what the build is for, and that it has begun. The reconcile ends there: the image
// is made by the one that sees it written.
func (s *scope) beginBuild(ctx context.Context) error {
	if s.show.Stage >= mcfgv1.BuildStagePrepared {
		return nil
	}
	hasContent := s.record.Inputs.HasContent()
	if hasContent {
		if wait, err := s.waitForContentSlot(ctx); err != nil || wait {
			return err
		}
	} else if !s.options.Runs.Admit(s.build.Name, s.options.Clock.Now()) {
		s.after = runs.SlotInterval
		return nil
	}
	before, err := objects.RecordBefore(ctx, s.options.Client, s.config, s.build)
	if err != nil {
		return err
	}
	st := &s.build.Status
	st.ChangedInputs, st.Why = plan.Why(before, s.record, s.build.Asked().Cause)
	st.ContentKey, st.BuildKey = s.record.Keys.Content, s.record.Keys.Build
	s.show.Stage, s.show.Reason, s.show.Message = mcfgv1.BuildStageBuilding, mcfgv1.ReasonBuilding, "the image is being made"
	if hasContent {
		s.show.Stage, s.show.Reason, s.show.Message = mcfgv1.BuildStagePrepared, mcfgv1.ReasonPrepared, "its content is about to be built"
	}
	s.after = resyncInterval // the watch tells sooner
	return nil
}

// waitForContentSlot reports whether a build of content has to wait for a slot, and writes that.
// Runs limit only what this process does itself.
func (s *scope) waitForContentSlot(ctx context.Context) (bool, error) {
	var list mcfgv1.MachineOSBuildList
	if err := s.options.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing MachineOSBuilds: %w", err)
	}
	if makes := objects.ContentBuild(list.Items, s.sharedContent()); makes != "" && makes != s.build.Name {
		s.show.Message, s.after = fmt.Sprintf("it waits for build %q, which builds the same content", makes), runs.Queued
		return true, nil
	}
	var running []string
	var waiting []plan.Existing
	for i := range list.Items {
		b := &list.Items[i]
		stage := status.BuildStageOf(b.Status.Conditions)
		if !b.DeletionTimestamp.IsZero() || stage.IsFinal() {
			continue
		}
		if _, hasContent := objects.ContentOf(b); !hasContent {
			continue
		}
		if stage == mcfgv1.BuildStagePending {
			waiting = append(waiting, objects.Existing(b))
		} else {
			running = append(running, b.Name)
		}
	}
	message := plan.Queue(s.build.Name, s.options.MaxConcurrentContent, running, waiting)
	if message == "" {
		return false, nil
	}
	s.show.Message, s.after = message, runs.Queued
	return true, nil
}

// sharedContent identifies the content that the build shares with others; empty where it shares
// none.
func (s *scope) sharedContent() string { return objects.Existing(s.build).Content }

// Supersede ends a build, since the image that is wanted now is that of another one.
func (r *Reconciler) Supersede(ctx context.Context, build *mcfgv1.MachineOSBuild, by string) error {
	s := &scope{options: &r.options, build: build, show: status.Build{
		Stage: mcfgv1.BuildStageInterrupted, Reason: mcfgv1.ReasonSuperseded, Generation: build.Generation,
		Message: fmt.Sprintf("build %q supersedes it", by),
	}}
	before := build.DeepCopy()
	patch := status.NewPatcher(r.options.Client, build, status.Freezing(status.FinalBuildTypes()...))
	s.setStatus(nil)
	version := build.ResourceVersion
	_, err := patch.Finish(ctx, build, ctrl.Result{}, nil)
	if err == nil && build.ResourceVersion != version {
		r.options.Runs.Stop(build.Spec.MachineOSConfig.Name, build.Name)
		r.options.Report.Transition(ctx, before, build)
	}
	return err
}
