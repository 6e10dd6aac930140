package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/rollout/host"
)

// Options are the settings of an agent.
type Options struct {
	// Node is the name of the Node that the agent runs on.
	Node string
	// Journal is the file that outlives the agent and reboots, on the host's disk.
	Journal string
	// BootID reads what Linux calls this boot.
	BootID func() (string, error)
	// Detect finds out what manages the host.
	Detect func(ctx context.Context, mode host.Mode) (host.Host, error)
}

// Agent brings one host to what its Node asks for.
type Agent struct {
	options Options
	journal journalFile
	clock   clock.PassiveClock
	client  client.Client
	reader  client.Reader // past the cache
}

// New makes an agent; SetupWithManager gives it what it works with.
func New(options Options) *Agent {
	return &Agent{options: options, journal: journalFile{options.Journal}, clock: clock.RealClock{}}
}

// Reconcile makes one step, and comes back at once where another may follow.
func (a *Agent) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	n := &corev1.Node{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: a.options.Node}, n); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s, h, err := a.observe(ctx, n)
	if err != nil {
		return status.Result(ctrl.Result{}, a.fail(ctx, n, s, err))
	}
	do := next(s)
	log := ctrl.LoggerFrom(ctx).WithValues("step", do.action, "because", do.reason)
	if do.action == actionNone {
		log.V(4).Info("Nothing to do")
		return ctrl.Result{}, nil
	}
	log.Info("Doing a step", "image", do.image)
	if err := a.do(ctx, n, s, h, do); err != nil {
		return status.Result(ctrl.Result{}, a.fail(ctx, n, s, err))
	}
	if do.action == actionReboot {
		return ctrl.Result{}, nil // what follows is another boot
	}
	return ctrl.Result{RequeueAfter: 1}, nil
}

// observe looks at everything that a step follows from. Of a failure the state has what the Node says.
func (a *Agent) observe(ctx context.Context, n *corev1.Node) (*state, host.Host, error) {
	s := &state{wire: readWire(n.Annotations)}
	mode, err := a.mode(ctx)
	if err != nil {
		return s, nil, err
	}
	h, err := a.options.Detect(ctx, mode)
	if err != nil {
		return s, nil, err
	}
	if s.host, err = h.Status(ctx); err != nil {
		return s, nil, err
	}
	if s.bootID, err = a.options.BootID(); err != nil {
		return s, nil, fmt.Errorf("reading the boot's ID: %w", err)
	}
	if s.journal, err = a.journal.read(); err != nil {
		return s, nil, err
	}
	if s.desired.Config == "" {
		return s, h, nil
	}
	wanted, err := a.config(ctx, s.desired.Config)
	if err != nil {
		return s, nil, err
	}
	s.base = mcfgv1.ImageDigestFormat(wanted.Spec.OSImageURL)
	if s.desired.Config != s.current.Config {
		add, remove, err := a.kernelArguments(ctx, s, wanted)
		if err != nil {
			return s, nil, err
		}
		s.arguments = len(add)+len(remove) > 0
	}
	return s, h, nil
}

// mode is what the node's pool says of how images get onto nodes.
func (a *Agent) mode(ctx context.Context) (host.Mode, error) {
	report, pool := &mcfgv1.MachineConfigNode{}, &mcfgv1.MachineConfigPool{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: a.options.Node}, report); err != nil {
		return host.ModeAuto, client.IgnoreNotFound(err)
	}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: report.Spec.Pool.Name}, pool); err != nil {
		return host.ModeAuto, client.IgnoreNotFound(err)
	}
	switch pool.Spec.DeployMode {
	case mcfgv1.DeployModeBootc:
		return host.ModeBootc, nil
	case mcfgv1.DeployModeImage:
		return host.ModeRPMOSTree, nil
	default:
		return host.ModeAuto, nil
	}
}

func (a *Agent) config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	mc := &mcfgv1.MachineConfig{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil {
		return nil, fmt.Errorf("reading MachineConfig %q: %w", name, err)
	}
	return mc, nil
}

// kernelArguments are those that the desired configuration has and the current one does not, and the
// other way round. Arguments of the host that no configuration names are left alone.
func (a *Agent) kernelArguments(ctx context.Context, s *state, wanted *mcfgv1.MachineConfig) (add, remove []string, err error) {
	var had []string
	if s.current.Config != "" {
		current, err := a.config(ctx, s.current.Config)
		if client.IgnoreNotFound(err) != nil {
			return nil, nil, err
		}
		if err == nil {
			had = current.Spec.KernelArguments
		}
	}
	return without(wanted.Spec.KernelArguments, had), without(had, wanted.Spec.KernelArguments), nil
}

// without is what of one list the other does not have.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(a string) bool { return slices.Contains(other, a) })
}

// do does a step. What is written to the Node comes last: by it others know that the step is done.
func (a *Agent) do(ctx context.Context, n *corev1.Node, s *state, h host.Host, do step) error {
	switch do.action {
	case actionStage:
		if err := h.Stage(ctx, do.image); err != nil {
			return errors.Join(err, a.tell(ctx, s, stagingFailed(err)))
		}
		return nil
	case actionUnstage:
		if err := h.Unstage(ctx, do.image); err != nil {
			return err
		}
	case actionPrepare:
		if err := a.prepare(ctx, s, h); err != nil {
			return err
		}
	case actionReboot:
		return h.Reboot(ctx, do.reason)
	case actionFail:
		if s.desired != s.current {
			if err := a.journal.write(Journal{Target: s.desired, BootID: s.journal.BootID, Failed: do.reason}); err != nil {
				return err
			}
		}
	case actionRetry:
		return a.journal.write(Journal{})
	default:
	}
	return a.write(ctx, n, s, do)
}

// prepare does what belongs to the next boot, and writes down what it is for.
func (a *Agent) prepare(ctx context.Context, s *state, h host.Host) error {
	if s.arguments {
		wanted, err := a.config(ctx, s.desired.Config)
		if err != nil {
			return err
		}
		add, remove, err := a.kernelArguments(ctx, s, wanted)
		if err != nil {
			return err
		}
		if err := h.SetKernelArguments(ctx, add, remove); err != nil {
			return err
		}
	}
	return a.journal.write(Journal{Target: s.desired, BootID: s.bootID})
}

// write says on the Node, and then in its MachineConfigNode, that a step was done.
func (a *Agent) write(ctx context.Context, n *corev1.Node, s *state, done step) error {
	before := n.DeepCopy()
	annotate(n, s, done)
	if err := a.patch(ctx, n, before); err != nil {
		return err
	}
	s.wire = readWire(n.Annotations)
	return a.tell(ctx, s, conditionsOf(s, done))
}

func (a *Agent) patch(ctx context.Context, n, before *corev1.Node) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(a.client.Patch(ctx, n, patch)); err != nil {
		return fmt.Errorf("patching Node %q: %w", n.Name, err)
	}
	return nil
}

// annotate writes a step that was done into the annotations of the Node.
func annotate(n *corev1.Node, s *state, done step) {
	set := func(key, value string) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value) }
	switch done.action {
	case actionIntroduce:
		set(mcfgv1.AnnotationStagedImage, s.staged)
		if s.state == "" {
			set(mcfgv1.AnnotationState, mcfgv1.NodeStateDone)
		}
	case actionUnstage:
		set(mcfgv1.AnnotationStagedImage, "")
	case actionReport:
		set(mcfgv1.AnnotationStagedImage, string(done.image))
	case actionDrain:
		set(mcfgv1.AnnotationStagedImage, string(done.image))
		set(mcfgv1.AnnotationState, mcfgv1.NodeStateWorking)
		set(mcfgv1.AnnotationReason, "")
		set(mcfgv1.AnnotationDesiredDrain, mcfgv1.DrainPrefix+s.drainID())
	case actionPrepare:
		set(mcfgv1.AnnotationState, mcfgv1.NodeStateRebooting)
	case actionArrive:
		set(mcfgv1.AnnotationCurrentConfig, s.desired.Config)
		set(mcfgv1.AnnotationCurrentImage, s.desired.Image)
		if s.desired.Image == "" {
			delete(n.Annotations, mcfgv1.AnnotationCurrentImage)
		}
		set(mcfgv1.AnnotationStagedImage, "")
		uncordon(n, s)
		set(mcfgv1.AnnotationState, mcfgv1.NodeStateDone)
		set(mcfgv1.AnnotationReason, "")
	case actionFail:
		uncordon(n, s)
		set(mcfgv1.AnnotationState, mcfgv1.NodeStateDegraded)
		set(mcfgv1.AnnotationReason, done.reason)
	default:
	}
}

// uncordon asks for the end of a drain, if one was asked for.
func uncordon(n *corev1.Node, s *state) {
	if id, isDrain := strings.CutPrefix(s.desiredDrain, mcfgv1.DrainPrefix); isDrain {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationDesiredDrain, mcfgv1.UncordonPrefix+id)
	}
}

// fail says on the Node that a person has to change the host. All other errors are tried again.
func (a *Agent) fail(ctx context.Context, n *corev1.Node, s *state, err error) error {
	if !fault.IsTerminal(err) || s.state == mcfgv1.NodeStateDegraded && s.reason == fault.Message(err) {
		return err
	}
	return errors.Join(err, a.write(ctx, n, s, step{action: actionFail, reason: fault.Message(err)}))
}
