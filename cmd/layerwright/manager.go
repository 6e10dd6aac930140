//go:build !client

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/builder/jobs"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/testjobs"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/pipelines"
	"github.com/layerwright/layerwright/pools"
	"github.com/layerwright/layerwright/rollout/bootimages"
	"github.com/layerwright/layerwright/rollout/pullsecrets"
	streamcontroller "github.com/layerwright/layerwright/streams/controller"
)

// leaseDuration is how long no one else takes the Lease after it was renewed, and how long this
// process writes without having renewed it.
const leaseDuration = 15 * time.Second

// part adds one thing to the manager; a reconciler's SetupWithManager method is one.
type part func(ctrl.Manager) error

// controllerParts is what the controller sub-command runs: a new reconciler is one line here (and
// its API types one in newScheme).
func controllerParts(options *controllerOptions) []part {
	return append(serverParts(),
		streamcontroller.New(options.streams()).SetupWithManager,
		pools.New(options.pools()).SetupWithManager,
		pools.NewUpgrades(version.Current().Version).SetupWithManager,
		pools.NewNodeLabels().SetupWithManager,
		pools.NewPolicies(options.policies()).SetupWithManager,
		addPoolMetrics,
		addStateMetrics,
		func(ctrl.Manager) error { return register("the metrics of registries", options.registries) },
		addBuilder(options),
		addVerifier(options),
		addRollout(options),
		addBootImages(options),
	)
}

// policies are the names of the admission policies that the manifests have for these settings.
func (o *controllerOptions) policies() []string {
	required := names.AdmissionPolicies()
	if o.rollout.agentPullSecrets != "" {
		required = append(required, names.AgentAdmissionPolicies()...)
	}
	if o.pipelines {
		required = append(required, names.TektonAdmissionPolicies()...)
	}
	return required
}

// serverParts are what the process needs around its reconcilers.
func serverParts() []part {
	return []part{
		addBuildInfo,
		command.AddProbes,
	}
}

// newScheme knows the kinds that the parts read and write, and no others: client-go's own scheme
// costs memory for all of them.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(
		admissionv1.AddToScheme,
		corev1.AddToScheme,
		batchv1.AddToScheme,
		policyv1.AddToScheme,
		pipelines.AddToScheme,
		rbacv1.AddToScheme,
		mcfgv1.AddToScheme,
		mcfgv1alpha1.AddToScheme,
		operatorv1.AddToScheme,
	)
	return scheme, kinds.AddToScheme(scheme)
}

// cacheOptions keep what no one reads out of memory: who wrote which field of every object, of
// Nodes the list of the container images that they hold, which is most of a Node, of
// MachineConfigs their content, which the API server is asked for, and all but the version of
// ConfigMaps.
//
// ConfigMaps are those of one namespace, Jobs and pods those of builds and of verifications in it,
// admission policies Layerwright's own.
func cacheOptions(options *controllerOptions) cache.Options {
	strip := cache.TransformStripManagedFields()
	byObject := jobs.CacheOptions(options.namespace, testjobs.Component)
	byObject[&corev1.ConfigMap{}] = cache.ByObject{Namespaces: map[string]cache.Config{options.namespace: {}}}
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{"app.kubernetes.io/name": "layerwright", "app.kubernetes.io/component": "policy"})}
	byObject[&admissionv1.ValidatingAdmissionPolicy{}], byObject[&admissionv1.ValidatingAdmissionPolicyBinding{}] = ours, ours
	if role := options.rollout.agentPullSecrets; role != "" {
		byObject[&rbacv1.Role{}] = pullsecrets.CacheOptions(options.namespace, role)
	}
	return cache.Options{
		ByObject: byObject,
		DefaultTransform: func(object any) (any, error) {
			switch o := object.(type) {
			case *corev1.Node:
				o.Status.Images = nil
			case *mcfgv1.MachineConfig:
				machineconfigs.Trim(o)
			case *metav1.PartialObjectMetadata:
				trimMetadata(o)
			}
			object, err := bootimages.Strip(object)
			if err != nil {
				return nil, err
			}
			return strip(object)
		},
	}
}

// trimMetadata leaves of a ConfigMap which one it is: its version says that it has changed. Whoever
// may write ConfigMaps would otherwise fill our memory with their annotations.
func trimMetadata(o *metav1.PartialObjectMetadata) {
	if o.Kind == "ConfigMap" {
		o.Labels, o.Annotations, o.OwnerReferences, o.Finalizers = nil, nil, nil, nil
	}
}

// runController runs the parts until ctx ends. It returns nil after an orderly stop, and an error
// when the cluster cannot be reached, the Lease is lost, or a part fails.
func runController(ctx context.Context, config *rest.Config, options *controllerOptions, parts ...part) error {
	logger := ctrl.LoggerFrom(ctx)
	info := version.Current()
	logger.Info("Starting Layerwright", "version", info.Version, "revision", info.Revision, "goVersion", info.GoVersion)

	if err := command.CheckAPI(ctx, config); err != nil {
		return err
	}
	manager, err := newManager(ctx, config, options)
	if err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	for _, add := range parts {
		if err := add(manager); err != nil {
			return fmt.Errorf("setting up the controller: %w", err)
		}
	}
	if err := manager.Start(ctx); err != nil {
		return fmt.Errorf("running the controller: %w", err)
	}
	logger.Info("Stopped")
	return nil
}

func newManager(ctx context.Context, config *rest.Config, options *controllerOptions) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	config = rest.CopyConfig(config)
	config.Wrap(options.guard.API)
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions(options),
		Logger:                        ctrl.LoggerFrom(ctx),
		LeaderElection:                options.leaderElect,
		LeaderElectionID:              names.ControllerLease,
		LeaderElectionNamespace:       options.leaderElectionNamespace,
		LeaseDuration:                 new(leaseDuration),
		LeaderElectionReleaseOnCancel: true, // safe: main exits as soon as Start returns
		HealthProbeBindAddress:        options.healthProbeBindAddress,
		GracefulShutdownTimeout:       &options.gracefulShutdownTimeout,
		Metrics: metricsserver.Options{
			BindAddress:   options.metricsBindAddress,
			SecureServing: true,
			CertDir:       options.metricsCertDir,
			CertName:      metricsCertFile,
			KeyName:       metricsKeyFile,
			FilterProvider: func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
				return metrics.Readers(config, client, clock.RealClock{})
			},
		},
	})
}

// addBuildInfo registers layerwright_build_info once per process.
func addBuildInfo(ctrl.Manager) error {
	return register("the build info metric", metrics.NewBuildInfo(version.Current()))
}

// addPoolMetrics registers what is scraped of pools, from the manager's cache.
func addPoolMetrics(manager ctrl.Manager) error {
	c := manager.GetClient()
	list := func(ctx context.Context) ([]mcfgv1.MachineConfigPool, error) {
		var pools mcfgv1.MachineConfigPoolList
		err := c.List(ctx, &pools, client.UnsafeDisableDeepCopy)
		return pools.Items, err
	}
	if err := register("the metrics of pools", metrics.NewPools(list)); err != nil {
		return err
	}
	return register("the metrics of pools' streams", metrics.NewPoolStreams(func(ctx context.Context) ([]metrics.PoolStream, error) {
		all, err := list(ctx)
		if err != nil {
			return nil, err
		}
		streams := &mcfgv1.OSImageStream{}
		err = c.Get(ctx, client.ObjectKey{Name: mcfgv1.OSImageStreamName}, streams)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		return pools.StreamsInUse(all, streams, time.Now()), nil
	}))
}

// register adds metrics to those that the manager serves, once per process.
func register(what string, collector prometheus.Collector) error {
	err := ctrlmetrics.Registry.Register(collector)
	var registered prometheus.AlreadyRegisteredError
	if err != nil && !errors.As(err, &registered) {
		return fmt.Errorf("registering %s: %w", what, err)
	}
	return nil
}
