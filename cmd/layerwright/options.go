//go:build !client

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/builder"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/lease"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/pools"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/streams/source"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// off is the bind address that turns a server off, as in controller-runtime.
const off = "0"

// podNamespaceEnv is the variable that our manifests set from the pod's own namespace.
const podNamespaceEnv = "POD_NAMESPACE"

// defaultNamespace is where Layerwright lives where nothing else is said.
const defaultNamespace = "layerwright"

// Variables that our manifests set from the pod itself.
const (
	nodeNameEnv = "NODE_NAME"
	podNameEnv  = "POD_NAME"
)

// releaseVersionEnv is the variable that OpenShift gives the programs of a release.
const releaseVersionEnv = "RELEASE_VERSION"

// releaseImageEnv is the variable that names the release image where no ClusterVersion does.
const releaseImageEnv = "RELEASE_IMAGE"

// builderImageEnv is the variable that our manifests set to the image of layerwright-builder.
const builderImageEnv = "BUILDER_IMAGE"

// podNamespaceFile is where Kubernetes tells a pod with a service-account token its namespace.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// metricsCertFiles are the names that a kubernetes.io/tls Secret gives certificate and key.
const (
	metricsCertFile = "tls.crt"
	metricsKeyFile  = "tls.key"
)

// controllerOptions are the settings of the controller sub-command.
type controllerOptions struct {
	kubeconfig              string
	leaderElect             bool
	leaderElectionNamespace string
	metricsBindAddress      string
	metricsCertDir          string
	healthProbeBindAddress  string
	gracefulShutdownTimeout time.Duration
	renderedConfigLimit     int
	releaseVersion          string
	releaseImage            string
	streamPullSecret        string
	streamTagInterval       time.Duration
	streamCacheDir          string
	osDistribution          command.Choice
	plainHTTPRegistries     []string
	// privateStorageRegistries have blobs at private addresses, though their own are public.
	privateStorageRegistries []string
	namespace                string
	maxConcurrentBuilds      int
	maxConcurrentContent     int
	baseImageCacheDir        string
	builderImage             string
	builderPriorityClass     string
	builderUserNamespaces    string
	pipelines                bool
	rollout                  rolloutOptions
	bootImages               bootImageOptions
	signing                  signingOptions
	log                      command.LogOptions
	// limits are shared: a registry that asks for a pause gets it from all parts.
	limits *registry.RateLimits
	// registries count what is asked of registries.
	registries *metrics.Registries
	// guard is what all requests go through that write.
	guard *lease.Guard
	// inWork remembers what is worked on across kills of the process.
	inWork *inwork.Log
	// backlog are the pools that have to be rendered.
	backlog *pools.Backlog
}

func defaultControllerOptions() *controllerOptions {
	return &controllerOptions{
		leaderElect:             true,
		metricsBindAddress:      ":8443",
		healthProbeBindAddress:  ":8081",
		gracefulShutdownTimeout: 30 * time.Second,
		renderedConfigLimit:     pools.DefaultRenderedConfigLimit,
		maxConcurrentBuilds:     builder.DefaultMaxConcurrentBuilds,
		maxConcurrentContent:    builder.DefaultMaxConcurrentContent,
		builderUserNamespaces:   string(pods.UserNamespacesAuto),
		streamPullSecret:        names.GlobalPullSecret,
		streamTagInterval:       source.DefaultTagInterval,
		rollout:                 defaultRolloutOptions(),
		bootImages:              defaultBootImageOptions(),
		osDistribution:          distributions(),
		log:                     command.DefaultLogOptions(),
		limits:                  &registry.RateLimits{},
		registries:              metrics.NewRegistries(),
		guard:                   lease.NewGuard(names.ControllerLease, leaseDuration, clock.RealClock{}),
	}
}

func (o *controllerOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"file that says how to reach the cluster; without it $KUBECONFIG, then the pod's service account, then ~/.kube/config")
	flags.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect,
		"work only while holding the Lease; turn it off only where no second instance can run")
	flags.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", o.leaderElectionNamespace,
		"namespace of the Lease (default $POD_NAMESPACE, then the pod's own namespace)")
	flags.StringVar(&o.metricsBindAddress, "metrics-bind-address", o.metricsBindAddress,
		"host:port of the metrics server (TLS, authenticated); 0 turns it off")
	flags.StringVar(&o.metricsCertDir, "metrics-cert-dir", o.metricsCertDir,
		"directory with tls.crt and tls.key for the metrics server; without it the certificate is self-signed and lives as long as the process")
	flags.StringVar(&o.healthProbeBindAddress, "health-probe-bind-address", o.healthProbeBindAddress,
		"host:port of /healthz and /readyz (plain HTTP); 0 turns them off")
	flags.DurationVar(&o.gracefulShutdownTimeout, "graceful-shutdown-timeout", o.gracefulShutdownTimeout,
		"how long running work may take to end once the process is told to stop, such as 45s or 1m; 0 does not wait")
	flags.IntVar(&o.renderedConfigLimit, "rendered-config-limit", o.renderedConfigLimit,
		"how many of a pool's newest rendered MachineConfigs to keep, beside those that a pool, node, build or image refers to; 0 keeps only those")
	flags.StringVar(&o.releaseVersion, "release-version", o.releaseVersion,
		"release of the cluster that this program belongs to; an OSImageStream of another one is not used (default $RELEASE_VERSION, on plain Kubernetes none)")
	flags.StringVar(&o.releaseImage, "release-image", o.releaseImage,
		"release image whose OS images are streams (default $"+releaseImageEnv+", then what the ClusterVersion names, on plain Kubernetes none)")
	flags.StringVar(&o.streamPullSecret, "stream-pull-secret", o.streamPullSecret,
		"secret, as [namespace/]name, that release image and OS images are read with; without it they are read anonymously")
	flags.DurationVar(&o.streamTagInterval, "stream-tag-interval", o.streamTagInterval,
		"how often tags of streams are looked at, give or take a fifth; images by digest are read once")
	flags.StringVar(&o.streamCacheDir, "stream-cache-dir", o.streamCacheDir,
		"directory that keeps what is known of streams' images, some kB; without it they are read again after a restart")
	flags.Var(&o.osDistribution, "os-distribution",
		"whose default stream new clusters begin with: auto, where the release's streams say it, OCP, SCOS or FCOS")
	flags.StringSliceVar(&o.plainHTTPRegistries, plainHTTPFlag, o.plainHTTPRegistries, plainHTTPUsage)
	flags.StringSliceVar(&o.privateStorageRegistries, "private-storage-registry", o.privateStorageRegistries,
		"registry, as host:port or as host for all of its ports, that may lead to private addresses though its own is public; may be repeated")
	flags.StringVar(&o.namespace, "namespace", o.namespace,
		"namespace of the secrets and ConfigMaps that MachineOSConfigs name (default $POD_NAMESPACE, then that of the Lease, then "+defaultNamespace+")")
	flags.IntVar(&o.maxConcurrentBuilds, "max-concurrent-builds", o.maxConcurrentBuilds,
		"how many images are made at once; the others wait for their turn")
	flags.IntVar(&o.maxConcurrentContent, "max-concurrent-content-builds", o.maxConcurrentContent,
		"how many of them have content built at once, each by a pod for every architecture")
	flags.StringVar(&o.baseImageCacheDir, "base-image-cache-dir", o.baseImageCacheDir,
		"directory that keeps what is known of base images, some MB; without it each base image is read again after a restart")
	flags.StringVar(&o.builderImage, "builder-image", o.builderImage,
		"image of layerwright-builder, which builds what MachineConfigs cannot have: Containerfiles, extensions, kernels (default $"+builderImageEnv+"); without it nothing of that is built")
	flags.StringVar(&o.builderPriorityClass, "builder-priority-class", o.builderPriorityClass,
		"priority class of builds (default the cluster's)")
	flags.StringVar(&o.builderUserNamespaces, "builder-user-namespaces", o.builderUserNamespaces,
		"whether builds have user namespaces of their own: Auto, where all nodes that a build can run on offer them, Always or Never")
	flags.BoolVar(&o.pipelines, "pipelines", o.pipelines,
		"build with Tekton's PipelineRuns where a MachineOSConfig asks for it (imageBuilderType Pipeline); see deploy/components/tekton")
	o.rollout.addFlags(flags)
	o.bootImages.addFlags(flags)
	o.signing.addFlags(flags)
	o.log.AddFlags(flags)
}

// pools are the settings of the pools' reconciler.
func (o *controllerOptions) pools() pools.Options {
	return pools.Options{
		RenderedConfigLimit: o.renderedConfigLimit,
		ControllerVersion:   version.Current().Version,
		ReleaseVersion:      o.releaseVersion,
		Settle:              pools.DefaultSettle,
		Check:               signaturepolicy.CheckKept,
		InWork:              o.inWork,
		Backlog:             o.backlog,
	}
}

// complete fills in what the flags left open and refuses what cannot work. Each error names the
// flag.
func (o *controllerOptions) complete(getenv func(string) string, readFile func(string) ([]byte, error)) error {
	if err := checkBindAddress("metrics-bind-address", o.metricsBindAddress); err != nil {
		return err
	}
	if err := checkBindAddress("health-probe-bind-address", o.healthProbeBindAddress); err != nil {
		return err
	}
	if o.gracefulShutdownTimeout < 0 {
		return fmt.Errorf("--graceful-shutdown-timeout %s: must not be negative", o.gracefulShutdownTimeout)
	}
	if o.renderedConfigLimit < 0 {
		return fmt.Errorf("--rendered-config-limit %d: must not be negative", o.renderedConfigLimit)
	}
	if o.maxConcurrentBuilds < 1 {
		return fmt.Errorf("--max-concurrent-builds %d: must be at least 1", o.maxConcurrentBuilds)
	}
	if known := []pods.UserNamespaces{pods.UserNamespacesAuto, pods.UserNamespacesAlways, pods.UserNamespacesNever}; !slices.Contains(
		known, pods.UserNamespaces(o.builderUserNamespaces)) {
		return fmt.Errorf("--builder-user-namespaces %q: must be one of %v", o.builderUserNamespaces, known)
	}
	o.builderImage = cmp.Or(o.builderImage, getenv(builderImageEnv))
	if o.maxConcurrentContent < 1 {
		return fmt.Errorf("--max-concurrent-content-builds %d: must be at least 1", o.maxConcurrentContent)
	}
	if err := o.signing.check(); err != nil {
		return err
	}
	if err := o.rollout.complete(getenv); err != nil {
		return err
	}
	if err := o.bootImages.check(); err != nil {
		return err
	}
	o.releaseVersion = cmp.Or(o.releaseVersion, getenv(releaseVersionEnv))
	o.releaseImage = cmp.Or(o.releaseImage, getenv(releaseImageEnv))
	if err := o.checkStreams(); err != nil {
		return err
	}
	if err := o.checkMetricsCertificate(readFile); err != nil {
		return err
	}
	return o.completeNamespace(getenv, readFile)
}

// checkStreams refuses what no stream can be found with.
func (o *controllerOptions) checkStreams() error {
	if o.releaseImage != "" {
		if wrong := streams.CheckReference(o.releaseImage); wrong != "" {
			return fmt.Errorf("--release-image %q: %s", o.releaseImage, wrong)
		}
	}
	if o.streamTagInterval < shortestTagInterval {
		return fmt.Errorf("--stream-tag-interval %s: must be at least %s, for the sake of the registry", o.streamTagInterval, shortestTagInterval)
	}
	return nil
}

// shortestTagInterval keeps a mistyped unit from becoming a flood of requests.
const shortestTagInterval = 5 * time.Second

// checkMetricsCertificate catches a missing file, for which controller-runtime would silently sign
// its own certificate.
func (o *controllerOptions) checkMetricsCertificate(readFile func(string) ([]byte, error)) error {
	if o.metricsCertDir == "" || o.metricsBindAddress == off {
		return nil
	}
	for _, name := range []string{metricsCertFile, metricsKeyFile} {
		if _, err := readFile(filepath.Join(o.metricsCertDir, name)); err != nil {
			return fmt.Errorf("--metrics-cert-dir: %w", err)
		}
	}
	return nil
}

// completeNamespace finds the namespaces of the Lease, and of secrets and ConfigMaps: as a rule the
// pod's own.
func (o *controllerOptions) completeNamespace(getenv func(string) string, readFile func(string) ([]byte, error)) error {
	own := getenv(podNamespaceEnv)
	if o.leaderElect && o.leaderElectionNamespace == "" && own == "" {
		content, err := readFile(podNamespaceFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reading the pod's namespace: %w", err)
		}
		own = strings.TrimSpace(string(content))
	}
	if o.leaderElect {
		if o.leaderElectionNamespace = cmp.Or(o.leaderElectionNamespace, own); o.leaderElectionNamespace == "" {
			return fmt.Errorf("--leader-election-namespace is needed outside a pod (or %s, or --leader-elect=false)", podNamespaceEnv)
		}
	}
	o.namespace = cmp.Or(o.namespace, own, o.leaderElectionNamespace, defaultNamespace)
	return nil
}

func checkBindAddress(flag, address string) error {
	if address == off {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return fmt.Errorf("--%s %q: must be host:port, :port, or 0 to turn it off", flag, address)
	}
	return nil
}
