package pools

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/machineconfigs"
)

// DefaultRenderedConfigLimit is how many of a pool's newest rendered MachineConfigs are kept,
// whether or not something refers to them: enough to look back over the changes of some days.
const DefaultRenderedConfigLimit = 10

// DefaultSettle is how long a changed MachineConfig is left alone for others that are applied with
// it.
const DefaultSettle = time.Second

// Options are the settings of the reconciler.
type Options struct {
	// RenderedConfigLimit is how many of a pool's newest rendered MachineConfigs are kept, beside
	// all that something refers to; with 0 only those.
	RenderedConfigLimit int
	// ControllerVersion is the version of this program, for the annotation of rendered
	// MachineConfigs.
	ControllerVersion string
	// ReleaseVersion is the version of the cluster's release that this program belongs to; empty on
	// clusters without releases. An OSImageStream of another release is not used.
	ReleaseVersion string
	// Settle is how long a changed MachineConfig is left alone, so that a folder of MachineConfigs
	// that is applied file by file gives one rendered MachineConfig and not one per file. Zero
	// waits for nothing.
	Settle time.Duration
	// Check refuses MachineConfigs of a pool that must not be joined; nil refuses none.
	Check func(pool string, selected []*mcfgv1.MachineConfig) error
	// Backlog notes which pools have to be rendered; nil notes nothing.
	Backlog *Backlog
	// InWork remembers what is worked on, so that what kills the process is found; nil remembers
	// nothing.
	InWork *inwork.Log
}

// Reconciler keeps the rendered configuration and the status of MachineConfigPools.
type Reconciler struct {
	// client reads from the cache, and its objects are shared: reader asks the API server.
	client  client.Client
	reader  client.Reader
	clock   clock.PassiveClock
	events  events.Publisher
	options Options
	renders *renders
	// lacksPins reports whether the cluster lacks the kind PinnedImageSet.
	lacksPins bool
}

// New makes a Reconciler; SetupWithManager gives it what it works with.
func New(options Options) *Reconciler {
	return &Reconciler{
		options: options, clock: clock.RealClock{}, renders: newRenders(machineconfigs.Render, options.InWork),
	}
}

// Reconcile reconciles one pool. Of a pool that is being deleted nothing is left to do:
// its rendered MachineConfigs go with it, by their owner reference.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	defer r.options.Backlog.remove(req.Name)
	pool := &mcfgv1.MachineConfigPool{}
	if err := r.client.Get(ctx, req.NamespacedName, pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.renders.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	s := &scope{pool: pool}
	before := pool.DeepCopy()
	patch := status.NewPatcher(r.client, pool, status.Owning(slices.Concat(rules.Types(), notices, []string{typePinnedImageSetsDegraded})...))
	defer func() {
		if s.isGathered {
			f := s.facts(r.clock.Now())
			f.lacksPins = r.lacksPins
			setStatus(pool, f, r.clock.Now())
			res.RequeueAfter = s.recheck(r.clock.Now())
		}
		rulesOf(pool).Conclude(pool, r.clock.Now(), err)
		version := pool.ResourceVersion
		res, err = patch.Finish(ctx, pool, res, err)
		if pool.ResourceVersion != version { // written: a transition that no one could see is told the next time
			r.report(ctx, before, pool)
		}
	}()
	return ctrl.Result{}, status.Run(ctx, s, r.gather, r.render, r.storeRendered, r.setConfiguration, r.removeRendered, r.removeImages, r.checkSelector)
}

// report tells about the transitions between two states of a pool that have been written.
func (r *Reconciler) report(ctx context.Context, before, after *mcfgv1.MachineConfigPool) {
	was := status.Find(before.GetConditions(), typeRenderDegraded)
	is := status.Find(after.GetConditions(), typeRenderDegraded)
	wasDegraded := was != nil && was.Status == metav1.ConditionTrue
	isDegraded := is != nil && is.Status == metav1.ConditionTrue
	log := ctrl.LoggerFrom(ctx)
	switch {
	case isDegraded && (!wasDegraded || was.Reason != is.Reason || was.Message != is.Message):
		log.Info("Cannot render", "reason", is.Reason, "message", is.Message)
		r.events.Publish(after, events.RenderDegraded(is.Reason, is.Message))
	case wasDegraded && !isDegraded:
		log.Info("Can render again")
		r.events.Publish(after, events.RenderRecovered())
	}
	for _, conditionType := range notices {
		was, is := status.Find(before.GetConditions(), conditionType), status.Find(after.GetConditions(), conditionType)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
			continue
		}
		if is.Status == metav1.ConditionTrue {
			log.Info("The pool's stream needs attention", "condition", conditionType, "reason", is.Reason, "message", is.Message)
			r.events.Publish(after, events.StreamNotice(is.Reason, is.Message))
		}
	}
}
