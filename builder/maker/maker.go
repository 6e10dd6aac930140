package maker

import (
	"context"
	"encoding/json"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/trust/sign"
)

// BaseImages reads what base images have; *baseimage.Loader is one.
type BaseImages interface {
	Index(ctx context.Context, image v1.Image) (*osindex.Index, error)
	configlayer.FileReader
}

// Pinner says which image a name stands for; *preflight.Checker is one.
type Pinner interface {
	Pin(ctx context.Context, credentials credentials.Credentials, reference string) (string, error)
}

// Attester attaches signed statements to content, and reads them; *sign.Signer is one.
type Attester interface {
	Attest(ctx context.Context, images sign.Registry, pinned string, statements ...sign.Statement) ([]sign.Attestation, error)
	Statements(ctx context.Context, images sign.Registry, pinned, predicateType string) ([]json.RawMessage, error)
}

// Options are what a Maker works with.
type Options struct {
	// Base reads base images, and Fetcher other files.
	Base    BaseImages
	Fetcher configlayer.Fetcher
	Pinner  Pinner
	// MayReuse reports whether an image with the tag and the labels of the wanted one may be taken
	// for it; nil where the labels are enough.
	MayReuse func(ctx context.Context, images *registry.Client, pinned string) (bool, error)
	// Attester states how content was built, so that it is known again; nil states nothing.
	Attester Attester
	// BuilderID is what the provenance of content calls this installation.
	BuilderID string
	// Proxy, PlainHTTP, PrivateStorage and TrustBundle are what builds need to reach registries.
	Proxy          map[string]string
	PlainHTTP      []string
	PrivateStorage []string
	TrustBundle    []byte
	// AcceptBase reports whether builds accept the base image whatever the policy of nodes says.
	AcceptBase bool
}

// Maker makes images. It may be used by several goroutines.
type Maker struct{ options Options }

// New returns a Maker.
func New(options Options) *Maker { return &Maker{options} }

// Order is an image to make: what it holds, and where it goes.
type Order struct {
	// Key names the build for backends. Pool, Config and Rendered are names for labels: the pool,
	// the MachineOSConfig and the rendered MachineConfig.
	Key                    backend.Key
	Pool, Config, Rendered string
	// Credentials are for registries, and PushSecret is the secret that builds push with.
	Credentials credentials.Credentials
	PushSecret  string
	Settings    Settings
	// Recipe is not described as long as only what is there already is looked for. Record has the
	// keys and inputs of the image.
	preflight.Recipe
	Record *plan.Record
	// Target is where the image goes, and Before the image that it replaces, whose layers are
	// there.
	Target Target
	Before string
	// Origin is what provenance says of who asked.
	Origin *provenance.Origin
	// Rebuild reports whether nothing is taken from before.
	Rebuild bool
	// IsStale reports whether content that an earlier build made is older than a rebuild that
	// someone asked for; nil where no one can.
	IsStale func(ctx context.Context, invocation string) (bool, error)
	// BuilderImage is what built the content, by digest, and Pulled what it pulled; empty where
	// that is not known.
	BuilderImage string
	Pulled       provenance.Pulled
}

// Target is where an image goes.
type Target struct{ Repository, Tag string }

// String is it as people write it.
func (t Target) String() string { return t.Repository + ":" + t.Tag }

// TargetOf is where a push spec says.
func TargetOf(pushSpec mcfgv1.ImageTagFormat) (Target, error) {
	repository, err := credentials.Repository(pushSpec)
	return Target{Repository: repository, Tag: strings.TrimPrefix(strings.TrimPrefix(string(pushSpec), repository), ":")}, err
}

// Image is one that stands in the registry.
type Image struct {
	// Pinned is it by digest.
	Pinned    string
	Platforms []registry.PlatformResult
	// Message says how it came to be.
	Message string
	// Immutable are the tags that it was not given, since they stand for another image for good.
	Immutable []string
	// Content is what the configuration was appended to, by digest, where that was built.
	Content string
	// Previous is the image that Pulls compares with.
	Previous string
	// Pulls are what a node pulls that runs Previous, in bytes, in the order of Platforms; nil
	// where that is not known.
	Pulls []int64
}

// compare says what nodes pull: beside the image that the pool had, where its layers are known, or
// else beside the base image.
func (i *Image) compare(o *Order) *Image {
	before, base := make([]int64, 0, len(i.Platforms)), make([]int64, 0, len(i.Platforms))
	for at := range i.Platforms {
		p := &i.Platforms[at]
		if p.New != nil {
			before = append(before, *p.New)
		}
		// That they lie on the base image's is checked before the image is signed.
		if below := o.Base.Layers(p.Platform); below > 0 && below <= len(p.Layers) {
			var above int64
			for _, size := range p.Layers[below:] {
				above += size
			}
			base = append(base, above)
		}
	}
	switch len(i.Platforms) {
	case len(before):
		i.Previous, i.Pulls = o.Before, before
	case len(base):
		i.Previous, i.Pulls = o.Base.Image, base
	}
	return i
}
