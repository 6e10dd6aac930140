package reuse

import (
	"context"
	"encoding/json"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/trust/sign"
)

// Attester attaches signed statements to content, and reads them; *sign.Signer is one.
type Attester interface {
	Attest(ctx context.Context, images sign.Registry, pinned string, statements ...sign.Statement) ([]sign.Attestation, error)
	Statements(ctx context.Context, images sign.Registry, pinned, predicateType string) ([]json.RawMessage, error)
}

// Options are what a Registry works with.
type Options struct {
	// MayReuse reports whether an image with the tag and the labels of the wanted one may be taken
	// for it; nil where the labels are enough.
	MayReuse func(ctx context.Context, images *registry.Client, pinned string) (bool, error)
	// Attester states how content was built, so that it is known again; nil states nothing.
	Attester Attester
	// BuilderID is what the provenance of content calls this installation.
	BuilderID string
}

// Registry finds what registries have already, as far as it may be taken. It may be used by several
// goroutines.
type Registry struct{ options Options }

// New returns a Registry.
func New(options Options) *Registry { return &Registry{options} }
