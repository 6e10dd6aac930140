package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/agent/wanted"
	"github.com/layerwright/layerwright/rollout/host"
)

// policyRetry is after how long it is looked again whether a host has a signature policy. The next
// configuration of the pool brings it, as a rule, and is staged at once.
const policyRetry = 10 * time.Second

// errTargetChanged ends the pull of an image that the Node wants no longer.
var errTargetChanged = errors.New("the Node asks for something else")

// pullWhileRequested pulls, and gives up without an error when the Node wants something else: a
// registry that hangs must not keep the node from what comes next.
func (a *Agent) pullWhileRequested(ctx context.Context, s *state, pull func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		for isAsked := true; isAsked; {
			isAsked = a.stillRequested(ctx, s)
		}
		cancel(errTargetChanged)
	})
	err := pull(ctx)
	isOver := errors.Is(context.Cause(ctx), errTargetChanged)
	cancel(nil)
	listening.Wait()
	if isOver {
		return nil
	}
	return err
}

// stillRequested waits until the Node's annotations change, and reports whether they still want the
// same. It returns false as well when ctx ends.
func (a *Agent) stillRequested(ctx context.Context, s *state) bool {
	select {
	case <-ctx.Done():
		return false
	case <-a.annotationEvents:
	}
	n := &corev1.Node{}
	err := wait.PollUntilContextCancel(ctx, firstRetry, true, func(ctx context.Context) (bool, error) {
		return a.reader.Get(ctx, client.ObjectKey{Name: a.options.Node}, n) == nil, nil
	})
	asked := readWire(n.Annotations)
	return err == nil && asked.stage == s.stage && asked.desired == s.desired
}

// stage pulls and stages an image, with what the host's programs need for it.
func (a *Agent) stage(ctx context.Context, s *state, h host.Host, image mcfgv1.ImageDigestFormat) error {
	pool, err := a.wanted().Pool(ctx)
	if err != nil {
		return err
	}
	config := s.desired.Config
	if s.desired == s.current && pool != nil { // staged ahead, for what the pool will have
		config = pool.Spec.Configuration.Name
	}
	var cfg *wanted.Config
	if config != "" {
		if cfg, err = a.wanted().Config(ctx, config); err != nil {
			return err
		}
	}
	if err := a.checkHost(ctx, s, h, cfg); err != nil {
		return err
	}
	trust := host.TrustSignature
	if cfg != nil {
		if cfg.Image.Digest() == image.Digest() {
			trust = host.TrustDigest
		}
		if err := a.files.InstallTemporaryPolicy(cfg.Content); err != nil {
			return err
		}
	}
	if trust == host.TrustSignature {
		if err := a.checkPolicy(image); err != nil {
			return err
		}
	}
	if err := a.sayOfHost(ctx, s, suitable(s)); err != nil {
		return err
	}
	secret, err := a.wanted().PullSecret(ctx, pool)
	if err != nil {
		return err
	}
	if err := a.files.GivePullSecret(secret); err != nil {
		return err
	}
	j := s.journal
	j.Staging = image
	if err := a.journal.write(j); err != nil {
		return err
	}
	return a.stageLocked(ctx, s, h, image, trust)
}

// checkHost finds out, before an image is pulled, whether the host can take it with a
// configuration, which may be nil.
func (a *Agent) checkHost(ctx context.Context, s *state, h host.KernelArguments, to *wanted.Config) error {
	if err := s.host.CheckStaging(); err != nil {
		return err
	}
	if err := host.CheckEtc(a.options.Root); err != nil {
		return err
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

// slowPull is the image whose pulls took too long, and how many were ended since the agent started.
type slowPull struct {
	image mcfgv1.ImageDigestFormat
	times int
}

func (p *slowPull) patience(image mcfgv1.ImageDigestFormat) time.Duration {
	if p.image != image {
		return stagePatience
	}
	return stagePatience << min(p.times, maxLonger)
}

func (p *slowPull) ended(image mcfgv1.ImageDigestFormat) {
	if p.image != image {
		*p = slowPull{image: image}
	}
	p.times++
}
