package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/rollout/agent/wanted"
	"github.com/layerwright/layerwright/rollout/host"
)

// policyRetry is after how long it is looked again whether a host has a signature policy. The next
// configuration of the pool brings it, as a rule, and is staged at once.
const policyRetry = 30 * time.Second

// checkHost finds out, before an image is pulled, whether the host can take it with a
// configuration, which may be nil.
func (a *Agent) checkHost(ctx context.Context, s *state, h host.KernelArguments, to *wanted.Config) error {
	if err := s.host.CheckStaging(); err != nil {
		return err
	}
	var at unix.Statfs_t
	if err := unix.Statfs(path.Join(a.options.Root, "etc"), &at); err == nil && at.Flags&unix.ST_RDONLY != 0 {
		return fault.NewTerminal(mcfgv1.ReasonReadOnlyHost, errors.New("its /etc is read-only, so that it would not keep its configuration: "+
			"mount it writable (ostree's prepare-root.conf, etc.transient or composefs), or install another base image"))
	}
	var from *wanted.Config
	if s.current.Config != "" {
		var err error
		if from, err = a.wanted().Config(ctx, s.current.Config); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	change, _, err := a.planArguments(ctx, h, from, to)
	if err != nil || change.IsEmpty() {
		return err
	}
	return h.CheckKernelArguments(ctx, change)
}

// checkPolicy waits for a signature policy that lets the image through.
func (a *Agent) checkPolicy(image mcfgv1.ImageDigestFormat) error {
	policy, err := a.files.SignaturePolicy()
	if err != nil {
		return err
	}
	admits := false
	if policy != nil {
		if admits, err = host.Admits(policy, image); err != nil {
			return err
		}
	}
	if admits {
		return nil
	}
	return fault.NewWaiting(mcfgv1.ReasonWaitingForSignaturePolicy, policyRetry, fmt.Errorf(
		"its policy for signatures does not let image %s through yet: the controller brings one with --enforce-signatures, else give the pool a policy of your own", image.Short()))
}

// failHost says what the host can't do, of the host alone, and looks again later.
func (a *Agent) failHost(ctx context.Context, s *state, err error) (ctrl.Result, error) {
	said := condition{mcfgv1.NodeHostSuitable, no, fault.Reason(err), fault.Message(err)}
	a.hostSaid = said
	if told := a.tell(ctx, s, []condition{said}); told != nil { // again, where no one has made the object yet
		return status.Result(ctrl.Result{}, fmt.Errorf("reporting what the host can't do: %w", told))
	}
	if fault.IsWaiting(err) {
		return status.Result(ctrl.Result{}, err)
	}
	ctrl.LoggerFrom(ctx).Error(err, "The host can't do what it should")
	return ctrl.Result{RequeueAfter: hostRetry}, nil
}

// sayOfHost says whether the host can do what it is asked for, unless that was said.
func (a *Agent) sayOfHost(ctx context.Context, s *state, said condition) error {
	if a.hostSaid == said {
		return nil
	}
	if err := a.tell(ctx, s, []condition{said}); err != nil {
		return err
	}
	a.hostSaid = said
	return nil
}

// suitable is the condition of a host that can do what it is asked for.
func suitable(s *state) condition {
	if s.host.UsrIsUnlocked {
		return condition{
			mcfgv1.NodeHostSuitable, yes, mcfgv1.ReasonUsrUnlocked,
			"someone has made /usr writable (bootc usr-overlay, ostree admin unlock): what was changed there is lost at the next reboot",
		}
	}
	return condition{mcfgv1.NodeHostSuitable, yes, mcfgv1.ReasonAsExpected, ""}
}
