package deployments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Image is a container image with an operating system.
type Image struct {
	// Digest is that of its manifest, Version its label.
	Digest, Version string
	// Layers are in the order in which they are applied.
	Layers []Layer
}

// Layer is one layer of an image.
type Layer struct {
	// Digest is that of the compressed layer.
	Digest string
	// Open opens the tar archive. The error of a read or of Close says that the layer is not what
	// the digest says.
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Metadata of the commit of an image, by ostree's names.
const (
	keyVersion = "version"
	keyDigest  = "ostree.manifest-digest"
)

// ErrNoKernel means that an image can't boot. ostree would stage it.
var ErrNoKernel = errors.New("failed to find kernel in /usr/lib/modules")

// Import makes a commit of an image: each layer is one of its own, which the next image with that
// layer uses again.
func (s *Sysroot) Import(ctx context.Context, image *Image) (commit string, err error) {
	if commit, err = s.ostree(ctx, "rev-parse", imageRef(image)); err == nil {
		return commit, nil
	}
	for _, layer := range image.Layers {
		if err := s.importLayer(ctx, layer); err != nil {
			return "", fmt.Errorf("importing: layer %s: %w", layer.Digest, err)
		}
	}
	work := filepath.Join(s.repo(), "tmp", "layerwright-import")
	if err := os.RemoveAll(work); err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for _, layer := range image.Layers {
		if _, err := s.ostree(ctx, "checkout", "--union", "--whiteouts", "-H", layerRef(layer.Digest), work); err != nil {
			return "", fmt.Errorf("joining layer %s: %w", layer.Digest, err)
		}
	}
	if err := arrange(work); err != nil {
		return "", err
	}
	return s.ostree(ctx, "commit", "--branch="+imageRef(image), "--tree=dir="+work, "--link-checkout-speedup", "--consume",
		"--add-metadata-string="+keyVersion+"="+image.Version,
		"--add-metadata-string="+keyDigest+"="+image.Digest)
}

// importLayer commits a layer, unless the host has it.
func (s *Sysroot) importLayer(ctx context.Context, layer Layer) error {
	if _, err := s.ostree(ctx, "rev-parse", layerRef(layer.Digest)); err == nil {
		return nil
	}
	content, err := layer.Open(ctx)
	if err != nil {
		return err
	}
	kept := &keeper{reader: content}
	_, err = s.Tool.run(ctx, kept, "commit", "--repo="+s.repo(), "--branch="+layerRef(layer.Digest), "--tree=tar=/dev/stdin", "--tar-autocreate-parents")
	if errClose := content.Close(); kept.err == nil {
		kept.err = errClose
	}
	if kept.err == nil {
		return err
	}
	// What the registry said matters more than what ostree says of the half of a layer.
	if err == nil {
		_, err = s.ostree(ctx, "refs", "--delete", layerRef(layer.Digest))
	} else {
		err = nil
	}
	return errors.Join(kept.err, err)
}

// keeper remembers why reading ended.
type keeper struct {
	reader io.Reader
	err    error
}

// Read implements io.Reader.
func (k *keeper) Read(p []byte) (int, error) {
	n, err := k.reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		k.err = err
	}
	return n, err
}

// arrange makes of an image's tree what ostree deploys: /etc is a default below /usr, and /var is
// the host's own.
func arrange(tree string) error {
	if kernels, err := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*/vmlinuz")); err != nil || len(kernels) == 0 {
		return errors.Join(err, ErrNoKernel)
	}
	etc, defaults := filepath.Join(tree, "etc"), filepath.Join(tree, "usr", "etc")
	if fileExists(etc) {
		if err := os.RemoveAll(defaults); err != nil {
			return err
		}
		if err := os.Rename(etc, defaults); err != nil {
			return err
		}
	}
	for _, dir := range []string{"var", "run", "tmp", "dev", "proc", "sys", "boot"} {
		path := filepath.Join(tree, dir)
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// metadataPattern finds the strings of a commit's metadata in GVariant's text: 'version': <'9.6'>.
var metadataPattern = regexp.MustCompile(`'([a-z.-]+)': <'([^']*)'>`)

// metadata are the strings of a commit's metadata.
func (s *Sysroot) metadata(ctx context.Context, commit string) (map[string]string, error) {
	text, err := s.ostree(ctx, "show", "--raw", commit)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, m := range metadataPattern.FindAllStringSubmatch(text, -1) {
		out[m[1]] = m[2]
	}
	return out, nil
}

// Refs can't have a colon.
func layerRef(digest string) string {
	return "layerwright/layer/" + strings.ReplaceAll(digest, ":", "/")
}

// imageRef has no name of the image: where a deployment's image is from is its origin's to say.
func imageRef(image *Image) string {
	return "layerwright/image/" + strings.ReplaceAll(image.Digest, ":", "/")
}
