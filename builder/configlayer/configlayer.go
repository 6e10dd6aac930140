package configlayer

import (
	"context"
	"fmt"
	"net/http"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// Fetcher brings the files that MachineConfigs name by URL; *remote.Fetcher of this module is one.
type Fetcher interface {
	FetchAll(ctx context.Context, sources []remote.Source) ([][]byte, error)
}

// BaseImages reads what the image below has; *baseimage.Loader is one.
type BaseImages interface {
	Index(ctx context.Context, image v1.Image) (*osindex.Index, error)
	FileReader
}

// FileReader reads files of the image below.
type FileReader interface {
	ReadFiles(ctx context.Context, image v1.Image, index *osindex.Index, paths []string) (map[string][]byte, error)
}

// ContentError means that a file could be had, and is not what the configuration says of it.
type ContentError struct{ err error }

// Error says which file.
func (e *ContentError) Error() string { return e.err.Error() }

// Unwrap is the error of the layer.
func (e *ContentError) Unwrap() error { return e.err }

// Sources are where files come from.
type Sources struct {
	Fetcher Fetcher
	Base    BaseImages
}

// Below is the image that the layer goes onto, with its index.
type Below struct {
	Image v1.Image
	Index *osindex.Index
}

// Make makes the layer of a plan. A file that is not what its hash says is a *ContentError.
func (s Sources) Make(ctx context.Context, plan *layer.Plan, below Below) (*layer.Layer, error) {
	remotes := make([]remote.Source, len(plan.Remote))
	for i, wanted := range plan.Remote {
		header := http.Header{}
		for _, h := range wanted.Headers {
			header.Add(h.Name, h.Value)
		}
		remotes[i] = remote.Source{URL: wanted.URL, Header: header}
	}
	contents, err := s.Fetcher.FetchAll(ctx, remotes)
	if err != nil {
		return nil, err
	}
	inputs := layer.Inputs{Remote: map[string][]byte{}}
	for i, wanted := range plan.Remote {
		inputs.Remote[wanted.Key] = contents[i]
	}
	if len(plan.Wanted) > 0 {
		if inputs.Base, err = s.Base.ReadFiles(ctx, below.Image, below.Index, plan.Wanted); err != nil {
			return nil, fmt.Errorf("reading files of the image below: %w", err)
		}
	}
	made, err := plan.Build(inputs)
	if err != nil {
		return nil, &ContentError{err}
	}
	return made, nil
}
