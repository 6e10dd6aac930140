package attached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	inprocess "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/trust/sign"
)

// Image is an image of a release.
type Image struct {
	// Name is its repository, and Tag its tag there.
	Name, Tag string
	Index     v1.ImageIndex
	// Statements are what is said about it.
	Statements []sign.Statement
}

// Write writes the image into a new OCI layout. With a key it is signed, and the statements are
// signed and attached as cosign does; without one they are attached as referrers.
func Write(ctx context.Context, dir string, image Image, key *sign.Key) error {
	server := inprocess.New(inprocess.WithReferrersSupport(true), inprocess.Logger(log.New(io.Discard, "", 0)))
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(handlerTransport{server})}
	tag, err := name.NewTag(image.Name + ":" + image.Tag)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(tag, image.Index, options...); err != nil {
		return fmt.Errorf("collecting %s: %w", tag, err)
	}
	digest, err := image.Index.Digest()
	if err != nil {
		return err
	}
	if key != nil {
		err = signed(ctx, server, tag.Context().Digest(digest.String()).String(), image.Statements, key)
	} else {
		err = unsigned(tag.Context(), image, options)
	}
	if err != nil {
		return err
	}
	return export(dir, tag, image.Index, options)
}

// signed signs and attests an image of the in-process registry.
func signed(ctx context.Context, server http.Handler, pinned string, statements []sign.Statement, key *sign.Key) error {
	signer, client := sign.NewSigner(sign.OneKey(key)), registry.New(registry.Options{Transport: handlerTransport{server}})
	if _, err := signer.Attest(ctx, client, pinned, statements...); err != nil {
		return err
	}
	_, err := signer.Sign(ctx, client, pinned)
	return err
}

// unsigned attaches statements as referrers: their predicates as they are.
func unsigned(to name.Repository, image Image, options []remote.Option) error {
	subject, err := descriptor(image.Index)
	if err != nil {
		return err
	}
	for _, statement := range image.Statements {
		layer := static.NewLayer(statement.Predicate, types.MediaType(mediaType(statement)))
		artifact, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(mediaType(statement))), layer)
		if err != nil {
			return err
		}
		referrer, ok := mutate.Subject(artifact, *subject).(v1.Image)
		if !ok {
			return errors.New("attaching a statement: it is no image any more")
		}
		attached, err := referrer.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(to.Digest(attached.String()), referrer, options...); err != nil {
			return fmt.Errorf("attaching %s: %w", statement.PredicateType, err)
		}
	}
	return nil
}

// mediaType is that of a predicate.
func mediaType(statement sign.Statement) string {
	if statement.PredicateType == sign.PredicateSPDX {
		return "application/spdx+json"
	}
	return "application/vnd.in-toto.provenance+json"
}

// export writes all that the repository has into a layout, sorted.
func export(dir string, tag name.Tag, index v1.ImageIndex, options []remote.Option) error {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	tags, err := remote.List(tag.Context(), options...)
	if err != nil {
		return err
	}
	slices.Sort(tags)
	for _, named := range tags {
		if err := add(path, tag.Context().Tag(named), options, layout.WithAnnotations(map[string]string{imagespec.AnnotationRefName: named})); err != nil {
			return err
		}
	}
	referrers, err := referrersOf(tag.Context(), index, options)
	if err != nil {
		return err
	}
	for _, digest := range referrers {
		if err := add(path, tag.Context().Digest(digest), options); err != nil {
			return err
		}
	}
	return nil
}

func add(path layout.Path, ref name.Reference, options []remote.Option, as ...layout.Option) error {
	found, err := remote.Get(ref, options...)
	if err != nil {
		return err
	}
	if found.MediaType.IsIndex() {
		index, err := found.ImageIndex()
		if err != nil {
			return err
		}
		return path.AppendIndex(index, as...)
	}
	image, err := found.Image()
	if err != nil {
		return err
	}
	return path.AppendImage(image, as...)
}

// referrersOf are the digests of what refers to an index, or to an image that it lists.
func referrersOf(repository name.Repository, index v1.ImageIndex, options []remote.Option) ([]string, error) {
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	self, err := index.Digest()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, subject := range append([]v1.Descriptor{{Digest: self}}, list.Manifests...) {
		found, err := remote.Referrers(repository.Digest(subject.Digest.String()), options...)
		if err != nil {
			return nil, err
		}
		referrers, err := found.IndexManifest()
		if err != nil {
			return nil, err
		}
		for _, r := range referrers.Manifests {
			out = append(out, r.Digest.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func descriptor(index v1.ImageIndex) (*v1.Descriptor, error) {
	raw, err := index.RawManifest()
	if err != nil {
		return nil, err
	}
	digest, err := index.Digest()
	if err != nil {
		return nil, err
	}
	mediaType, err := index.MediaType()
	return &v1.Descriptor{MediaType: mediaType, Digest: digest, Size: int64(len(raw))}, err
}

// handlerTransport answers requests for any host by a handler.
type handlerTransport struct{ handler http.Handler }

// RoundTrip calls the handler.
func (t handlerTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body == nil {
		request = request.Clone(request.Context())
		request.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	t.handler.ServeHTTP(recorder, request)
	response := recorder.Result()
	response.Request = request
	return response, request.Body.Close()
}
