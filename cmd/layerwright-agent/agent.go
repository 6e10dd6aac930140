package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/rollout/agent"
	"github.com/layerwright/layerwright/rollout/host"
)

// start runs the agent until ctx ends. It returns nil after an orderly stop.
func start(ctx context.Context, o *options, stderr io.Writer) error {
	config, err := o.restConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	logger := o.log.NewLogger(stderr)
	if err := o.log.Install(logger); err != nil {
		return err
	}
	info := version.Current()
	logger.Info("Starting Layerwright's agent", "node", o.nodeName, "version", info.Version, "revision", info.Revision)
	if err := command.CheckAPI(ctx, config); err != nil {
		return err
	}
	ctx = ctrl.LoggerInto(ctx, logger)
	manager, err := newManager(ctx, config, o)
	if err != nil {
		return fmt.Errorf("setting up the agent: %w", err)
	}
	if err := manager.Start(ctx); err != nil {
		return fmt.Errorf("running the agent: %w", err)
	}
	logger.Info("Stopped")
	return nil
}

// newManager makes a manager that runs the agent, and whose cache has the agent's own Node alone.
func newManager(ctx context.Context, config *rest.Config, o *options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(corev1.AddToScheme, eventsv1.AddToScheme, mcfgv1.AddToScheme, operatorv1.AddToScheme)
	if err := kinds.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cacheOptions(o.nodeName),
		Logger:                 ctrl.LoggerFrom(ctx),
		HealthProbeBindAddress: o.healthProbeBindAddress,
		Metrics:                metricsserver.Options{BindAddress: o.metricsBindAddress},
	})
	if err != nil {
		return nil, err
	}
	counts := metrics.NewAgents()
	err = errors.Join(ctrlmetrics.Registry.Register(counts), ctrlmetrics.Registry.Register(metrics.NewBuildInfo(version.Current())))
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	if err := command.AddProbes(manager); err != nil {
		return nil, err
	}
	run := host.In(o.hostRoot)
	return manager, agent.New(agent.Options{
		Node: o.nodeName, Root: o.hostRoot, Namespace: o.namespace, Metrics: counts,
		BootID:    func() (string, error) { return bootID(o.hostRoot) },
		Systemctl: func(ctx context.Context, args ...string) ([]byte, error) { return run.Run(ctx, "systemctl", args...) },
		Detect:    host.NewDetector(o.hostRoot).Detect,
	}).SetupWithManager(manager)
}

// cacheOptions keep one Node in memory, without what no one reads. Everything else is read when it
// is needed, which is seldom.
func cacheOptions(node string) cache.Options {
	strip := cache.TransformStripManagedFields()
	return cache.Options{
		ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Field: fields.OneTermEqualSelector("metadata.name", node)}},
		DefaultTransform: func(object any) (any, error) {
			if n, isNode := object.(*corev1.Node); isNode {
				n.Status.Images = nil
			}
			return strip(object)
		},
	}
}

// bootIDPath is where Linux tells the ID of a boot.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// bootID is what Linux calls this boot. Where the host's root has no /proc, that of this process
// will do.
func bootID(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, bootIDPath)) //nolint:gosec // the folder is a setting
	if errors.Is(err, os.ErrNotExist) {
		content, err = os.ReadFile(bootIDPath)
	}
	return strings.TrimSpace(string(content)), err
}

func (o *options) restConfig() (*rest.Config, error) {
	if o.kubeconfig == "" {
		return rest.InClusterConfig()
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.kubeconfig}
	loaded, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return loaded, nil
}
