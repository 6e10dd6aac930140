package registry

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/internal/registry/failure"
	"github.com/layerwright/layerwright/internal/registry/wire"
)

// Resolved is what a name stands for right now.
type Resolved struct {
	// Image is the same image by digest: what to use from here on, whatever happens to the tag.
	Image string
	// Digest, MediaType and Size are those of the manifest.
	Digest    v1.Hash
	MediaType types.MediaType
	Size      int64
	// Platforms are those of an index, without what is no image for a machine (attestations). They
	// are nil for a single image, which says in its config what it is for: see Config.
	Platforms []v1.Platform
}

// EachPlatform are the platforms to ask for: those of an index, or the zero platform of a single
// image, which says itself what it is for.
func (r *Resolved) EachPlatform() []v1.Platform {
	if len(r.Platforms) == 0 {
		return []v1.Platform{{}}
	}
	return r.Platforms
}

// Resolve finds what an image's name stands for. It costs a HEAD, which registries do not count as
// a pull, and a GET for the platforms of an index or where the registry's answer to HEAD has no
// digest. An image that does not exist or may not be pulled is Terminal with the reason
// ImageNotFound.
func (c *Client) Resolve(ctx context.Context, image string) (Resolved, error) {
	ref, err := c.reference(image)
	if err != nil {
		return Resolved{}, err
	}
	resolved, err := each(ctx, c, "resolving image", ref, func(place name.Reference, call failure.Call) (Resolved, error) {
		return c.resolveAt(ctx, place, call)
	})
	if err == nil {
		resolved.Image = ref.Context().Digest(resolved.Digest.String()).String()
	}
	return resolved, err
}

// resolveAt finds what a name stands for in one place. The result is not named.
func (c *Client) resolveAt(ctx context.Context, ref name.Reference, call failure.Call) (Resolved, error) {
	puller, err := c.puller(ctx, ref.Context())
	if err != nil {
		return Resolved{}, call.Fail(err)
	}
	desc, err := puller.Head(ctx, ref)
	if err != nil && !mayAskAgain(err) {
		return Resolved{}, call.Fail(err)
	}
	var manifest []byte
	if err != nil || desc.MediaType.IsIndex() {
		got, err := puller.Get(ctx, ref)
		if err != nil {
			return Resolved{}, call.Fail(err)
		}
		desc, manifest = &got.Descriptor, got.Manifest
	}
	resolved := Resolved{Digest: desc.Digest, MediaType: desc.MediaType, Size: desc.Size}
	if desc.MediaType.IsIndex() {
		index, err := parseIndex(call, manifest)
		if err != nil {
			return Resolved{}, err
		}
		for _, child := range index.images() {
			resolved.Platforms = append(resolved.Platforms, *child.Platform)
		}
	}
	return resolved, nil
}

// mayAskAgain reports whether a GET may know more than a failed HEAD: where the headers are not
// what the protocol asks for, where the method is refused, and where the reason of a refusal was
// lost, since answers to HEAD have no text.
func mayAskAgain(err error) bool {
	var answer *transport.Error
	if errors.As(err, &answer) {
		return !failure.IsTransient(answer.StatusCode) && answer.StatusCode != http.StatusNotFound
	}
	var pause *wire.PauseError
	return !isConnection(err) && !errors.As(err, &pause)
}

// isConnection reports whether err came from below the protocol.
func isConnection(err error) bool {
	var failed interface{ Timeout() bool } // *url.Error, and the ends of contexts
	return errors.As(err, &failed)
}

// Exists finds the digest that a tag of a repository stands for; false where there is no such tag,
// or no such repository yet.
func (c *Client) Exists(ctx context.Context, repository, tag string) (v1.Hash, bool, error) {
	repo, err := c.repository(repository)
	if err != nil {
		return v1.Hash{}, false, err
	}
	ref, err := c.tag(repo, tag)
	if err != nil {
		return v1.Hash{}, false, err
	}
	resolved, err := c.Resolve(ctx, ref.String())
	if failure.IsNotFound(err) {
		return v1.Hash{}, false, nil
	}
	return resolved.Digest, err == nil, err
}

// Newest finds the digest of what was pushed last under a tag or, where the registry's tags are
// immutable, under the ones that follow it.
func (c *Client) Newest(ctx context.Context, repository, tag string) (newest v1.Hash, found bool, err error) {
	for number := 1; number <= names.MaxTags; number++ {
		digest, is, err := c.Exists(ctx, repository, names.NextTag(tag, number))
		if err != nil || !is {
			return newest, found, err
		}
		newest, found = digest, true
	}
	return newest, found, nil
}

// Image opens the image of a platform: manifest and config are read, layers only when someone reads
// them, while ctx lasts. A single image has to be for the platform; the zero platform takes any
// single image. Errors of its layers are classified too.
func (c *Client) Image(ctx context.Context, image string, platform v1.Platform) (v1.Image, error) {
	ref, err := c.reference(image)
	if err != nil {
		return nil, err
	}
	source, err := c.open(ctx, ref)
	if err != nil {
		return nil, err
	}
	found, err := source.pick([]v1.Platform{platform})
	if err != nil {
		return nil, err
	}
	return source.image(ctx, found[0])
}

// Config reads the config of the image of a platform, as Image finds it.
func (c *Client) Config(ctx context.Context, image string, platform v1.Platform) (*v1.ConfigFile, error) {
	found, err := c.Image(ctx, image, platform)
	if err != nil {
		return nil, err
	}
	return found.ConfigFile()
}

// Labels reads the labels of the image of a platform, as Image finds it.
func (c *Client) Labels(ctx context.Context, image string, platform v1.Platform) (map[string]string, error) {
	config, err := c.Config(ctx, image, platform)
	if err != nil {
		return nil, err
	}
	return config.Config.Labels, nil
}

// Tags lists the tags of a repository, in the registry's order; none where the repository does not
// exist.
func (c *Client) Tags(ctx context.Context, repository string) ([]string, error) {
	repo, err := c.repository(repository)
	if err != nil {
		return nil, err
	}
	tags, err := remote.List(repo, c.options(ctx, repo)...)
	if err = c.reading("listing tags of repository", repo, repo).Fail(err); failure.IsNotFound(err) {
		return nil, nil
	}
	return tags, err
}

// head finds a manifest's digest where someone has it already; false where not, or where the
// credentials may write and not read.
func (c *Client) head(ctx context.Context, puller *remote.Puller, ref name.Reference) (v1.Hash, bool, error) {
	desc, err := puller.Head(ctx, ref)
	if err = c.reading("looking for image", ref, ref.Context()).Fail(err); failure.IsNotFound(err) || failure.IsDenied(err) {
		return v1.Hash{}, false, nil
	}
	if err != nil {
		return v1.Hash{}, false, err
	}
	return desc.Digest, true, nil
}

// Inspected is what an image says about itself in manifest and config.
type Inspected struct {
	// Image is the image by digest, that of the index where it is one.
	Image  string
	Digest v1.Hash
	// Labels are those of its config; of an index, those of its first image for a machine.
	Labels map[string]string
}

// Inspect reads an image's labels, which costs its manifest and its config. The images of an index
// are one image for several platforms, so the first stands for all.
func (c *Client) Inspect(ctx context.Context, image string) (Inspected, error) {
	source, chosen, err := c.openFirst(ctx, image)
	if err != nil {
		return Inspected{}, err
	}
	content, err := source.load(ctx, chosen)
	if err != nil {
		return Inspected{}, err
	}
	digest := source.desc.Digest
	return Inspected{
		Image: source.ref.Context().Digest(digest.String()).String(), Digest: digest, Labels: content.Config.Config.Labels,
	}, nil
}

// Open opens an image as Image does, for whatever platform it is; of an index, the first.
func (c *Client) Open(ctx context.Context, image string) (v1.Image, error) {
	source, chosen, err := c.openFirst(ctx, image)
	if err != nil {
		return nil, err
	}
	return source.image(ctx, chosen)
}

// openFirst reads the manifest, and chooses the first image of an index.
func (c *Client) openFirst(ctx context.Context, image string) (*source, compose.Choice, error) {
	ref, err := c.reference(image)
	if err != nil {
		return nil, compose.Choice{}, err
	}
	source, err := c.open(ctx, ref)
	if err != nil {
		return nil, compose.Choice{}, err
	}
	if source.index == nil {
		return source, compose.Choice{Desc: source.desc.Descriptor, Single: true}, nil
	}
	images := source.index.images()
	if len(images) == 0 {
		return nil, compose.Choice{}, source.lacks(images, v1.Platform{})
	}
	return source, compose.Choice{Desc: images[0], Platform: *images[0].Platform}, nil
}
