package push

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Images pushes each layout of a folder to the repository of the same name below a registry or a
// part of one, such as registry.example.com/layerwright. It returns the pinned names of the images
// by that of their layouts. Progress is told each image before it is pushed.
func Images(ctx context.Context, folder, to string, progress func(image string), options ...remote.Option) (map[string]string, error) {
	layouts, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	pushed := map[string]string{}
	for _, entry := range layouts {
		repository, err := name.NewRepository(strings.TrimSuffix(to, "/") + "/" + entry.Name())
		if err == nil && strings.Contains(to, "://") {
			err = errors.New("it has no scheme")
		}
		if err != nil {
			return nil, fmt.Errorf("%q is no registry, or part of one, such as registry.example.com/layerwright: %w", to, err)
		}
		progress(repository.String())
		pinned, err := one(ctx, filepath.Join(folder, entry.Name()), repository, append(options, remote.WithContext(ctx)))
		if err != nil {
			return nil, explain(repository, err)
		}
		pushed[entry.Name()] = pinned
	}
	return pushed, nil
}

// one pushes what is in a layout: the image by its digest, then what is attached to it, then its
// tag.
func one(ctx context.Context, dir string, to name.Repository, options []remote.Option) (string, error) {
	from, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", err
	}
	list, err := from.IndexManifest()
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(list.Manifests, func(d v1.Descriptor) bool { return d.MediaType.IsIndex() })
	if i < 0 {
		return "", fmt.Errorf("%q has no index of images", dir)
	}
	release := list.Manifests[i]
	index, err := from.ImageIndex(release.Digest)
	if err != nil {
		return "", err
	}
	pinned := to.Digest(release.Digest.String())
	if err := remote.WriteIndex(pinned, index, options...); err != nil {
		return "", err
	}
	for _, descriptor := range slices.Delete(slices.Clone(list.Manifests), i, i+1) {
		image, err := from.Image(descriptor.Digest)
		if err != nil {
			return "", err
		}
		var ref name.Reference = to.Digest(descriptor.Digest.String())
		if tag := descriptor.Annotations[imagespec.AnnotationRefName]; tag != "" {
			ref = to.Tag(tag)
			if image, err = besideOthers(ref, image, options); err != nil {
				return "", err
			}
		}
		if err := remote.Write(ref, image, options...); err != nil {
			return "", err
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return pinned.String(), remote.Tag(to.Tag(release.Annotations[imagespec.AnnotationRefName]), index, options...)
}

// besideOthers is an image of signatures or statements with those that the registry has under the
// same tag, and ours after them.
func besideOthers(tag name.Reference, ours v1.Image, options []remote.Option) (v1.Image, error) {
	theirs, err := remote.Image(tag, options...)
	if isNotFound(err) {
		return ours, nil
	}
	if err != nil {
		return nil, err
	}
	there, err := theirs.Manifest()
	if err != nil {
		return nil, err
	}
	add, err := ours.Manifest()
	if err != nil {
		return nil, err
	}
	out := theirs
	for _, d := range add.Layers {
		if slices.ContainsFunc(there.Layers, func(t v1.Descriptor) bool { return t.Digest == d.Digest && maps.Equal(t.Annotations, d.Annotations) }) {
			continue
		}
		layer, err := ours.LayerByDigest(d.Digest)
		if err != nil {
			return nil, err
		}
		if out, err = mutate.Append(out, mutate.Addendum{Layer: layer, MediaType: d.MediaType, Annotations: d.Annotations}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func isNotFound(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

// explain says what to do about an error of the registry.
func explain(to name.Repository, err error) error {
	var answer *transport.Error
	host := to.RegistryStr()
	fix := ""
	switch {
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		fix = fmt.Sprintf("the account has no right to push; log in to %s with `docker login` or `podman login`, or set REGISTRY_AUTH_FILE", host)
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		fix = "the registry does not make repositories by itself; create " + to.RepositoryStr()
	case strings.Contains(err.Error(), "x509: "): // of several types, some behind others
		fix = "the registry's certificate is not trusted; name the certificate of its authority with --ca"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		fix = "the registry has no TLS, and nothing is pushed without; give it a certificate"
	case strings.Contains(err.Error(), "dial tcp"):
		fix = "no registry answers at " + host + "; check host and port"
	}
	if fix != "" {
		return fmt.Errorf("pushing to %s: %s: %w", to, fix, err)
	}
	return fmt.Errorf("pushing to %s: %w", to, err)
}
