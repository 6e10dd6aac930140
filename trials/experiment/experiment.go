package experiment

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/reuse"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/builder/wanted/preflight"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams/compare"
	"github.com/layerwright/layerwright/trials/trial"
)

// Options are what experiments work with.
type Options struct {
	// Client reads from the cache.
	Client client.Client
	// Base reads base images, Checker looks at what a MachineOSConfig names, Registry at what is
	// there already, and Maker makes the image.
	Base     configlayer.BaseImages
	Checker  *preflight.Checker
	Registry *reuse.Registry
	Maker    *maker.Maker
	// Backends build content.
	Backends backends.Set
}

// Request is what is tried.
type Request struct {
	Config *mcfgv1.MachineOSConfig
	Stream string
	// Pool has the configuration Current, and on the other stream Then.
	Pool    *mcfgv1.MachineConfigPool
	Current *mcfgv1.MachineConfig
	Then    *trial.Rendered
	// Demand says which architectures the image is to be for.
	Demand plan.Demand
	// IsUnderWay reports whether what builds content now, if anything, is for this request.
	IsUnderWay bool
	// StillAsked is an error where the request does not stand any more; it is asked before the
	// image gets its tag.
	StillAsked func(context.Context) error
}

// Result is what became of it. Report is nil while content is being built; Says is then what
// happens, for people, or empty where that is not known yet.
type Result struct {
	Report *compare.Report
	Says   string
}

// experiment is one under way.
type experiment struct {
	options *Options
	Request

	credentials credentials.Credentials
	push        order.Target
	// now is the pool's OS image, and next the other stream's with what is to be built on it.
	now, next *side
	// failed are what kept the content from being built on the other stream.
	failed []compare.Finding
	says   string
}

// Key is what a backend knows the build of a trial by. There is one at a time for each
// MachineOSConfig.
func Key(config *mcfgv1.MachineOSConfig) backend.Key {
	return backend.Key{Build: names.StreamTrial(config.Name), UID: string(config.UID), Trial: config.Name}
}

// Run looks at both sides, makes the image, and compares.
func Run(ctx context.Context, options *Options, request Request) (Result, error) {
	e := &experiment{options: options, Request: request}
	report, err := e.run(ctx)
	return Result{Report: report, Says: e.says}, err
}

// run gives no report while content is being built.
func (e *experiment) run(ctx context.Context) (*compare.Report, error) {
	var err error
	if e.credentials, err = e.options.Checker.Credentials(ctx, e.Config); err != nil {
		return nil, err
	}
	repository, err := credentials.Repository(e.Config.Spec.RenderedImagePushSpec)
	if err != nil {
		return nil, err
	}
	e.push = order.Target{Repository: repository, Tag: names.TrialTag(e.Pool.Name)}
	now, err := machineconfigs.Parse(e.Current)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	if image := string(e.Config.Spec.BaseOSImagePullSpec); image != "" {
		now.OSImageURL = image
	}
	if e.now, err = e.sideOf(ctx, now); err != nil {
		return nil, fmt.Errorf("the OS image of the pool: %w", err)
	}
	if e.next, err = e.sideOf(ctx, e.Then.Config); err != nil {
		return nil, fmt.Errorf("the OS image of stream %q: %w", e.Stream, err)
	}
	image, notBuilt, err := e.image(ctx)
	if err != nil || image == "" && notBuilt == "" {
		return nil, err
	}
	report, err := e.examine(ctx)
	if err != nil {
		return nil, err
	}
	report.TrialImage, report.NotBuilt = image, notBuilt
	return report, nil
}

// side is an OS image, and what the pool's image on it is made of. It is not described where the
// image cannot be made, and problem is why.
type side struct {
	recipe.Recipe

	problem error
}

// describedInputs are nil where the image cannot be made.
func (s *side) describedInputs() *plan.Inputs {
	if s.Described == nil {
		return nil
	}
	return &s.Described.Inputs
}

// sideOf finds the OS image of a configuration, and says what the pool's image on it would be.
func (e *experiment) sideOf(ctx context.Context, config *machineconfigs.Config) (*side, error) {
	out := &side{Recipe: recipe.Recipe{Configuration: config}}
	if config.OSImageURL == "" {
		return nil, fault.NewTerminal(mcfgv1.ReasonImageNotFound, fmt.Errorf("nothing names it"))
	}
	var err error
	if out.Base, err = e.options.Checker.ChooseBase(ctx, e.credentials, config.OSImageURL, e.Demand); err != nil {
		return nil, err
	}
	if config.ExtensionsImage != "" && trial.UsesExtensions(config) {
		if out.Extensions, err = e.options.Checker.Pin(ctx, e.credentials, config.ExtensionsImage); err != nil {
			return nil, fmt.Errorf("its extensions image: %w", err)
		}
	}
	if out.Sources, err = e.options.Checker.Sources(ctx, e.Config); err != nil {
		return nil, err
	}
	if out.Inputs, err = e.options.Checker.BuildInputs(ctx, e.Pool.Name); err != nil {
		return nil, err
	}
	out.problem = out.Describe(ctx)
	if out.problem != nil && !fault.IsTerminal(out.problem) { // such as the turn of another image: it passes, and is no finding
		return nil, out.problem
	}
	return out, nil
}

// image makes the pool's image for the other stream under a tag of its own; where it makes
// none, it says why. It says nothing while content is being built.
func (e *experiment) image(ctx context.Context) (image, notBuilt string, err error) {
	if e.next.problem != nil {
		return "", "the image cannot be made, see the blockers", nil //nolint:nilerr // the report names the problem
	}
	if err := e.options.Checker.CanPush(ctx, e.credentials, e.Config.Spec.RenderedImagePushSpec, false); err != nil {
		return "", "", err
	}
	order := e.order()
	content := e.next.Base.Below()
	if e.next.Described.Inputs.HasContent() {
		if content, notBuilt, err = e.content(ctx, order); err != nil || content == "" {
			return "", notBuilt, err
		}
	}
	result, err := e.options.Maker.Append(ctx, order, content, maker.Tagging{
		Tags: []string{e.push.Tag}, Before: e.StillAsked, Labels: map[string]string{mcfgv1.ImageLabelTrial: e.Stream},
	})
	if err != nil {
		return "", "", err
	}
	return result.Pinned, "", nil
}

// order says what image the trial makes.
func (e *experiment) order() *order.Order {
	key := Key(e.Config)
	o := &order.Order{
		Key: key, Pool: e.Pool.Name, Config: e.Config.Name, Rendered: e.Then.MachineConfig.Name,
		Credentials: e.credentials, PushSecret: e.Config.Spec.RenderedImagePushSecret.Name, Settings: objects.SettingsOf(e.Config),
		Recipe: e.next.Recipe, Record: e.next.Described.Inputs.Record(),
		Target: e.push, Before: string(e.Config.Status.CurrentImagePullSpec),
		Origin: &provenance.Origin{
			Invocation: key.Build + "/" + key.UID, Config: e.Config.Name, Base: e.next.Base.Image, Extensions: e.next.Extensions,
		},
	}
	o.IsStale = func(ctx context.Context, invocation string) (bool, error) {
		return objects.IsRebuilt(ctx, e.options.Client, order.ContentOf(&o.Recipe), o.Target.Repository, "", invocation)
	}
	return o
}
