package builder

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/builds"
	"github.com/layerwright/layerwright/builder/cleanup"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/configs"
	"github.com/layerwright/layerwright/builder/content"
	"github.com/layerwright/layerwright/builder/made"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/making"
	"github.com/layerwright/layerwright/builder/report"
	"github.com/layerwright/layerwright/builder/retention"
	"github.com/layerwright/layerwright/builder/reuse"
	"github.com/layerwright/layerwright/builder/runs"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/builder/wanted/preflight"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

// Defaults of Options.
const (
	// DefaultMaxConcurrentBuilds is how many images are made at once: more than most clusters have
	// pools, since appending takes a few MB of memory and no pod.
	DefaultMaxConcurrentBuilds = 32
	// DefaultMaxConcurrentContent is how many of them have their content built at once, each by a
	// pod for every architecture.
	DefaultMaxConcurrentContent = 4
	// DefaultAttempt is how long one attempt to append may take. What has been uploaded by then
	// stays, so that the next one continues.
	DefaultAttempt = 10 * time.Minute
)

// Options are what a Builder works with.
type Options struct {
	// Namespace has the secrets and ConfigMaps that MachineOSConfigs name.
	Namespace string
	// MaxConcurrentBuilds is how many images are made at once, DefaultMaxConcurrentBuilds where 0.
	MaxConcurrentBuilds int
	// MaxConcurrentContent is how many images have their content built at once,
	// DefaultMaxConcurrentContent where 0.
	MaxConcurrentContent int
	// Connect makes a client for registries that logs in with the credentials.
	Connect func(authn.Keychain) *registry.Client
	// Mirrors say where images are read; nil reads them where their names say.
	Mirrors Mirrors
	// Base reads base images, and Fetcher other files.
	Base    configlayer.BaseImages
	Fetcher configlayer.Fetcher
	// Backends build content, by the imageBuilderType of MachineOSConfigs; where there is none,
	// only configuration can be appended.
	Backends backends.Set
	// Proxy are HTTP_PROXY, HTTPS_PROXY and NO_PROXY for builds, as far as they are set.
	Proxy map[string]string
	// SlowAfter is how long a reconcile of a MachineOSConfig may take before its status says what
	// it waits for; zero is 2 seconds.
	SlowAfter time.Duration
	// PlainHTTP are registries that builds may ask without TLS, as hosts with or without a port.
	PlainHTTP []string
	// PrivateStorage are registries that may point to private addresses though their own are
	// public.
	PrivateStorage []string
	// TrustBundle are certificate authorities that builds trust beside those of the pool's
	// configuration, as PEM.
	TrustBundle []byte
	// Attempt is how long one attempt to append may take, DefaultAttempt where 0.
	Attempt time.Duration
	// Images sees to it that what was built is attested and signed.
	Images *images.Keeper
	// Attester states how content was built, so that it is known again; nil states nothing.
	// BuilderID is what that calls this installation.
	Attester  reuse.Attester
	BuilderID string
	// AcceptBase reports whether builds accept the base image whatever the policy of nodes says.
	AcceptBase bool
	// Metrics may be nil.
	Metrics *metrics.Builds
	// InWork remembers what is worked on, so that what kills the process is found; nil remembers
	// nothing.
	InWork *inwork.Log
	// Waits reports whether images wait for a moment, since pools get their configurations; nil
	// waits for nothing.
	Waits func() bool
}

// Mirrors say where images are read, and which objects of the cluster say so.
type Mirrors interface {
	credentials.Mirrors

	Watched() []client.Object
}

// Parts are the reconcilers, and what they work with. Those who try images need it too.
type Parts struct {
	Checker  *preflight.Checker
	Registry *reuse.Registry
	Maker    *maker.Maker
	Finder   *wanted.Finder
	Remover  *retention.Remover
	Runs     *runs.Runs
	Configs  *configs.Reconciler
	Builds   *builds.Reconciler
}

// Builder has the reconcilers of MachineOSConfigs and of MachineOSBuilds.
type Builder struct {
	options Options
	parts   Parts
}

// New makes a Builder; SetupWithManager gives it what it works with.
func New(options Options) *Builder {
	options.MaxConcurrentBuilds = cmp.Or(options.MaxConcurrentBuilds, DefaultMaxConcurrentBuilds)
	options.MaxConcurrentContent = cmp.Or(options.MaxConcurrentContent, DefaultMaxConcurrentContent)
	options.Attempt = cmp.Or(options.Attempt, DefaultAttempt)
	return &Builder{options: options}
}

func (b *Builder) validate() error {
	switch {
	case b.options.Namespace == "":
		return errors.New("the namespace of secrets and ConfigMaps is not known")
	case b.options.MaxConcurrentBuilds < 0 || b.options.MaxConcurrentContent < 0:
		return errors.New("the number of concurrent builds must not be negative")
	case b.options.Connect == nil || b.options.Base == nil || b.options.Fetcher == nil || b.options.Images == nil:
		return errors.New("something that the builder works with was left out")
	}
	return nil
}

// SetupWithManager gives the reconcilers the manager's clients, and makes them watch.
func (b *Builder) SetupWithManager(manager ctrl.Manager) error {
	if err := b.validate(); err != nil {
		return fmt.Errorf("setting up the builder: %w", err)
	}
	b.Assemble(manager.GetClient(), manager.GetAPIReader(), clock.RealClock{}, events.NewPublisher(manager.GetEventRecorder("layerwright-builder")))
	var mirrors []client.Object
	if b.options.Mirrors != nil {
		mirrors = b.options.Mirrors.Watched()
	}
	return errors.Join(b.parts.Configs.SetupWithManager(manager, mirrors...), b.parts.Builds.SetupWithManager(manager))
}

// Assemble makes the parts. SetupWithManager does it; a test hands in clients and a clock of its
// own.
func (b *Builder) Assemble(c client.Client, reader client.Reader, now clock.PassiveClock, publisher events.Publisher) {
	o := &b.options
	p := &b.parts
	p.Runs = runs.New(o.MaxConcurrentBuilds)
	p.Checker = preflight.New(preflight.Options{Reader: reader, Namespace: o.Namespace, Connect: o.Connect, Mirrors: o.Mirrors, Indexer: o.Base, Clock: now})
	p.Registry = reuse.New(reuse.Options{MayReuse: o.Images.MayReuse, Attester: o.Attester, BuilderID: o.BuilderID})
	p.Maker = maker.New(maker.Options{
		Layers: configlayer.Sources{Fetcher: o.Fetcher, Base: o.Base}, Pinner: p.Checker, Statements: p.Registry,
		Proxy: o.Proxy, PlainHTTP: o.PlainHTTP, PrivateStorage: o.PrivateStorage, TrustBundle: o.TrustBundle, AcceptBase: o.AcceptBase,
	})
	p.Remover = retention.New(retention.Options{
		Client: c, Reader: reader, Clock: now, Events: publisher, Credentials: p.Checker.Source, Images: o.Images, Count: o.Metrics.Deleted,
	})
	p.Finder = wanted.New(wanted.Options{
		Client: c, Reader: reader, Clock: now, Namespace: o.Namespace, Checker: p.Checker, Registry: p.Registry, InWork: o.InWork,
	})
	p.Builds = builds.New(builds.Options{
		Client: c, Clock: now, Backends: o.Backends, Runs: p.Runs, Limit: o.MaxConcurrentBuilds, MaxConcurrentContent: o.MaxConcurrentContent,
		Attempt: o.Attempt, InWork: o.InWork,
		Report: &report.Reporter{Clock: now, Events: publisher, Metrics: o.Metrics},
		Cleaner: cleanup.New(cleanup.Options{
			Client: c, Clock: now, Events: publisher, Recipes: p.Finder, Backends: o.Backends, Remover: p.Remover, Runs: p.Runs, Metrics: o.Metrics,
		}),
		Imager: making.New(making.Options{
			Reader: reader, Clock: now, Finder: p.Finder, Registry: p.Registry, Maker: p.Maker, Images: o.Images, Metrics: o.Metrics,
			Made: &made.Writer{Client: c, Images: o.Images},
			Content: content.New(content.Options{
				Client: c, Events: publisher, Registry: p.Registry, Maker: p.Maker, Backends: o.Backends, Images: o.Images, Metrics: o.Metrics,
			}),
		}),
	})
	p.Configs = configs.New(configs.Options{
		Client: c, Reader: reader, Clock: now, Events: publisher, Namespace: o.Namespace, Finder: p.Finder, Builds: p.Builds, HasBackend: o.Backends.Has,
		Limit: o.MaxConcurrentBuilds, Running: p.Runs.Names, IsGated: o.Images.IsGated, Enforces: o.AcceptBase,
		SlowAfter: o.SlowAfter, Metrics: o.Metrics, Waits: o.Waits,
	})
}

// Parts are there after SetupWithManager or Assemble.
func (b *Builder) Parts() Parts { return b.parts }

// Base is the OS image that was found last for a MachineOSConfig, with a client that reads it; nil
// where none was found yet.
func (b *Builder) Base(config string) (*recipe.Base, *registry.Client) {
	found := b.parts.Finder.Latest(config)
	if found == nil {
		return nil, nil
	}
	return found.Base, found.Credentials.Pull
}
