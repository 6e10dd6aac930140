//go:build !client

package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// apiTimeout bounds the one question that decides at the start whether the cluster can be worked
// with.
const apiTimeout = 10 * time.Second

// probeTimeout is well below the timeout that deploy/base gives the kubelet's probes, so that the
// kubelet sees our answer.
const probeTimeout = 2 * time.Second

// AddProbes adds /healthz, which only says that the process serves, and /readyz.
func AddProbes(manager ctrl.Manager) error {
	probe, err := newAPIProbe(manager.GetConfig())
	if err != nil {
		return err
	}
	return errors.Join(
		manager.AddHealthzCheck("ping", healthz.Ping),
		manager.AddReadyzCheck("api", probe.ready),
		manager.AddReadyzCheck("caches", cachesReady(manager.GetCache())),
	)
}

// CheckAPI turns an unreachable cluster into one clear error instead of reflectors that retry for
// ever.
func CheckAPI(ctx context.Context, config *rest.Config) error {
	probe, err := newAPIProbe(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return probe.check(ctx)
}

// apiProbe asks the API server for its version: the cheapest request that shows network, TLS and
// credentials to work.
type apiProbe struct {
	host   string
	client rest.Interface
}

func newAPIProbe(config *rest.Config) (*apiProbe, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the API server: %w", err)
	}
	return &apiProbe{host: config.Host, client: client}, nil
}

func (p *apiProbe) check(ctx context.Context) error {
	err := p.client.Get().AbsPath("/version").Do(ctx).Error()
	if err == nil || apierrors.IsForbidden(err) { // forbidden: known to the server, and it answers
		return nil
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err // without the address, which is said once
	}
	return fmt.Errorf("reaching the API server at %s: %w", p.host, err)
}

func (p *apiProbe) ready(request *http.Request) error {
	ctx, cancel := context.WithTimeout(request.Context(), probeTimeout)
	defer cancel()
	return p.check(ctx)
}

func cachesReady(caches cache.Cache) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), probeTimeout)
		defer cancel()
		if !caches.WaitForCacheSync(ctx) {
			return errors.New("caches have not synced")
		}
		return nil
	}
}
