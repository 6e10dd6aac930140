package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/rollout/agent/nodestate"
	"github.com/layerwright/layerwright/rollout/agent/wanted"
	"github.com/layerwright/layerwright/rollout/host"
)

const (
	// hostRetry is the time until a host is looked at again that a person has to change: nothing
	// tells of it.
	hostRetry = 5 * time.Minute
	// rebootPatience is how long a host may take to shut down before it is told again, and that is
	// reported.
	rebootPatience = 10 * time.Minute
	// stagePatience and stepPatience bound what the host's programs may take. What a pull that is
	// ended has fetched is removed: the next one of the same image gets twice the time, maxLonger
	// times at most.
	stagePatience = time.Hour
	maxLonger     = 3
	stepPatience  = 10 * time.Minute
)

// Options are the settings of an agent.
type Options struct {
	// Node is the name of the Node that the agent runs on.
	Node string
	// Root is the folder that has the host's root.
	Root string
	// Namespace is that of the secrets that MachineOSConfigs name.
	Namespace string
	// BootID reads what Linux calls this boot.
	BootID func() (string, error)
	// Detect finds out what manages the host.
	Detect func(ctx context.Context, mode host.Mode) (host.Host, error)
	// Systemctl runs systemctl of the host, and returns what it prints.
	Systemctl func(ctx context.Context, args ...string) ([]byte, error)
	// Metrics count; nil counts nothing.
	Metrics *metrics.Agents
}

// Agent brings one host to what its Node asks for.
type Agent struct {
	options Options
	journal journal
	files   *nodestate.Host
	drifts  *watcher
	// finalization keeps an image that is staged from booting before the node's turn.
	finalization host.Finalization
	// hostSaid is what was said last of whether the host can do what it is asked for.
	hostSaid condition
	slow     slowPull
	clock    clock.PassiveClock
	client   client.Client
	reader   client.Reader // past the cache
	events   events.Publisher
	// annotationEvents has something when the Node's annotations have changed since they were read
	// last.
	annotationEvents chan struct{}
}

// journal outlives the agent and reboots.
type journal interface {
	read() (Journal, error)
	write(j Journal) error
}

// New makes an agent; SetupWithManager gives it what it works with.
func New(options Options) *Agent {
	return &Agent{
		options: options, clock: clock.RealClock{},
		journal: journalFile{path.Join(options.Root, nodestate.Folder, "journal.json")},
		files:   nodestate.Open(options.Root), drifts: newWatcher(options.Root), annotationEvents: make(chan struct{}, 1),
		finalization: host.FinalizationIn(options.Root),
	}
}

// Reconcile makes one step, and comes back at once where another may follow.
func (a *Agent) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	select {
	case <-a.annotationEvents: // what is read next has it
	default:
	}
	n := &corev1.Node{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: a.options.Node}, n); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s, h, err := a.observe(ctx, n)
	if err != nil {
		return a.fail(ctx, n, s, err)
	}
	a.options.Metrics.Drifted(len(s.drift))
	do := next(s)
	if do.action != actionStage { // which finds out itself
		if err := a.sayOfHost(ctx, s, suitable(s)); err != nil {
			return status.Result(ctrl.Result{}, err)
		}
	}
	log := ctrl.LoggerFrom(ctx).WithValues("step", do.action, "because", do.reason)
	if do.action == actionNone {
		log.V(4).Info("Nothing to do")
		return ctrl.Result{RequeueAfter: retryOf(s)}, nil
	}
	log.Info("Doing a step", "image", do.image)
	begun := a.clock.Now()
	err = a.do(ctx, n, s, h, do)
	a.options.Metrics.Did(string(do.action), a.clock.Since(begun), err)
	switch {
	case err != nil:
		return a.fail(ctx, n, s, err)
	case do.action == actionReboot: // what follows is another boot, as a rule
		return ctrl.Result{RequeueAfter: rebootPatience}, nil
	default:
		return ctrl.Result{RequeueAfter: 1}, nil
	}
}

// do does a step. What is written to the Node comes last: by it others know that the step is done.
func (a *Agent) do(ctx context.Context, n *corev1.Node, s *state, h host.Host, do step) error {
	patience := stepPatience
	if do.action == actionStage {
		patience = a.slow.patience(do.image)
	}
	bound, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := a.beforeStep(ctx, s, do.action); err != nil {
		return err
	}
	switch do.action {
	case actionStage:
		err := a.pullWhileRequested(bound, s, func(ctx context.Context) error { return a.stage(ctx, s, h, do.image) })
		if errors.Is(bound.Err(), context.DeadlineExceeded) {
			a.slow.ended(do.image)
		}
		return a.told(ctx, s, err, stagingFailed)
	case actionUnstage:
		if err := a.told(ctx, s, a.unstage(bound, s, h, do.image), unstagingFailed); err != nil {
			return err
		}
	case actionLock:
		if err := a.told(ctx, s, a.lock(bound, h), lockingFailed); err != nil {
			return err
		}
		return a.tell(ctx, s, []condition{lockable(s)})
	case actionPrepare:
		if err := a.told(ctx, s, a.prepare(bound, s, h), preparingFailed); err != nil {
			return err
		}
	case actionReboot:
		return a.reboot(bound, s, h, do.reason)
	case actionUndo:
		return a.told(ctx, s, a.undo(bound, s, h), preparingFailed)
	case actionLive:
		return a.doLive(ctx, n, s, h)
	case actionApply:
		if err := a.told(ctx, s, a.apply(s), applyingFailed); err != nil {
			return err
		}
		return a.tell(ctx, s, applied(s))
	case actionFail:
		if s.desired != s.current {
			if err := a.journal.write(Journal{Target: s.desired, Failed: do.reason, Staging: s.journal.Staging}); err != nil {
				return err
			}
		}
	case actionForget:
		return a.journal.write(Journal{})
	default:
	}
	return a.write(ctx, n, s, do)
}

// beforeStep does what several steps begin with.
func (a *Agent) beforeStep(ctx context.Context, s *state, step action) error {
	switch step { //nolint:exhaustive // the others say nothing of what is booted, and of the update themselves
	case actionArrive, actionFail, actionForget, actionUndo:
		return a.files.DisarmRollbackTimer()
	case actionStage, actionLive, actionApply:
		if s.isChanging() && !s.hasFailed() {
			return a.tell(ctx, s, updating(s))
		}
	}
	return nil
}

// retryOf is after how long a node that rests is looked at again; 0 for when something changes. The
// agent does not watch pools.
func retryOf(s *state) time.Duration {
	if s.isAstray() && !s.mayReturn {
		return hostRetry
	}
	return 0
}

// told says in a condition why a step failed, and returns the error. What a host can't do is no
// failure of the step.
func (a *Agent) told(ctx context.Context, s *state, err error, conditions func(error) []condition) error {
	if err == nil || host.IsAboutHost(err) {
		return err
	}
	return errors.Join(err, a.tell(ctx, s, conditions(err)))
}

// prepare does what belongs to the next boot. The journal says first what it is for, so that it can
// be undone wherever it ends, and last that it is done.
func (a *Agent) prepare(ctx context.Context, s *state, h host.Host) error {
	goal := s.goal()
	j := Journal{
		Target: s.desired, Image: goal, BootID: s.bootID, Booted: s.host.Booted.Checkout, Staging: s.journal.Staging,
		Soft: s.journal.Soft && s.isPrepared() && s.journal.Target == s.desired, // also one that has lost what was staged
	}
	if err := a.journal.write(j); err != nil {
		return err
	}
	s.journal = j
	switch {
	case s.bootsNext(goal):
	case s.runs(goal):
		if err := a.unstage(ctx, s, h, s.nextImage()); err != nil {
			return err
		}
	case s.host.Rollback.IsOf(goal):
		if err := h.Rollback(ctx); err != nil {
			return err
		}
	}
	current, desired, err := a.configs(ctx, &s.nodeAnnotations)
	if err != nil {
		return err
	}
	err = a.setKernelArguments(ctx, h, current, desired)
	if errors.Is(err, host.ErrNotStaged) { // the host has all of the image, and pulls no layer
		j.Staging = goal
		if err = a.stage(ctx, s, h, goal); err == nil {
			err = a.setKernelArguments(ctx, h, current, desired)
		}
	}
	if err != nil {
		return err
	}
	changes, _, err := a.changes(current, desired)
	if err != nil {
		return err
	}
	if err := a.files.Apply(changes); err != nil {
		return err
	}
	if err := a.files.RevertLive(s.host.Booted.Checkout); err != nil {
		return err
	}
	if err := a.armRollbackTimer(ctx, s); err != nil {
		return err
	}
	if err := a.unlock(ctx, h); err != nil { // the node's turn has come
		return err
	}
	j.Ready = true
	return a.journal.write(j)
}

// setKernelArguments gives what boots next the arguments of one configuration instead of those of
// another.
func (a *Agent) setKernelArguments(ctx context.Context, h host.KernelArguments, from, to *wanted.Config) error {
	change, err := a.kernelArguments(ctx, h, from, to)
	if err != nil || change.IsEmpty() {
		return err
	}
	return h.SetKernelArguments(ctx, change)
}

// armRollbackTimer has the host roll back by itself when no agent confirms the image that it boots
// next, unless the pool wants failed nodes to stay as they are.
func (a *Agent) armRollbackTimer(ctx context.Context, s *state) error {
	pool, err := a.wanted().Pool(ctx)
	if err != nil || pool == nil || s.isThere() || s.desired == s.current || !pool.Spec.RollsBack() {
		return err
	}
	return a.files.ArmRollbackTimer(nodestate.RollbackTimer{
		Digest: s.goal().Digest(), Before: s.host.Booted.Checkout, After: pool.Spec.RebootPatience(),
	})
}

// undo takes back what was prepared for the next boot. Node state follows in the next reconcile.
func (a *Agent) undo(ctx context.Context, s *state, h host.Host) error {
	if s.journal.Image != "" {
		if err := a.unstage(ctx, s, h, s.journal.Image); err != nil {
			return err
		}
		return a.journal.write(Journal{})
	}
	current, prepared, err := a.configs(ctx, &nodeAnnotations{current: s.current, desired: s.journal.Target})
	if err != nil {
		return err
	}
	if err := a.setKernelArguments(ctx, h, prepared, current); err != nil {
		return err
	}
	return a.journal.write(Journal{Staging: s.journal.Staging})
}

// reboot tells the host to reboot, and says so where it was told long ago. A soft reboot is tried
// once: a host that is still there, or there again with what it had, gets a full one.
func (a *Agent) reboot(ctx context.Context, s *state, h host.Host, why string) error {
	j := s.journal
	waited := a.clock.Since(time.Unix(j.RebootAsked, 0))
	if j.RebootAsked == 0 || waited < 0 { // or the clock was set back
		softly := !j.Soft && s.change() == mcfgv1.NodeChangeSoftReboot
		j.RebootAsked, j.Soft = a.clock.Now().Unix(), j.Soft || softly
		if err := a.journal.write(j); err != nil {
			return err
		}
		if softly {
			err := h.SoftReboot(ctx)
			if err == nil || errors.Is(err, context.Canceled) {
				return err
			}
			ctrl.LoggerFrom(ctx).Error(err, "The host can't soft-reboot, and reboots")
		}
	} else if waited >= rebootPatience {
		if err := a.tell(ctx, s, rebootOverdue(time.Unix(j.RebootAsked, 0))); err != nil {
			return err
		}
	}
	return h.Reboot(ctx, why)
}

// apply gives the host what no image carries.
func (a *Agent) apply(s *state) error {
	if err := a.files.Apply(s.changes); err != nil || !s.policy {
		return err
	}
	return a.files.RemoveTemporaryPolicy(s.desired.Image != "", s.liveFiles)
}

// fail says on the Node that a person has to change something, and looks again later. All other
// errors are tried again soon. A node that has not introduced itself is none with an agent: only
// its MachineConfigNode says so.
func (a *Agent) fail(ctx context.Context, n *corev1.Node, s *state, err error) (ctrl.Result, error) {
	if host.IsAboutHost(err) {
		return a.failHost(ctx, s, err)
	}
	if !fault.IsTerminal(err) {
		return status.Result(ctrl.Result{}, err)
	}
	ctrl.LoggerFrom(ctx).Error(err, "The node can't get what it should have")
	failed := step{action: actionFail, reason: fault.Message(err)}
	var told error
	if s.state == "" {
		told = a.tell(ctx, s, conditionsOf(s, failed))
	} else if !hasSaid(s, failed.reason) {
		told = a.write(ctx, n, s, failed)
	}
	if told != nil {
		return status.Result(ctrl.Result{}, fmt.Errorf("reporting what a person has to change: %w", told))
	}
	return ctrl.Result{RequeueAfter: hostRetry}, nil
}
