package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/layerwright/layerwright/builder"
	"github.com/layerwright/layerwright/builder/baseimage"
	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/registry"
)

// registryPatience is how long a registry may think about a request before it answers. Some move large blobs meanwhile.
const registryPatience = 2 * time.Minute

// addBuilder adds what makes images.
func addBuilder(options *controllerOptions) part {
	return func(manager ctrl.Manager) error {
		builds := metrics.NewBuilds()
		err := ctrlmetrics.Registry.Register(builds)
		var registered prometheus.AlreadyRegisteredError
		if errors.As(err, &registered) { // another manager in this process
			builds, _ = registered.ExistingCollector.(*metrics.Builds)
		} else if err != nil {
			return fmt.Errorf("registering the metrics of builds: %w", err)
		}
		return builder.New(options.builder(builds)).SetupWithManager(manager)
	}
}

// builder are the settings of what makes images.
func (o *controllerOptions) builder(builds *metrics.Builds) builder.Options {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if own, isOwn := ggcr.DefaultTransport.(*http.Transport); isOwn {
		transport = own.Clone()
	}
	transport.ResponseHeaderTimeout = registryPatience
	limits := &registry.RateLimits{}
	return builder.Options{
		Namespace:           o.namespace,
		MaxConcurrentBuilds: o.maxConcurrentBuilds,
		Connect: func(keychain authn.Keychain) *registry.Client {
			return registry.New(registry.Options{Keychain: keychain, Transport: transport, Limits: limits})
		},
		Base:    baseimage.New(baseimage.Options{CacheDir: o.baseImageCacheDir}),
		Fetcher: remote.New(remote.Options{}),
		Metrics: builds,
	}
}
