package agent

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/agent/wanted"
	"github.com/layerwright/layerwright/rollout/host"
)

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
	secret, err := a.wanted().PullSecret(ctx, pool)
	if err != nil {
		return err
	}
	if err := a.files.GivePullSecret(secret); err != nil {
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
	j := s.journal
	j.Staging = image
	if err := a.journal.write(j); err != nil {
		return err
	}
	return a.stageLocked(ctx, s, h, image, trust)
}
