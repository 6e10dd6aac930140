package builder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/registry"
)

// Backend builds the content of images. All three can be repeated: what is there already is left as
// it is, what is gone needs no removing.
type Backend interface {
	// Ensure starts the build, or leaves it running.
	Ensure(ctx context.Context, spec backend.Spec) error
	// Observe says how far it is.
	Observe(ctx context.Context, key backend.Key) (backend.State, error)
	// Remove ends it and removes everything that exists for it.
	Remove(ctx context.Context, key backend.Key) error
}

// Watcher is a Backend whose builds are objects in the cluster: their changes mean that a build is
// to be looked at.
type Watcher interface {
	// Watches are the kinds of the objects.
	Watches() []client.Object
	// BuildOf is the MachineOSBuild that an object is of; empty for those of others.
	BuildOf(object client.Object) string
}

// Notifier is a Backend whose builds are objects that it watches itself.
type Notifier interface {
	// Notify has a function called with every object that changes, and with nil when all builds are
	// to be looked at. It is called once, at the start.
	Notify(changed func(object client.Object))
	// BuildOf is that of Watcher.
	BuildOf(object client.Object) string
}

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

// How many objects are looked at at once: mostly that is waiting for registries and the API server.
const (
	maxConcurrentConfigs = 32
	// sparePasses are those over builds beside the ones that make an image, so that no one waits
	// behind an image for saying that it has begun.
	sparePasses = 16
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
	// Base reads base images, and Fetcher other files.
	Base    maker.BaseImages
	Fetcher configlayer.Fetcher
	// Backends build content, by the imageBuilderType of MachineOSConfigs; where there is none,
	// only configuration can be appended.
	Backends map[mcfgv1.MachineOSImageBuilderType]Backend
	// Proxy are HTTP_PROXY, HTTPS_PROXY and NO_PROXY for builds, as far as they are set.
	Proxy map[string]string
	// Silence is how long a pass over a MachineOSConfig may take before it says what it waits for;
	// zero is 2 seconds.
	Silence time.Duration
	// PlainHTTP are registries that builds may ask without TLS, as hosts with or without a port.
	PlainHTTP []string
	// TrustBundle are certificate authorities that builds trust beside those of the pool's
	// configuration, as PEM.
	TrustBundle []byte
	// Attempt is how long one attempt to append may take, DefaultAttempt where 0.
	Attempt time.Duration
	// Images sees to it that what was built is attested and signed.
	Images *images.Keeper
	// Attester states how content was built, so that it is known again; nil states nothing.
	// BuilderID is what that calls this installation.
	Attester  maker.Attester
	BuilderID string
	// AcceptBase is that builds accept the base image whatever the policy of nodes says.
	AcceptBase bool
	// Metrics may be nil.
	Metrics *metrics.Builds
	// InWork remembers what is worked on, so that what kills the process is found; nil remembers
	// nothing.
	InWork *inwork.Log
}

// Builder has the reconcilers of MachineOSConfigs and MachineOSBuilds.
type Builder struct {
	options Options
	// client reads from the cache, reader asks the API server.
	client client.Client
	reader client.Reader
	clock  clock.PassiveClock
	events events.Publisher

	checker     *preflight.Checker
	maker       *maker.Maker
	inspections *inspections
	runs        *runs
	images      *images.Keeper
}

// New makes a Builder; SetupWithManager gives it what it works with.
func New(options Options) *Builder {
	options.MaxConcurrentBuilds = cmp.Or(options.MaxConcurrentBuilds, DefaultMaxConcurrentBuilds)
	options.MaxConcurrentContent = cmp.Or(options.MaxConcurrentContent, DefaultMaxConcurrentContent)
	options.Attempt = cmp.Or(options.Attempt, DefaultAttempt)
	return &Builder{options: options, clock: clock.RealClock{}, images: options.Images, inspections: newInspections(), runs: newRuns(options.MaxConcurrentBuilds)}
}

// backend is what builds content for a MachineOSConfig. There may be none.
func (b *Builder) backend(config *mcfgv1.MachineOSConfig) (Backend, error) {
	kind := config.Spec.ImageBuilder.ImageBuilderType
	found := b.options.Backends[kind]
	if found == nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonBuilderNotAvailable, fmt.Errorf("nothing in this installation builds content with imageBuilderType %s", kind))
	}
	return found, nil
}

// removeFrom removes a build from every backend: a MachineOSConfig may have had another one when it
// began.
func (b *Builder) removeFrom(ctx context.Context, key backend.Key) error {
	var failed []error
	for _, builds := range b.options.Backends {
		failed = append(failed, builds.Remove(ctx, key))
	}
	return errors.Join(failed...)
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

// use gives the Builder its clients.
func (b *Builder) use(c client.Client, reader client.Reader, publisher events.Publisher) {
	b.client, b.reader, b.events = c, reader, publisher
	b.checker = preflight.New(preflight.Options{
		Reader: reader, Namespace: b.options.Namespace, Connect: b.options.Connect, Indexer: b.options.Base, Clock: b.clock,
	})
	b.maker = maker.New(maker.Options{
		Base: b.options.Base, Fetcher: b.options.Fetcher, Pinner: b.checker, MayReuse: b.images.MayReuse,
		Attester: b.options.Attester, BuilderID: b.options.BuilderID,
		Proxy: b.options.Proxy, PlainHTTP: b.options.PlainHTTP, TrustBundle: b.options.TrustBundle, AcceptBase: b.options.AcceptBase,
	})
}

// Base is the OS image that was found last for a MachineOSConfig, with a client that reads it; nil
// where none was found yet.
func (b *Builder) Base(config string) (*preflight.Base, *registry.Client) {
	found := b.inspections.latest(config)
	if found == nil {
		return nil, nil
	}
	return found.base, found.credentials.Pull
}
