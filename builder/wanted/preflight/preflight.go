package preflight

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/containerfiles/lint"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// DefaultTTL is how long a registry's good answer is believed.
const DefaultTTL = 10 * time.Minute

// Indexer reads what a base image has; *baseimage.Loader is one.
type Indexer interface {
	Index(ctx context.Context, image v1.Image) (*osindex.Index, error)
}

// Options are what a Checker works with.
type Options struct {
	// Reader reads secrets and ConfigMaps, by name: it should ask the API server, since a cache
	// would hold all of them.
	Reader client.Reader
	// Namespace is where they are.
	Namespace string
	// Connect makes a client for registries that logs in with the credentials.
	Connect func(authn.Keychain) *registry.Client
	// Mirrors say where images are read; nil reads them where their names say.
	Mirrors credentials.Mirrors
	// Indexer reads base images.
	Indexer Indexer
	// Clock is the system's where nil, and TTL DefaultTTL where zero.
	Clock clock.PassiveClock
	TTL   time.Duration
}

// Checker checks. It may be used by several goroutines.
type Checker struct {
	*credentials.Source

	options  Options
	resolved *memory[registry.Resolved]
	bases    *memory[*recipe.Base]
	pushable *memory[bool]
}

// New returns a Checker.
func New(options Options) *Checker {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.TTL == 0 {
		options.TTL = DefaultTTL
	}
	return &Checker{
		Source:   &credentials.Source{Reader: options.Reader, Namespace: options.Namespace, Connect: options.Connect, Mirrors: options.Mirrors},
		options:  options,
		resolved: newMemory[registry.Resolved](options.Clock, options.TTL, maxResolved),
		bases:    newMemory[*recipe.Base](options.Clock, options.TTL, maxResolved),
		pushable: newMemory[bool](options.Clock, options.TTL, maxResolved),
	}
}

// maxResolved is how many images are remembered at most.
const maxResolved = 1024

// Request is what to check.
type Request struct {
	Config *mcfgv1.MachineOSConfig
	// Rendered is the pool's rendered configuration.
	Rendered *machineconfigs.Config
	// Demand says which architectures the image is to be for.
	Demand plan.Demand
	// Fresh asks registries again whatever is remembered.
	Fresh bool
}

// Result is what was found: everything that a build of the image starts from.
type Result struct {
	// Credentials are those of the MachineOSConfig.
	credentials.Credentials
	recipe.Recipe
}

// Inspect checks everything but whether the image may be pushed, which CanPush does when it
// matters: while no image has to be made, no one need be able to. It is checked here too where
// something else is wrong, so that people learn of both.
func (c *Checker) Inspect(ctx context.Context, request Request) (*Result, error) {
	i := &inspection{Checker: c, request: request, result: &Result{Recipe: recipe.Recipe{Configuration: request.Rendered}}}
	var pushErr error
	i.result.Credentials, pushErr = c.Credentials(ctx, request.Config)
	i.fail(pushErr)
	i.readSources(ctx)
	i.readBuildInputs(ctx)
	wrong := i.lint()
	if i.result.Pull != nil {
		i.resolveBase(ctx)
		i.resolveExtensions(ctx)
		if len(wrong) == 0 { // else a name may mean nothing, and no registry is asked about it
			i.resolveNamed(ctx)
		}
	}
	i.describe(ctx, wrong)
	if len(i.errs) == 0 {
		return i.result, nil
	}
	if i.result.Push != nil {
		i.fail(c.CanPush(ctx, i.result.Credentials, request.Config.Spec.RenderedImagePushSpec, request.Fresh))
	}
	return nil, fault.Join(i.errs...)
}

// CanPush checks that the push secret may write to the repository.
func (c *Checker) CanPush(ctx context.Context, with credentials.Credentials, pushSpec mcfgv1.ImageTagFormat, fresh bool) error {
	repository, err := credentials.Repository(pushSpec)
	if err != nil {
		return err
	}
	_, err = c.pushable.get(ctx, question{repository, with.Access, fresh}, func() (bool, error) {
		return true, with.Push.CanPush(ctx, repository)
	})
	if err != nil {
		return about("spec.renderedImagePushSpec", err)
	}
	return nil
}

// inspection is one Inspect.
type inspection struct {
	*Checker
	request Request
	result  *Result
	errs    []error
	// isIncomplete reports whether the description would speak of something else than what is
	// wanted.
	isIncomplete bool
}

// fail notes an error, and that nothing can be described.
func (i *inspection) fail(err error) {
	if err != nil {
		i.errs = append(i.errs, err)
	}
}

// readSources reads the Containerfiles.
func (i *inspection) readSources(ctx context.Context) {
	var err error
	if i.result.Sources, err = i.Sources(ctx, i.request.Config); err != nil {
		i.fail(err)
		i.isIncomplete = true
	}
}

// readBuildInputs finds what RUN lines can use, where there may be any.
func (i *inspection) readBuildInputs(ctx context.Context) {
	if len(i.request.Config.Spec.Containerfile) == 0 && !i.usesExtensions() {
		return
	}
	var err error
	if i.result.Inputs, err = i.BuildInputs(ctx, i.request.Config.Spec.MachineConfigPool.Name); err != nil {
		i.fail(err)
		i.isIncomplete = true
	}
}

// usesExtensions reports whether anything is taken from the extensions image.
func (i *inspection) usesExtensions() bool {
	return len(i.request.Rendered.Extensions) > 0 || cmp.Or(i.request.Rendered.KernelType, mcfgv1.KernelTypeDefault) != mcfgv1.KernelTypeDefault
}

// about says which field an error is about.
func about(field string, err error) error { return fmt.Errorf("%s: %w", field, err) }

// describe says which image is wanted. Without a base image only what is wrong with the
// Containerfiles can be said.
func (i *inspection) describe(ctx context.Context, wrong []error) {
	if i.isIncomplete {
		return
	}
	if i.result.Base == nil {
		i.errs = append(i.errs, wrong...)
		return
	}
	i.fail(i.result.Describe(ctx))
}

// lint looks for errors in the Containerfiles alone.
func (i *inspection) lint() []error {
	var wrong []error
	for _, source := range i.result.Sources {
		_, findings := lint.Check(source.Name, []byte(source.Text), lint.Options{Architecture: source.Arch, Context: source.Context})
		if !lint.HasErrors(findings) {
			continue
		}
		var serious []lint.Finding
		for _, f := range findings {
			if f.Severity == lint.SeverityError {
				serious = append(serious, f)
			}
		}
		wrong = append(wrong, fault.NewTerminal(mcfgv1.ReasonInvalidContainerfile, &lint.Error{File: source.Name, Findings: serious}))
	}
	return wrong
}
