package standalone

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/reuse"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/builder/wanted/preflight"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/trust/sign"
)

// Keys has the key to sign with, and says whose signatures are trusted.
type Keys interface {
	sign.Keys
	images.Trust
}

// Builder builds content; *processes.Builder is one.
type Builder interface {
	// Build builds what the spec says for all architectures, and pushes it.
	Build(ctx context.Context, spec *backend.Spec) (*backend.State, error)
}

// Options are what an image is made with.
type Options struct {
	// Credentials are for registries.
	Credentials credentials.Credentials
	// Base reads base images, and Fetcher other files.
	Base    configlayer.BaseImages
	Fetcher configlayer.Fetcher
	// Builder builds content. Where none can, its error says why.
	Builder Builder
	// Keys sign the image and what is stated about it; nil signs and states nothing. SBOMs lists
	// what is in it.
	Keys  Keys
	SBOMs images.SBOM
	Clock clock.PassiveClock
	// Progress is told what is done next.
	Progress func(doing string)
}

// Request is an image to make.
type Request struct {
	// Pool is whose image it is, and Config its MachineOSConfig; empty where there is none.
	Pool, Config string
	// Rendered is the pool's configuration, and Sources the administrator's Containerfiles.
	Rendered *machineconfigs.Config
	// ConfigHash is provenance.HashConfig of the rendered MachineConfig.
	ConfigHash string
	Sources    []containerfiles.Source
	// Base is the OS image, and Extensions the image of extensions and kernels, which may be empty.
	Base, Extensions string
	// Architectures are those to make it for; all that the base image has where empty.
	Architectures []mcfgv1.Architecture
	// Repository is where it goes, and Tag is moved to it, beside the tag with its key; the pool's
	// where empty.
	Repository, Tag string
}

// Result is an image that stands in the registry.
type Result struct {
	*order.Image
	// Action is how it came to be: plan.Reuse, plan.Append or plan.Build.
	Action plan.Action
	Keys   plan.Keys
	// Base is the OS image by digest.
	Base string
	Tags []string
	// KeyID identifies the key that has signed it; empty where none has.
	KeyID  string
	Stated images.Stated
}

// making is one call of Make.
type making struct {
	Options

	request  *Request
	maker    *maker.Maker
	registry *reuse.Registry
	checker  *preflight.Checker
	keeper   *images.Keeper
	signer   *sign.Signer
	order    *order.Order
	began    time.Time
}

// Make makes an image, unless the registry has it already.
func Make(ctx context.Context, options Options, request *Request) (*Result, error) {
	m := &making{Options: options, request: request, began: options.Clock.Now().UTC().Truncate(time.Second)}
	m.checker = preflight.New(preflight.Options{Indexer: m.Base, Clock: m.Clock})
	keeping := images.Options{Clock: m.Clock}
	reusing := reuse.Options{BuilderID: provenance.DefaultBuilderID}
	if m.Keys != nil {
		m.signer = sign.NewSigner(m.Keys)
		keeping.Signer, keeping.OwnKeys, reusing.Attester = m.signer, m.Keys, m.signer
	}
	m.keeper = images.New(keeping)
	reusing.MayReuse = m.keeper.MayReuse
	m.registry = reuse.New(reusing)
	m.maker = maker.New(maker.Options{
		Layers: configlayer.Sources{Fetcher: m.Fetcher, Base: m.Base}, Pinner: m.checker, Statements: m.registry,
	})
	if err := m.describe(ctx); err != nil {
		return nil, err
	}
	result, err := m.obtain(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.answerFor(ctx, result); err != nil {
		return nil, err
	}
	return result, m.tag(ctx, result)
}

// describe says exactly which image it is.
func (m *making) describe(ctx context.Context) error {
	recipe := recipe.Recipe{Configuration: m.request.Rendered, Sources: m.request.Sources}
	var err error
	if recipe.Base, err = m.base(ctx); err != nil {
		return fmt.Errorf("reading the base image %q: %w", m.request.Base, err)
	}
	if m.request.Extensions != "" {
		if recipe.Extensions, err = m.checker.Pin(ctx, m.Credentials, m.request.Extensions); err != nil {
			return fmt.Errorf("resolving the extensions image %q: %w", m.request.Extensions, err)
		}
	}
	if err := recipe.Describe(ctx); err != nil {
		return err
	}
	record := recipe.Described.Inputs.Record()
	target := order.Target{Repository: m.request.Repository, Tag: names.ImageTag(m.request.Pool, record.Keys.Build)}
	m.order = &order.Order{
		Key:  backend.Key{Build: target.Tag},
		Pool: m.request.Pool, Config: m.request.Config, Rendered: m.request.Rendered.Name,
		Credentials: m.Credentials, Recipe: recipe, Record: record, Target: target,
		Origin: &provenance.Origin{
			Config: m.request.Config, Stream: recipe.Base.Stream, PushSpec: target.String(), MachineConfig: m.request.Rendered.Name,
			Base: recipe.Base.Image, Extensions: recipe.Extensions, Began: m.began,
		},
	}
	m.order.Before, err = m.before(ctx)
	return err
}

func (m *making) base(ctx context.Context) (*recipe.Base, error) {
	pinned, err := m.checker.Pin(ctx, m.Credentials, m.request.Base)
	if err != nil {
		return nil, err
	}
	base, err := m.checker.BaseImage(ctx, m.Credentials, pinned, m.request.Architectures)
	if err != nil {
		return nil, err
	}
	for _, wanted := range m.request.Architectures {
		if !slices.Contains(base.Architectures(), wanted) {
			return nil, fmt.Errorf("it has no image for %s, only for %v", wanted, base.Architectures())
		}
	}
	return base, nil
}

// moving is the tag that moves to the image.
func (m *making) moving() string { return cmp.Or(m.request.Tag, names.PoolTag(m.request.Pool)) }

// before is the image that the tag stands for until now.
func (m *making) before(ctx context.Context) (string, error) {
	digest, found, err := m.Credentials.Push.Exists(ctx, m.request.Repository, m.moving())
	if registry.IsDenied(err) || err == nil && !found { // whoever may not read may still write
		return "", nil
	}
	return m.request.Repository + "@" + digest.String(), err
}

// obtain makes the image, or takes the one that is there.
func (m *making) obtain(ctx context.Context) (*Result, error) {
	o := m.order
	result := &Result{Keys: o.Record.Keys, Base: o.Base.Image}
	there, err := m.registry.FindImage(ctx, m.Credentials, o.Target, o.Record.Keys.Build, o.Base.Platforms)
	if err != nil {
		return nil, err
	}
	input := &plan.ImagePlanInput{InRegistry: there != "", HasContent: o.Record.Inputs.HasContent(), Backend: true}
	content := o.Base.Below()
	if input.HasContent && !input.InRegistry {
		if content, err = m.registry.TakeContent(ctx, o); err != nil {
			return nil, err
		}
		input.HasContentImage = content != ""
	}
	switch result.Action = plan.Choose(input).Action; result.Action {
	case plan.Reuse:
		result.Image, err = reuse.Found(ctx, o, there)
		return result, err
	case plan.Build:
		if content, err = m.build(ctx); err != nil {
			return nil, err
		}
	case plan.Append, plan.Nothing, plan.Wait, plan.Stop: // of an image that can be made it is the first
	}
	m.Progress("appending the configuration in " + o.Target.Repository)
	if result.Image, err = m.maker.Append(ctx, o, content, maker.Tagging{Tags: []string{o.Target.Tag}}); err != nil {
		return nil, err
	}
	if m.signer != nil {
		err = maker.Check(ctx, o, result.Image)
	}
	return result, err
}

// backendName is what provenance says of content that was built here.
const backendName = "Local"

// build has the content built.
func (m *making) build(ctx context.Context) (string, error) {
	o := m.order
	spec, err := m.maker.Spec(ctx, o)
	if err != nil {
		return "", err
	}
	if err := maker.CopyBase(ctx, o); err != nil {
		return "", err
	}
	m.Progress("building what the Containerfile says")
	state, err := m.Builder.Build(ctx, spec)
	if err != nil {
		return "", err
	}
	if state.Phase != backend.Succeeded {
		return "", maker.Failed(state)
	}
	o.Origin.Backend = backendName
	return m.maker.Built(ctx, o, state)
}

// answerFor states how the image was made and what is in it, signs it, and makes sure that who
// trusts the key takes it.
func (m *making) answerFor(ctx context.Context, result *Result) error {
	if m.signer == nil {
		return nil
	}
	m.Progress("stating what is in the image, and signing it")
	var err error
	now := m.Clock.Now().UTC().Truncate(time.Second)
	finished := now
	if result.Action == plan.Reuse { // it was made before, and no one knows when
		finished = time.Time{}
	}
	result.Stated, err = images.State(ctx, m.signer, m.Credentials.Push, result.Pinned,
		images.Making{
			Name: "provenance", PredicateType: sign.PredicateProvenance,
			Make: func(context.Context) ([]byte, error) { return m.provenance(result, finished) },
		},
		images.Making{
			Name: "SBOM", PredicateType: sign.PredicateSPDX,
			Make: func(ctx context.Context) ([]byte, error) {
				return images.MakeSBOM(ctx, m.SBOMs, m.Credentials, result.Pinned, m.order.Base.Image, now)
			},
		})
	if err != nil {
		return fmt.Errorf("the image %s was pushed, and can't be attested: %w", result.Pinned, err)
	}
	signature, err := m.signer.Sign(ctx, m.Credentials.Push, result.Pinned)
	if err != nil {
		return fmt.Errorf("the image %s was pushed, and can't be signed: %w", result.Pinned, err)
	}
	result.KeyID = signature.KeyID
	trusted, err := m.keeper.MayReuse(ctx, m.Credentials.Push, result.Pinned)
	if err == nil && !trusted {
		err = errors.New("the registry does not give back the signature as it was made")
	}
	if err != nil {
		return fmt.Errorf("verifying the signature of %s: %w", result.Pinned, err)
	}
	return nil
}

func (m *making) provenance(result *Result, finished time.Time) ([]byte, error) {
	o := m.order
	return json.Marshal(provenance.OfImage(&provenance.Facts{
		Origin: o.Origin, Inputs: order.InputsIn(o.Record), Pool: o.Pool, BuilderID: provenance.DefaultBuilderID, Version: version.Current().Version,
		BuilderImage: o.BuilderImage, Content: result.Content, Pulled: o.Pulled, ConfigHash: m.request.ConfigHash, Finished: finished,
	}))
}

// tag moves the tag that people read, when the image is what it is to be.
func (m *making) tag(ctx context.Context, result *Result) error {
	result.Tags = []string{m.order.Target.Tag}
	tag := m.moving()
	err := m.Credentials.Push.Tag(ctx, result.Pinned, tag)
	switch {
	case registry.IsImmutable(err):
		result.Immutable = append(result.Immutable, tag)
		return nil
	case err == nil:
		result.Tags = append(result.Tags, tag)
	}
	return err
}
