package controller

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/streams/source"
)

// Reader finds out what images are, as a source.Reader does.
type Reader interface {
	Inspect(ctx context.Context, access source.Access, g streams.Gathered) (streams.Gathered, error)
	Release(ctx context.Context, access source.Access, image string) (streams.Release, error)
	NextLook(g streams.Gathered) (time.Time, bool)
}

// Mirrors say where images are besides, as a mirrorsets.Reader does.
type Mirrors interface {
	Rules(ctx context.Context) (mirrors.Rules, error)
}

// Options are the settings of the reconciler.
type Options struct {
	// Namespace is that of the ConfigMaps.
	Namespace string
	// ReleaseVersion is the version of the release that this program belongs to; empty on clusters
	// without releases. While the cluster is to have another one, nothing is done: the next version
	// of this program will.
	ReleaseVersion string
	// ReleaseImage is the release image; where it is empty, the one that the ClusterVersion names,
	// if there is one.
	ReleaseImage string
	// PullSecret has the credentials for all images. Where it does not exist, images are read
	// without.
	PullSecret types.NamespacedName
	// Distribution says which built-in default counts; where it is unknown, the first of all that a
	// release has.
	Distribution streams.Distribution
	// Connect makes a client of registries, which reads through mirrors.
	Connect func(authn.Keychain, mirrors.Table) source.Registry
	// Reader reads images.
	Reader Reader
	// Recheck is how long a source that is wrong for good is left alone; zero is 15 minutes. What
	// can be watched is watched besides.
	Recheck time.Duration
}

// Reconciler keeps the OSImageStream.
type Reconciler struct {
	// client reads from the cache, reader asks the API server. OpenShift's kinds are read from
	// cache itself: past it the client would ask the API server for them.
	client  client.Client
	reader  client.Reader
	cache   client.Reader
	mirrors Mirrors
	clock   clock.PassiveClock
	events  events.Publisher
	options Options
	// hasClusterVersion reports whether the cluster has that kind.
	hasClusterVersion bool
	// lastLogged is the last message about missing streams, so that it is logged once.
	lastLogged string
}

// New makes a Reconciler; SetupWithManager gives it what it works with.
func New(options Options) *Reconciler {
	if options.Recheck <= 0 {
		options.Recheck = source.DefaultTagInterval
	}
	return &Reconciler{options: options, clock: clock.RealClock{}}
}

// scope is what one reconcile knows.
type scope struct {
	object *mcfgv1.OSImageStream
	found  *found // nil until the sources have been asked
	// decided is the outcome; nil while the last one stays in force as a whole.
	decided *outcome
	// defaultErr means that the wanted default is not there.
	defaultErr error
}

// Reconcile reconciles the one OSImageStream, so the name in the request does not
// matter.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (res ctrl.Result, err error) {
	object := &mcfgv1.OSImageStream{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: mcfgv1.OSImageStreamName}, object); apierrors.IsNotFound(err) {
		return status.Result(r.create(ctx))
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if !object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	s := &scope{object: object}
	before := object.DeepCopy()
	patch := status.NewPatcher(r.client, object, status.Owning(conditionTypes()...))
	defer func() {
		setStatus(s, r.clock.Now(), err)
		res = ctrl.Result{RequeueAfter: r.next(s)}
		version := object.ResourceVersion
		res, err = patch.Finish(ctx, object, res, err)
		if object.ResourceVersion != version {
			r.report(ctx, before, object)
		}
	}()
	if s.found, err = r.gather(ctx, object); err != nil && s.found == nil {
		return ctrl.Result{}, err
	}
	if s.mayDecide() {
		s.decide(r.clock.Now())
	}
	if err == nil {
		err = r.acknowledge(ctx, s)
	}
	return ctrl.Result{}, fault.Join(err, r.recordProvenance(ctx, s))
}

// wantsCheck reports whether someone asks what tags stand for now.
func wantsCheck(object *mcfgv1.OSImageStream) bool {
	_, asked := object.Annotations[mcfgv1.AnnotationCheckImages]
	return asked
}

// acknowledge removes the annotation that asked for a check, once all sources have answered.
func (r *Reconciler) acknowledge(ctx context.Context, s *scope) error {
	asked, err := status.Acknowledge(ctx, r.client, s.object, mcfgv1.AnnotationCheckImages)
	if asked && err == nil {
		r.events.Publish(s.object, events.StreamsChecked())
	}
	return err
}

// mayDecide reports whether what was found may take the place of what is in force. Images of two
// releases are never mixed: when the release has changed and can't be read to its end, all stays as
// it is.
func (s *scope) mayDecide() bool {
	return len(s.object.Status.AvailableStreams) == 0 || s.found.isOfRelease(s.object) || !s.found.releaseFailed
}

// recordProvenance says which release the streams are of, once they have been written: who sees a
// release in the annotations finds its streams.
func (r *Reconciler) recordProvenance(ctx context.Context, s *scope) error {
	if s.decided == nil || s.found.releaseFailed || s.found.isOfRelease(s.object) || !s.decided.isIn(s.object) {
		return nil
	}
	return status.ChangeMetadata(ctx, r.client, s.object, func(o *mcfgv1.OSImageStream) {
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		maps.Copy(o.Annotations, s.found.provenance)
		maps.DeleteFunc(o.Annotations, func(key, value string) bool {
			_, isOurs := s.found.provenance[key]
			return isOurs && value == ""
		})
	})
}

// create makes the OSImageStream where a source gives streams.
func (r *Reconciler) create(ctx context.Context) (ctrl.Result, error) {
	found, err := r.gather(ctx, &mcfgv1.OSImageStream{})
	if err != nil {
		return ctrl.Result{}, err
	}
	set := streams.Merge(found.contributions, nil)
	res := ctrl.Result{RequeueAfter: r.options.Recheck}
	if len(set.Available) == 0 {
		message := "No source gives OS image streams, so pools follow none"
		if problems := slices.Concat(found.problems, set.Problems); len(problems) > 0 {
			message += ": " + problems[0].Message
		} else {
			res = ctrl.Result{} // whatever may give some is watched
		}
		r.logOnce(ctx, message)
		return res, nil
	}
	name, reason, err := streams.Default(found.defaultInput("", "", set.Available))
	if err != nil {
		r.logOnce(ctx, "No OSImageStream is made: "+err.Error())
		return res, nil //nolint:nilerr // said, and no one but a person can help
	}
	object := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.OSImageStreamName}}
	object.Spec.DefaultStream = name
	if err := r.client.Create(ctx, object); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return ctrl.Result{}, nil // a person was faster, and the watch tells
		}
		return ctrl.Result{}, fmt.Errorf("making OSImageStream %q: %w", object.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Made the OSImageStream", "defaultStream", name, "reason", reason, "streams", streams.Names(set.Available))
	r.events.Publish(object, events.StreamsCreated(name, reason))
	return ctrl.Result{}, nil
}

// logOnce logs a message unless it was the last one.
func (r *Reconciler) logOnce(ctx context.Context, message string) {
	if r.lastLogged != message {
		r.lastLogged = message
		ctrl.LoggerFrom(ctx).Info(message)
	}
}

// next is when there is something to look at again though nothing that is watched changes: a tag, a
// date, a source that was wrong.
func (r *Reconciler) next(s *scope) time.Duration {
	if s.found == nil {
		return 0
	}
	now := r.clock.Now()
	var next time.Time
	consider := func(at time.Time, ok bool) {
		if ok && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, g := range s.found.gathered {
		consider(r.options.Reader.NextLook(g))
	}
	for i := range s.object.Status.AvailableStreams {
		stream := &s.object.Status.AvailableStreams[i]
		consider(streams.NextChange(stream.DeprecationDate, stream.EndOfLifeDate, now))
	}
	if s.decided != nil && len(s.decided.problems) > 0 {
		consider(now.Add(r.options.Recheck), true)
	}
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(now), time.Second)
}

// report tells about the transitions between two states that have been written.
func (r *Reconciler) report(ctx context.Context, before, after *mcfgv1.OSImageStream) {
	log := ctrl.LoggerFrom(ctx)
	if changes := streams.Changes(before.Status.AvailableStreams, after.Status.AvailableStreams); changes != "" {
		log.Info("Streams changed", "changes", changes, "default", after.Status.DefaultStream)
		r.events.Publish(after, events.StreamsChanged(changes))
	}
	for _, conditionType := range streams.ConditionTypes() {
		was, is := status.Find(before.Status.Conditions, conditionType), status.Find(after.Status.Conditions, conditionType)
		if is != nil && (was == nil || was.Reason != is.Reason || was.Message != is.Message) {
			log.Info("Streams have a problem", "condition", is.Type, "reason", is.Reason, "message", is.Message)
			if !streams.IsNotice(conditionType) {
				r.events.Publish(after, events.StreamsProblem(is.Type, is.Message))
			}
		}
	}
}

// outcome is what the status is to say.
type outcome struct {
	available     []mcfgv1.OSImageStreamSet
	unusable      []mcfgv1.UnusableOSImageStream
	defaultStream string
	defaultReason string
	problems      []streams.Problem // one of a type
}

// isIn reports whether the status said so when it was read.
func (o *outcome) isIn(object *mcfgv1.OSImageStream) bool {
	return reflect.DeepEqual(o.available, object.Status.AvailableStreams) && o.defaultStream == object.Status.DefaultStream
}

// decide computes the outcome.
func (s *scope) decide(now time.Time) {
	previous := &s.object.Status
	set := streams.Merge(s.found.contributions, previous.AvailableStreams)
	streams.Describe(set.Available, s.found.knowledge, now)
	o := &outcome{available: set.Available, unusable: set.Unusable}
	problems := slices.Concat(s.found.problems, set.Problems)
	if len(set.Available) > 0 {
		o.defaultStream, o.defaultReason, s.defaultErr = streams.Default(
			s.found.defaultInput(s.object.Spec.DefaultStream, previous.DefaultStream, set.Available))
		if s.defaultErr != nil {
			problems = append(problems, streams.Problem{
				Type: mcfgv1.StreamDefaultNotAvailable, Reason: mcfgv1.ReasonDefaultStreamNotAvailable, Message: s.defaultErr.Error(),
			})
		}
	}
	if s.defaultErr != nil && o.defaultStream == "" {
		o.keep(previous, streams.Names(set.Available))
	}
	o.problems = streams.Summarize(problems)
	s.decided = o
}

// keep leaves streams as they were where no default can be found. An administrator can only ask for
// one that the status lists, so what is kept must have one that there is; else nothing is listed,
// and he can ask for any.
func (o *outcome) keep(previous *mcfgv1.OSImageStreamStatus, names []string) {
	o.available = nil
	for i := range previous.AvailableStreams {
		for _, name := range names {
			if previous.AvailableStreams[i].Name == name {
				o.available, o.defaultStream = previous.AvailableStreams, previous.DefaultStream
				return
			}
		}
	}
}

// conditionTypes are those that this package writes.
func conditionTypes() []string {
	return append(streams.ConditionTypes(), status.Ready, status.Reconciling, status.Stalled)
}

// setStatus computes the whole status.
func setStatus(s *scope, now time.Time, err error) {
	object := s.object
	conditions := object.GetConditions()
	last := status.StateOf(conditions)
	summary := status.Summary{State: status.StateReconciling, Reason: status.ReasonNotYetObserved}
	if last == status.StateReady {
		summary = status.Summary{State: status.StateReady, Reason: status.ReasonSucceeded}
	}
	problems := []streams.Problem(nil)
	switch {
	case s.decided != nil:
		object.Status.SetStreams(s.decided.available, s.decided.defaultStream)
		object.Status.UnusableStreams = s.decided.unusable
		problems = s.decided.problems
		summary = summarize(s.decided)
	case s.found != nil: // the last state stays in force, and what is wrong is said
		problems = streams.Summarize(s.found.allProblems())
		summary = status.Summary{State: status.StateFailing, Reason: mcfgv1.ReasonSourceFailed, Message: "the streams of the former release stay until those of the new one can be read"}
		if len(problems) > 0 {
			summary.Message = problems[0].Message
		}
	}
	if s.found != nil {
		setProblems(&conditions, now, object.Generation, problems)
	}
	status.SetSummary(&conditions, now, object.Generation, summary.WithError(err, last))
	object.SetConditions(conditions)
}

// setProblems writes a condition for each problem, and removes those of problems that have gone.
func setProblems(conditions *[]metav1.Condition, now time.Time, generation int64, problems []streams.Problem) {
	is := map[string]streams.Problem{}
	for _, p := range problems {
		is[p.Type] = p
	}
	for _, conditionType := range streams.ConditionTypes() {
		p, there := is[conditionType]
		if !there {
			status.Remove(conditions, conditionType)
			continue
		}
		status.Set(conditions, now, metav1.Condition{
			Type: p.Type, Status: metav1.ConditionTrue, Reason: p.Reason, Message: p.Message, ObservedGeneration: generation,
		})
	}
}

// summarize is what Ready says.
func summarize(o *outcome) status.Summary {
	for _, p := range o.problems {
		if streams.IsNotice(p.Type) {
			continue
		}
		state := status.StateStalled
		if p.Reason == mcfgv1.ReasonRetrying {
			state = status.StateFailing
		}
		return status.Summary{State: state, Reason: reasonOf(p, o), Message: p.Message}
	}
	if len(o.available) == 0 {
		message := "no source gives a complete stream: name images in spec.images, or in the ConfigMap " + streams.ConfigMapName
		if len(o.problems) > 0 {
			message += "; " + o.problems[0].Message
		}
		return status.Summary{State: status.StateStalled, Reason: mcfgv1.ReasonNoOSImageStreamAvailable, Message: message}
	}
	return status.Summary{
		State: status.StateReady, Reason: status.ReasonSucceeded, Message: fmt.Sprintf("the default is %q: %s", o.defaultStream, o.defaultReason),
	}
}

// reasonOf is the reason of Ready for a problem: that nothing is available says more than why.
func reasonOf(p streams.Problem, o *outcome) string {
	if len(o.available) == 0 && p.Reason != mcfgv1.ReasonRetrying && p.Type != mcfgv1.StreamDefaultNotAvailable {
		return mcfgv1.ReasonNoOSImageStreamAvailable
	}
	return p.Reason
}
