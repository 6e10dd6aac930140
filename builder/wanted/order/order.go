package order

import (
	"context"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

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
	recipe.Recipe
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

// EachPlatform are those of the base image.
func (o *Order) EachPlatform() []v1.Platform {
	platforms := make([]v1.Platform, len(o.Base.Platforms))
	for i, p := range o.Base.Platforms {
		platforms[i] = p.Platform
	}
	return platforms
}

// Settings are what an administrator may change while a build waits or runs.
type Settings struct {
	Resources *mcfgv1.BuildResources
	Placement *mcfgv1.BuildPlacement
	Retries   int
	Timeout   time.Duration
	// Pipeline is the name of the administrator's own Tekton Pipeline; empty for Layerwright's.
	Pipeline string
}

// ApplyTo sets them for a backend.
func (s *Settings) ApplyTo(spec *backend.Spec) {
	spec.Resources, spec.Placement, spec.Retries, spec.Timeout = s.Resources, s.Placement, s.Retries, s.Timeout
	spec.Pipeline = s.Pipeline
}

// AreOld reports whether what waits or runs was made with other settings.
func (s *Settings) AreOld(state *backend.State) bool {
	wanted := &backend.Spec{}
	s.ApplyTo(wanted)
	isUnderWay := state.Phase == backend.Pending || state.Phase == backend.Running
	return isUnderWay && state.Settings != "" && state.Settings != wanted.Settings()
}
