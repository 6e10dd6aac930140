package maker

import (
	"context"

	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

// Pinner says which image a name stands for; *recipe.Checker is one.
type Pinner interface {
	Pin(ctx context.Context, credentials credentials.Credentials, reference string) (string, error)
}

// Statements say how content was built; *reuse.Registry makes them.
type Statements interface {
	State(ctx context.Context, o *order.Order, content string) error
}

// Options are what a Maker works with.
type Options struct {
	// Layers makes configuration layers.
	Layers configlayer.Sources
	Pinner Pinner
	// Statements are about content that was built.
	Statements Statements
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
