package clustertest

import (
	"context"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// As is a configuration with the rights of another user.
func As(config *rest.Config, user string) *rest.Config {
	limited := rest.CopyConfig(config)
	limited.Impersonate = rest.ImpersonationConfig{UserName: user}
	return limited
}

// Manager makes a manager that logs and serves nothing. A process may have several, one after the
// other.
func Manager(tb testing.TB, config *rest.Config, scheme *runtime.Scheme, caches cache.Options) ctrl.Manager { //nolint:ireturn // that is how controller-runtime has it
	tb.Helper()
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}, Cache: caches,
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		tb.Fatalf("making a manager: %v", err)
	}
	return manager
}

// Run starts something, such as a manager, and returns what ends it and waits for its end.
func Run(tb testing.TB, start func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(tb.Context()), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- start(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("it ended with: %v", err)
		}
	})
}
