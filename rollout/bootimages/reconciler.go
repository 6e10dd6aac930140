package bootimages

import (
	"cmp"
	"context"
	"fmt"
	"time"

	openshiftv1 "github.com/openshift/api/operator/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// FieldManager is who the API server says changed a boot image.
const FieldManager = "layerwright-boot-images"

// ImageOwners finds out whose an image of a cloud is.
type ImageOwners interface {
	// OwnerOf is the account that an image in a region belongs to; empty where the cloud does not
	// say. An error is Terminal where it can't be asked until a person has corrected something.
	OwnerOf(ctx context.Context, region, image string) (string, error)
}

// Options are the settings of the boot image controllers.
type Options struct {
	// Namespace is Layerwright's own, where the ConfigMap with the boot images is.
	Namespace string
	// Soak is how long the first resource of a wave is watched alone; a machine that joins ends it
	// sooner.
	Soak time.Duration
	// DegradeAfter is how long a resource may fail before the MachineConfiguration is Degraded.
	DegradeAfter time.Duration
	// Owners finds out whose images are; nil where nothing can.
	Owners ImageOwners
	// Importer imports images into vSphere; nil where nothing can.
	Importer Importer
	// Policies join an administrator's node disruption policies and the built-in ones, which the
	// status of the MachineConfiguration lists; nil lists none.
	Policies func(*openshiftv1.NodeDisruptionPolicyConfig) openshiftv1.NodeDisruptionPolicyClusterStatus
	// Metrics count; nil counts nothing.
	Metrics *metrics.BootImages
	// Clock is the real one where nil.
	Clock clock.PassiveClock
}

// Defaults of Options.
const (
	DefaultSoak         = time.Hour
	DefaultDegradeAfter = 10 * time.Minute
)

// updater reconciles the resources of one kind.
type updater struct {
	kind    *kind
	kinds   []*kind
	options Options
	clock   clock.PassiveClock
	client  client.Client
	cache   client.Reader
	reader  client.Reader // past the cache
	events  events.Publisher

	world     *world
	ledger    *ledger
	templates *templates
	stubs     *stubs
	owners    *owned
	imports   *imports
	secrets   *secrets
	// wake has a resource be looked at again.
	wake map[*kind]chan event.GenericEvent
}

// scope is what is known in one reconcile.
type scope struct {
	facts    *facts
	resource *resource
	history  *mcfgv1alpha1.BootImageHistory // nil where there is none
	decision plan.Decision
	// wait is why the update has to wait, and for how long.
	wait      string
	waitUntil time.Duration
}

// Reconcile reconciles one resource.
func (u *updater) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	of := id{u.kind, req.NamespacedName}
	o := u.kind.newObject()
	err := u.cache.Get(ctx, req.NamespacedName, o)
	if apierrors.IsNotFound(err) || err == nil && o.GetDeletionTimestamp() != nil {
		u.ledger.forget(of)
		u.wakeUp(ctx, u.ledger.resign(of, ""))
		after, err := u.collect(ctx, req.Namespace)
		return ctrl.Result{RequeueAfter: after}, err
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading %s: %w", of, err)
	}
	f, err := u.world.facts(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	s := &scope{facts: f, resource: read(u.kind, o)}
	err = u.reconcile(ctx, s)
	is := s.outcome(err)
	if is.state == metrics.BootImageFailed {
		is.since = u.clock.Now()
	}
	before := u.ledger.of(of)
	u.ledger.record(of, is)
	u.resign(ctx, s, &is)
	if err != nil && !apierrors.IsConflict(err) || is.reason == plan.ReasonUnknownImageOwner {
		u.awaitSecrets(ctx, s)
	}
	if is.state == metrics.BootImageFailed && (before.state != is.state || before.message != is.message) {
		u.events.Publish(o, events.BootImageFailed(is.reason, is.message))
	}
	if err := u.setHistoryCondition(ctx, s, &is); err != nil {
		return status.Result(ctrl.Result{}, err)
	}
	return u.result(s, err)
}

// result is when to look again. What fails for a reason that a person corrects has no watch on all
// that they may correct.
func (u *updater) result(s *scope, err error) (ctrl.Result, error) {
	switch {
	case err != nil && !fault.IsTerminal(err):
		return status.Result(ctrl.Result{}, err)
	case err != nil || s.decision.Action == plan.ActionFail || s.decision.Action == plan.ActionAsk || s.decision.Reason == plan.ReasonUnknownImageOwner:
		return ctrl.Result{RequeueAfter: recheck}, nil //nolint:nilerr // what can't be read is found out again
	}
	return ctrl.Result{RequeueAfter: s.waitUntil}, nil
}

// reconcile finds out what the resource should have, and gives it that.
func (u *updater) reconcile(ctx context.Context, s *scope) error {
	if s.facts.idle != "" {
		return nil
	}
	isManaged, err := plan.IsManaged(s.facts.managers, string(u.kind.resource), u.kind.groupKind.Group, s.resource.object.GetLabels())
	if err != nil {
		return fault.NewTerminal(plan.ReasonNotOptedIn, err)
	}
	if !isManaged {
		s.decision = plan.Decision{Action: plan.ActionSkip, Reason: plan.ReasonNotOptedIn, Message: "spec.managedBootImages of the MachineConfiguration does not select it"}
		return nil
	}
	if s.facts.images == nil {
		s.wait = cmp.Or(s.facts.problem, s.facts.late)
		return nil
	}
	if err := u.gather(ctx, s); err != nil {
		return err
	}
	if err := u.decide(ctx, s); err != nil {
		return err
	}
	if s.decision.Action != plan.ActionNone && s.decision.Action != plan.ActionUpdate {
		return nil
	}
	if s.facts.unstable != "" && s.resource.plan.Annotations[mcfgv1.AnnotationBootImagePin] == "" {
		s.wait = s.facts.unstable
		return nil
	}
	if err := u.translateStub(ctx, s); err != nil {
		return err
	}
	if err := u.update(ctx, s); err != nil {
		return err
	}
	if err := u.watchCanary(ctx, s); err != nil || s.history == nil {
		return err
	}
	after, err := u.collect(ctx, s.resource.id.Namespace)
	s.waitUntil = cmp.Or(s.waitUntil, after)
	return err
}

// gather reads what belongs to the resource.
func (u *updater) gather(ctx context.Context, s *scope) error {
	history := &mcfgv1alpha1.BootImageHistory{}
	err := u.cache.Get(ctx, historyKey(s.resource.id), history)
	switch {
	case err == nil:
		s.history = history
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading BootImageHistory %q: %w", historyKey(s.resource.id), err)
	}
	if !u.kind.isClusterAPI() {
		return nil
	}
	main, err := u.mirroredBy(ctx, s.resource.id.NamespacedName)
	if err != nil {
		return err
	}
	if main != "" {
		s.resource.plan.IsElsewhere, s.resource.plan.Main = true, main
	}
	if plan.Platform(s.resource.plan.ProviderKind) == "" {
		return nil // what else it may name is not read
	}
	s.resource.plan.ProviderSpec, err = u.templates.spec(ctx, s.resource.template)
	return err
}

// decide asks package plan, and what it asks back.
func (u *updater) decide(ctx context.Context, s *scope) error {
	in := plan.Input{
		Resource: s.resource.plan, Images: s.facts.images, Stream: s.facts.streamOf(s.resource),
		Architecture: s.facts.architectureOf(s.resource), Region: s.facts.region, Owners: map[plan.Question]plan.Owner{}, Now: u.clock.Now(),
		CanUpload: u.options.Importer != nil && !u.kind.isClusterAPI(),
	}
	if s.history != nil {
		in.History = s.history.Status.Details
	}
	s.decision = plan.Decide(in)
	if s.decision.Action == plan.ActionAsk {
		owner, err := u.owners.of(ctx, s.decision.Question)
		if err != nil {
			return err
		}
		in.Owners[s.decision.Question] = owner
		s.decision = plan.Decide(in)
	}
	if s.decision.Reason == plan.ReasonHotLoop {
		writer, err := u.otherWriter(ctx, s)
		if err != nil {
			return err
		}
		s.decision.Message += writer
	}
	return nil
}

// update gives the resource its image, when there is room.
func (u *updater) update(ctx context.Context, s *scope) error {
	wantsManaged := s.wantsManagedUserData()
	name := wave(&s.decision)
	if s.history != nil {
		if last := len(s.history.Status.Details) - 1; last > 0 && s.history.Status.Details[last].Image == s.decision.Wanted.ID && s.decision.Reason != plan.ReasonPinned {
			u.ledger.recordUpdate(name, s.resource.id, s.history.Status.Details[last].UpdateTime.Time)
		}
	}
	if s.decision.IsFirst {
		if err := u.record(ctx, s); err != nil {
			return err
		}
	}
	if s.decision.Action != plan.ActionUpdate {
		if !wantsManaged {
			return nil
		}
		return u.write(ctx, s, false, true)
	}
	if hasSlot, err := u.awaitSlot(ctx, s, name); err != nil || !hasSlot {
		return err
	}
	// The record comes first: an update that no one knows of can't be undone, while a record too
	// many only counts as one try.
	if err := u.record(ctx, s); err != nil {
		return err
	}
	if err := u.write(ctx, s, true, wantsManaged); err != nil {
		return fault.Join(err, u.unrecord(ctx, s))
	}
	if s.decision.Reason != plan.ReasonPinned {
		u.ledger.recordUpdate(name, s.resource.id, u.clock.Now())
	}
	u.options.Metrics.Updated(u.kind.name, s.decision.Platform)
	u.events.Publish(s.resource.object, events.BootImageUpdated(s.decision.Current, s.decision.Wanted.ID, s.decision.Wanted.Version))
	ctrl.LoggerFrom(ctx).Info("Boot image updated", "resource", s.resource.id.String(), "from", s.decision.Current, "to", s.decision.Wanted.ID, "stream", s.decision.Stream)
	s.decision.CurrentVersion = s.decision.Wanted.Version
	s.decision.Action = plan.ActionNone
	return nil
}

// outcome is what came of a reconcile.
func (s *scope) outcome(err error) outcome {
	d := &s.decision
	o := outcome{platform: d.Platform, version: d.CurrentVersion, reason: d.Reason, message: d.Message}
	switch {
	case apierrors.IsConflict(err):
		o.state, o.reason, o.message = metrics.BootImageWaiting, status.ReasonRetrying, "something else changed it at the same time"
	case err != nil:
		o.state, o.reason, o.message = metrics.BootImageFailed, fault.Reason(err), fault.Message(err)
		if o.reason == "" {
			o.reason = status.ReasonRetrying
		}
	case s.facts.idle != "":
		o.state, o.reason, o.message = metrics.BootImageUnmanaged, "Idle", s.facts.idle
	case s.wait != "":
		o.state, o.reason, o.message = metrics.BootImageWaiting, "Waiting", s.wait
	case d.Action == plan.ActionFail:
		o.state = metrics.BootImageFailed
	case (d.Action == plan.ActionSkip || d.Action == plan.ActionAsk) && d.IsCounted:
		o.state = metrics.BootImageSkipped
	case d.Action == plan.ActionSkip:
		o.state = metrics.BootImageUnmanaged
	case d.Action == plan.ActionUpdate:
		o.state = metrics.BootImageWaiting
	default:
		o.state, o.version = metrics.BootImageUpToDate, d.Wanted.Version
	}
	return o
}

// wakeUp has resources be looked at again.
func (u *updater) wakeUp(ctx context.Context, all []id) {
	for _, of := range all {
		o := of.kind.newObject()
		o.SetNamespace(of.Namespace)
		o.SetName(of.Name)
		select {
		case u.wake[of.kind] <- event.GenericEvent{Object: o}:
		case <-ctx.Done():
			return
		}
	}
}

// second is now as the API stores it.
func (u *updater) second() metav1.Time { return status.Second(u.clock.Now()) }
