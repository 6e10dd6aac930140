//go:build !client

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/jobs"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/builder/poolmirrors"
	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/registry/mirrorsets"
	"github.com/layerwright/layerwright/internal/registry/wire"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/pipelines"
	"github.com/layerwright/layerwright/pipelines/presence"
	"github.com/layerwright/layerwright/trials"
	"github.com/layerwright/layerwright/trials/experiment"
	"github.com/layerwright/layerwright/trust/enforcement"
	"github.com/layerwright/layerwright/trust/sign"
)

// registryPatience is how long a registry may think about a request before it answers. Some move
// large blobs meanwhile.
const registryPatience = 2 * time.Minute

// manifestPatience is how long it may think about a manifest or a list, which it has at hand, and
// blobPatience about another answer to be read. Both are tried three times.
const (
	manifestPatience = 10 * time.Second
	blobPatience     = 15 * time.Second
)

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
		osImages := baseimage.New(baseimage.Options{CacheDir: options.baseImageCacheDir, MaxMemory: baseimage.MaxMemory})
		settings := options.builder(builds, osImages)
		sets, err := mirrorsets.New(manager.GetRESTMapper(), manager.GetCache(), manager.GetAPIReader(), options.namespace)
		if err != nil {
			return err
		}
		settings.Mirrors = poolmirrors.New(sets, manager.GetClient(), manager.GetAPIReader())
		if options.builderImage != "" {
			if settings.Backends, err = options.backends(manager); err != nil {
				return err
			}
			if settings.TrustBundle, err = trustBundle(os.Getenv, os.ReadFile); err != nil {
				return err
			}
		}
		keeper, enforcing := options.images(manager, osImages, &settings)
		settings.Images = keeper
		made := builder.New(settings)
		if err := errors.Join(made.SetupWithManager(manager), keeper.SetupWithManager(manager)); err != nil {
			return err
		}
		if err := options.trials(manager, &settings, made.Parts()).SetupWithManager(manager); err != nil {
			return err
		}
		if enforcing.Trust == nil {
			return nil
		}
		enforcing.Bases = made.Base
		return enforcement.New(enforcing).SetupWithManager(manager)
	}
}

// trials is what tries moves to other streams.
func (o *controllerOptions) trials(manager ctrl.Manager, settings *builder.Options, parts builder.Parts) *trials.Reconciler {
	return trials.New(trials.Options{
		Client: manager.GetClient(), Reader: manager.GetAPIReader(), Clock: clock.RealClock{},
		Events:    events.NewPublisher(manager.GetEventRecorder("layerwright-builder")),
		Namespace: o.namespace, Finder: parts.Finder, Remover: parts.Remover, InWork: o.inWork,
		Experiment: experiment.Options{
			Client: manager.GetClient(), Base: settings.Base, Checker: parts.Checker, Registry: parts.Registry, Maker: parts.Maker, Backends: settings.Backends,
		},
	})
}

// images is what attests, signs and verifies images, and what makes nodes insist on signatures,
// where that is wanted.
func (o *controllerOptions) images(
	manager ctrl.Manager, osImages *baseimage.Loader, settings *builder.Options,
) (*images.Keeper, enforcement.Options) {
	policy := o.signing.policy(o.namespace, manager)
	publisher := events.NewPublisher(manager.GetEventRecorder("layerwright-builder"))
	keeping := images.Options{
		Client: manager.GetClient(), Reader: manager.GetAPIReader(), Clock: clock.RealClock{}, Events: publisher,
		Credentials: &credentials.Source{Reader: manager.GetAPIReader(), Namespace: o.namespace, Connect: settings.Connect, Mirrors: settings.Mirrors},
		TrustPolicy: policy, BuilderID: o.signing.builderID, Begin: o.inWork.Note, Metrics: settings.Metrics,
	}
	enforcing := enforcement.Options{
		Client: manager.GetClient(), Reader: manager.GetAPIReader(), Clock: clock.RealClock{}, Events: publisher,
		TrustPolicy: policy, Files: settings.Base,
	}
	if keys := o.signing.keys(o.namespace, manager); keys != nil {
		signer := sign.NewSigner(keys)
		keeping.Signer, keeping.OwnKeys, keeping.Attester = signer, keys, signer
		keeping.Inputs = order.InputsOf
		keeping.SBOMs = sbom.New(osImages, version.Current().Version, clock.RealClock{})
		settings.Attester, settings.BuilderID = signer, o.signing.builderID
		if o.signing.enforce {
			settings.AcceptBase, enforcing.Trust = true, keys
		}
	}
	return images.New(keeping), enforcing
}

// backends are what builds content, by the imageBuilderType of MachineOSConfigs.
func (o *controllerOptions) backends(manager ctrl.Manager) (map[mcfgv1.MachineOSImageBuilderType]backends.Backend, error) {
	core, err := corev1client.NewForConfigAndClient(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client for the logs of builds: %w", err)
	}
	logs, userNamespaces := pods.NewLogs(core), pods.UserNamespaces(o.builderUserNamespaces)
	asJobs, err := jobs.New(jobs.Options{
		Namespace: o.namespace, Image: o.builderImage, PriorityClass: o.builderPriorityClass, UserNamespaces: userNamespaces, Logs: logs,
	}, manager.GetClient(), manager.GetAPIReader())
	if err != nil {
		return nil, err
	}
	all := map[mcfgv1.MachineOSImageBuilderType]backends.Backend{mcfgv1.JobBuilder: asJobs}
	if !o.pipelines {
		return all, nil
	}
	tekton := newTekton(manager, o.namespace, pods.Component)
	asRuns, err := pipelines.New(pipelines.Options{
		Namespace: o.namespace, Image: o.builderImage, PriorityClass: o.builderPriorityClass, UserNamespaces: userNamespaces, Logs: logs,
	}, manager.GetClient(), manager.GetAPIReader(), tekton)
	if err != nil {
		return nil, err
	}
	all[mcfgv1.PipelineBuilder] = asRuns
	return all, manager.Add(tekton)
}

// newTekton watches Tekton's objects of one component.
func newTekton(manager ctrl.Manager, namespace, component string) *presence.Tekton {
	return presence.New(manager.GetConfig(), manager.GetScheme(), func() (meta.RESTMapper, error) {
		return apiutil.NewDynamicRESTMapper(manager.GetConfig(), manager.GetHTTPClient()) // a new one, which has forgotten what was there before
	}, namespace, component)
}

// trustBundleEnv is the variable that Go's programs are told their certificate authorities with.
const trustBundleEnv = "SSL_CERT_FILE"

// trustBundle are the certificate authorities that this process was given, for builds: they talk to
// the same registries.
func trustBundle(getenv func(string) string, readFile func(string) ([]byte, error)) ([]byte, error) {
	file := getenv(trustBundleEnv)
	if file == "" {
		return nil, nil
	}
	bundle, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("$%s: %w", trustBundleEnv, err)
	}
	return bundle, nil
}

// proxy are the settings that builds reach registries and package servers with, as this process
// does.
func proxy(getenv func(string) string) map[string]string {
	set := map[string]string{}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if value := cmp.Or(getenv(name), getenv(strings.ToLower(name))); value != "" {
			set[name] = value
		}
	}
	return set
}

// registryTransport is what requests to registries go through. What writes is refused when the
// Lease is lost.
func (o *controllerOptions) registryTransport() http.RoundTripper {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if own, isOwn := ggcr.DefaultTransport.(*http.Transport); isOwn {
		transport = own.Clone()
	}
	transport.ResponseHeaderTimeout, transport.DialContext = registryPatience, wire.DialContext
	quick, reading := transport.Clone(), transport.Clone()
	quick.ResponseHeaderTimeout, reading.ResponseHeaderTimeout = manifestPatience, blobPatience
	return o.guard.Registry(o.registries.Wrap(&byPatience{quick: quick, reading: reading, patient: transport}))
}

// byPatience gives up early on requests that read, and earlier on those that a registry answers
// from memory, for manifests and tags.
type byPatience struct{ quick, reading, patient http.RoundTripper }

// RoundTrip makes a request.
func (b *byPatience) RoundTrip(r *http.Request) (*http.Response, error) {
	switch reads := r.Method == http.MethodGet || r.Method == http.MethodHead; {
	case reads && (strings.Contains(r.URL.Path, "/manifests/") || strings.HasSuffix(r.URL.Path, "/tags/list") || r.URL.Path == "/v2/"):
		return b.quick.RoundTrip(r)
	case reads:
		return b.reading.RoundTrip(r)
	}
	return b.patient.RoundTrip(r)
}

func (o *controllerOptions) registryClient(keychain authn.Keychain, transport http.RoundTripper) *registry.Client {
	return registry.New(registry.Options{
		Keychain: keychain, Transport: transport, Limits: o.limits, PlainHTTP: o.plainHTTPRegistries,
		Pointers: wire.Pointers{PrivateStorage: o.privateStorageRegistries}, Unreachable: logUnreachable,
	})
}

// logUnreachable says to who may read logs why a registry can't be reached.
func logUnreachable(registry string, err error) {
	ctrl.Log.WithName("registries").Info("Registry can't be reached", "registry", registry, "reason", fault.Message(err))
}

// builder are the settings of what makes images.
func (o *controllerOptions) builder(builds *metrics.Builds, osImages *baseimage.Loader) builder.Options {
	transport := o.registryTransport()
	return builder.Options{
		Namespace:           o.namespace,
		MaxConcurrentBuilds: o.maxConcurrentBuilds, MaxConcurrentContent: o.maxConcurrentContent,
		Connect: func(keychain authn.Keychain) *registry.Client {
			return o.registryClient(keychain, transport)
		},
		Base:    osImages,
		Fetcher: remote.New(remote.Options{Transport: fileTransport()}),
		Proxy:   proxy(os.Getenv), PlainHTTP: o.plainHTTPRegistries, PrivateStorage: o.privateStorageRegistries,
		Metrics: builds,
		InWork:  o.inWork,
		Waits:   o.backlog.IsLong,
	}
}
