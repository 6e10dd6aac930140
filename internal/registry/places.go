package registry

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/layerwright/layerwright/internal/registry/failure"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
)

// Through is a client that reads images where the table says. Names of images stay what they are;
// what it writes, and asks about where it writes, goes to the registry of the name.
func (c *Client) Through(table mirrors.Table) *Client {
	through := *c
	through.mirrors = table
	return &through
}

// places are the names of an image where it may be read, the best first, and what keeps it from
// being read in others.
func (c *Client) places(ref name.Reference) (places []name.Reference, refused []string) {
	if len(c.mirrors) == 0 {
		return []name.Reference{ref}, nil
	}
	whole := wholeName(ref)
	allowed, blocked := c.mirrors.Places(whole)
	for _, text := range allowed {
		place, err := ref, error(nil)
		if text != whole {
			place, err = c.reference(text)
		}
		pinned, isPinned := ref.(name.Digest)
		switch {
		case err != nil:
			refused = append(refused, fmt.Sprintf("the mirror %q is no name of an image", text))
		case isPinned && place.Identifier() != pinned.DigestStr():
			refused = append(refused, fmt.Sprintf("the mirror %q is not named by the digest", text))
		default:
			places = append(places, place)
		}
	}
	for _, text := range blocked {
		refused = append(refused, fmt.Sprintf("%q may not be asked, as the configuration of mirrors says", text))
	}
	return places, refused
}

// wholeName is an image's name as configurations of mirrors have it.
func wholeName(ref name.Reference) string {
	whole := ref.Name()
	if rest, isHub := strings.CutPrefix(whole, name.DefaultRegistry+"/"); isHub {
		return "docker.io/" + rest
	}
	return whole
}

// each asks one place of an image after the other, until one answers. Where none does, the error
// tells of all.
func each[T any](ctx context.Context, c *Client, doing string, ref name.Reference, ask func(name.Reference, failure.Call) (T, error)) (T, error) {
	places, refused := c.places(ref)
	var errs []error
	for _, place := range places {
		got, err := ask(place, c.reading(doing, place, place.Context()))
		if err == nil || ctx.Err() != nil {
			return got, err
		}
		errs = append(errs, err)
	}
	var none T
	return none, failure.OfPlaces(doing, ref.String(), errs, refused)
}
