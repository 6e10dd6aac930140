package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/rollout/healthchecks"
	"github.com/layerwright/layerwright/rollout/plan"
)

// etcdInterval is the time until unhealthy members of etcd are looked at again: nothing watches
// them.
const etcdInterval = 10 * time.Second

// Options are the settings of the rollout controller.
type Options struct {
	// OwnNode is the node that this process runs on, which goes last; empty where that is not
	// known.
	OwnNode string
	// Namespace is Layerwright's, where the Secrets of webhooks and the Jobs of health checks are.
	Namespace string
	// SigningSecret is the secret with the signing key, which no Job may use; empty where there is
	// none.
	SigningSecret string
	// UsersAssigned reports whether the cluster gives pods a user, as OpenShift does.
	UsersAssigned bool
	// Begin notes that something is in work until end is called, so that a health check which kills
	// the process is found and refused (internal/inwork); nil notes nothing.
	Begin func(ctx context.Context, object, version, retry string) (end func(), err error)
	// Silencer keeps alerts of nodes that change from being sent; nil keeps none.
	Silencer Silencer
	// Metrics count; nil counts nothing.
	Metrics *metrics.Rollouts
}

// Reconciler moves the nodes of MachineConfigPools.
type Reconciler struct {
	options Options
	clock   clock.PassiveClock
	client  client.Client
	reader  client.Reader // past the cache
	events  events.Publisher
	// versions tells the version of the API server.
	versions discovery.ServerVersionInterface
	hooks    hooks

	// What follows is used without a lock: one reconcile is made at a time, as controller-runtime
	// does unless it is told otherwise.
	written        written[*corev1.Node]
	writtenReports written[*mcfgv1.MachineConfigNode]
	checks         *healthchecks.Checker
	// started is when nodes were told to change, by name, for the metric of how long that takes.
	started map[string]time.Time
	// transitions are since when nodes are as they are, by name.
	transitions map[string]nodeTransitions
	// server is the version of the API server as it was at the time of serverAsked.
	server      string
	serverAsked time.Time
}

// New makes the reconciler; SetupWithManager gives it what it works with.
func New(options Options) *Reconciler {
	return &Reconciler{
		options: options, clock: clock.RealClock{},
		written: written[*corev1.Node]{}, writtenReports: written[*mcfgv1.MachineConfigNode]{}, started: map[string]time.Time{}, transitions: map[string]nodeTransitions{},
	}
}

// Reconcile reconciles one pool.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	pool := &mcfgv1.MachineConfigPool{}
	if err := r.client.Get(ctx, req.NamespacedName, pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.options.Metrics.Forget(req.Name)
			r.forgetSilences(req.Name)
			return status.Result(ctrl.Result{}, r.checks.Forget(ctx, req.Name))
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	s := &scope{pool: pool}
	if err := r.gather(ctx, s); err != nil {
		return status.Result(ctrl.Result{}, err)
	}
	if _, isAsked := pool.Annotations[mcfgv1.AnnotationResumeRollout]; isAsked {
		return status.Result(ctrl.Result{}, r.resume(ctx, s))
	}
	if err := r.decide(ctx, s); err != nil {
		return status.Result(ctrl.Result{}, err)
	}
	before := pool.DeepCopy()
	if s.plan.Updates() && s.started().IsZero() { // nodes are judged by it: it is there before they are told
		res, err = r.writeStatus(ctx, s, nil)
		if err != nil || pool.ResourceVersion == before.ResourceVersion {
			return res, err
		}
	}
	begun := errors.Join(r.quarantine(ctx, s), r.apply(ctx, s), r.checks.Run(ctx, s.findings))
	r.silence(s)
	res, err = r.writeStatus(ctx, s, begun)
	if pool.ResourceVersion != before.ResourceVersion {
		r.report(before, s)
	}
	r.options.Metrics.Pool(pool.Name, s.plan.Updated, s.plan.Total)
	return res, err
}

// writeStatus writes the pool's status. begun is what went wrong before.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, begun error) (ctrl.Result, error) {
	patch := status.NewPatcher(r.client, s.pool, status.KeepGeneration(), status.Owning(typeRolloutDegraded))
	setStatus(s.pool, s, r.clock.Now())
	return patch.Finish(ctx, s.pool, ctrl.Result{RequeueAfter: r.next(s)}, begun)
}

// decide judges the image, and plans. Members of etcd are looked at only when nodes would move.
func (r *Reconciler) decide(ctx context.Context, s *scope) error {
	in := plan.Input{
		Pool: s.pool, Target: s.verdict.Target, Image: s.verdict.Image, Hold: s.verdict.Reason(), Quarantined: s.verdict.Quarantined(),
		Wait: s.wait, Pull: pullOf(s.verdict.Found, s.wanted.Architectures), Nodes: s.members, OwnNode: r.options.OwnNode, Now: r.clock.Now(),
		Superseded: s.superseded(r.clock.Now()),
	}
	if s.invalid != nil {
		in.Hold = cmp.Or(in.Hold, s.invalid.Error())
	}
	if s.verdict.Quarantined() {
		in.FailedAtQuarantine, in.Evidence = s.verdict.Found.Status.Quarantine.Nodes, s.verdict.Found.Status.Quarantine.Message
	}
	if was := s.pool.Status.Rollout; was != nil && isAbout(was, &s.verdict) {
		in.Started, in.SoakEnd = s.started(), timeOf(was.CanarySoakEndTime)
	}
	s.plan = plan.Decide(in)
	if !plan.IsControlPlane(s.pool) || !s.plan.Updates() {
		return nil
	}
	members, err := r.etcdMembers(ctx, s.others)
	if err != nil {
		return fmt.Errorf("looking at etcd: %w", err)
	}
	s.etcd, in.Etcd = members, members
	s.plan = plan.Decide(in)
	return nil
}

// started is when the first node was told to change to the target; zero where none was, and when
// all have it: later, a node may be ill for any reason.
func (s *scope) started() time.Time {
	was := s.pool.Status.Rollout
	if was == nil || !isAbout(was, &s.verdict) || was.CompletionTime != nil {
		return time.Time{}
	}
	return timeOf(was.StartTime)
}

// superseded is the start of the rollout before, where nothing of it was proven; else zero.
func (s *scope) superseded(now time.Time) time.Time {
	was := s.pool.Status.Rollout
	switch {
	case was == nil:
		return time.Time{}
	case isAbout(was, &s.verdict):
		return timeOf(was.SupersededStartTime)
	default: // the first look at this target
		return timeOf(superseded(was, s.pool, now))
	}
}

// next is after which time the reconcile is made again although nothing in the cluster changes.
func (r *Reconciler) next(s *scope) time.Duration {
	var after time.Duration
	if r.isEtcdInTheWay(s) {
		after = etcdInterval
	}
	if after == 0 && s.verdict.Failed == plan.CheckKubeletVersion {
		after = apiServerInterval
	}
	for _, other := range []time.Duration{s.findings.After, s.agentsAfter} {
		if other > 0 {
			after = min(cmp.Or(after, other), other)
		}
	}
	if !s.plan.Next.IsZero() {
		until := max(s.plan.Next.Sub(r.clock.Now()), time.Second)
		if after == 0 || until < after {
			after = until
		}
	}
	return after
}

// isEtcdInTheWay reports whether a member is not healthy, which may keep nodes from moving.
func (*Reconciler) isEtcdInTheWay(s *scope) bool {
	for _, m := range s.etcd {
		if !m.Healthy {
			return true
		}
	}
	return false
}
