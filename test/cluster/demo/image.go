package demo

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// images reads what stands in the registry, as whoever may only pull.
type images struct {
	options func(context.Context) []remote.Option
}

// manifestFacts are an image's layers by digest, bottom first, and the bytes of all of them as the
// registry has them.
type manifestFacts struct {
	layers []v1.Hash
	bytes  int64
}

func (i images) facts(ctx context.Context, reference string) (*manifestFacts, error) {
	image, err := i.image(ctx, reference)
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of %s: %w", reference, err)
	}
	found := &manifestFacts{bytes: manifest.Config.Size}
	for _, layer := range manifest.Layers {
		found.layers = append(found.layers, layer.Digest)
		found.bytes += layer.Size
	}
	return found, nil
}

func (i images) image(ctx context.Context, reference string) (v1.Image, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, err
	}
	image, err := remote.Image(ref, i.options(ctx)...)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", reference, err)
	}
	return image, nil
}

// tag is a tag of a repository, and the digest that it stands for.
type tag struct{ name, digest string }

func (i images) tags(ctx context.Context, repository string) ([]tag, error) {
	repo, err := name.NewRepository(repository)
	if err != nil {
		return nil, err
	}
	names, err := remote.List(repo, i.options(ctx)...)
	if err != nil {
		return nil, fmt.Errorf("listing the tags of %s: %w", repository, err)
	}
	slices.Sort(names)
	tags := make([]tag, 0, len(names))
	for _, n := range names {
		found, err := remote.Head(repo.Tag(n), i.options(ctx)...)
		if gone := (*transport.Error)(nil); errors.As(err, &gone) && gone.StatusCode == http.StatusNotFound {
			continue // retention has removed it since
		}
		if err != nil {
			return nil, fmt.Errorf("reading the tag %s of %s: %w", n, repository, err)
		}
		tags = append(tags, tag{name: n, digest: found.Digest.String()})
	}
	return tags, nil
}

// top is what an image has above its base image.
type top struct {
	layers int
	bytes  int64
	// paths are its files and links, and contents those of its regular files by path.
	paths    []string
	contents map[string]string
}

// has reports whether a path is one of the files.
func (t *top) has(path string) bool {
	_, ok := t.contents[path]
	return ok
}

// top unpacks the layers that an image has above its base image. It is nil if the image is on
// another one.
func (i images) top(ctx context.Context, reference string, base *manifestFacts) (*top, error) {
	image, err := i.image(ctx, reference)
	if err != nil {
		return nil, err
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, fmt.Errorf("reading the layers of %s: %w", reference, err)
	}
	found := &top{contents: map[string]string{}}
	for n, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		if n < len(base.layers) {
			if digest != base.layers[n] {
				return nil, nil //nolint:nilnil // see above
			}
			continue
		}
		if err := found.add(layer); err != nil {
			return nil, fmt.Errorf("unpacking layer %s of %s: %w", digest, reference, err)
		}
	}
	return found, nil
}

func (t *top) add(layer v1.Layer) error {
	bytes, err := layer.Size()
	if err != nil {
		return err
	}
	t.layers++
	t.bytes += bytes
	content, err := layer.Uncompressed()
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	return t.read(content)
}

// maxFile is more than any file of the objects here has.
const maxFile = 1 << 20

// read takes in a layer's archive.
func (t *top) read(archive io.Reader) error {
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := "/" + strings.Trim(header.Name, "/")
		switch header.Typeflag {
		case tar.TypeReg:
			content, err := io.ReadAll(io.LimitReader(r, maxFile))
			if err != nil {
				return err
			}
			t.paths, t.contents[path] = append(t.paths, path), string(content)
		case tar.TypeSymlink:
			t.paths = append(t.paths, path+" -> "+header.Linkname)
		default: // folders
		}
	}
}
