package deployments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Image is a container image with an operating system.
type Image struct {
	// Digest is that of its manifest, Version its label.
	Digest, Version string
	// Layers are in the order in which they are applied.
	Layers []Layer
	// Base is what the first layers are where they are a commit of ostree's.
	Base Base
}

// Base is a commit of ostree's in the first layers of an image, as those of CoreOS have it. Without
// a commit, the image is one as any other.
type Base struct {
	Commit string
	Layers int
}

// Labels of images with a commit.
const (
	labelCommit = "ostree.commit"
	labelLast   = "ostree.final-diffid"
)

// FindBase is the base of an image with these labels, whose layers have these digests when they are
// unpacked.
func FindBase(labels map[string]string, unpacked []string) (Base, error) {
	last, has := labels[labelLast]
	if !has {
		return Base{}, nil
	}
	at := slices.Index(unpacked, last)
	if at < 0 {
		return Base{}, fmt.Errorf("Missing %s %s", labelLast, last) //nolint:staticcheck // the importer's own words
	}
	return Base{Commit: labels[labelCommit], Layers: at + 1}, nil
}

// Layer is one layer of an image.
type Layer struct {
	// Digest is that of the compressed layer.
	Digest string
	// Open opens the tar archive. The error of a read or of Close says that the layer is not what
	// the digest says.
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Metadata of the commit of an image, by ostree's names, and what it consists of, by digests.
const (
	keyVersion = "version"
	keyDigest  = "ostree.manifest-digest"
	keyParts   = "layerwright.parts"
)

// ErrNoKernel means that an image can't boot. ostree would stage it.
var ErrNoKernel = errors.New("failed to find kernel in /usr/lib/modules")

// Import makes a commit of an image: each layer is one of its own, which the next image with that
// layer uses again.
func (s *Sysroot) Import(ctx context.Context, image *Image) (commit string, err error) {
	if commit, err = s.ostree(ctx, "rev-parse", imageRef(image.Digest)); err == nil {
		return commit, nil
	}
	keepsVar, err := s.keepsVar(ctx)
	if err != nil {
		return "", err
	}
	kept := filter{keepsVar: keepsVar, keepsAll: image.Base.Commit == ""}
	work := filepath.Join(s.repo(), "tmp", "layerwright-import")
	if err := os.RemoveAll(work); err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	var parts []string
	if image.Base.Commit != "" {
		if err := s.importBase(ctx, image, work); err != nil {
			return "", err
		}
		parts = append(parts, baseRef(image.Base.Commit))
		// Without the file, neither is on.
		text, _ := s.ostree(ctx, "cat", baseRef(image.Base.Commit), "/usr/lib/ostree/prepare-root.conf")
		kept.keepsAll = overlaysRoot(text)
	}
	for _, layer := range image.Layers[image.Base.Layers:] {
		if err := s.importLayer(ctx, layer, kept.copy); err != nil {
			return "", fmt.Errorf("importing: layer %s: %w", layer.Digest, err)
		}
		parts = append(parts, layerRef(layer.Digest))
	}
	for _, part := range parts {
		if err := s.join(ctx, part, work); err != nil {
			return "", err
		}
	}
	if err := arrange(work); err != nil {
		return "", err
	}
	return s.ostree(ctx, "commit", "--branch="+imageRef(image.Digest), "--tree=dir="+work, "--link-checkout-speedup", "--consume",
		"--add-metadata-string="+keyVersion+"="+image.Version,
		"--add-metadata-string="+keyDigest+"="+image.Digest,
		"--add-metadata-string="+keyParts+"="+strings.Join(parts, " "))
}

// join puts a layer over those before it.
func (s *Sysroot) join(ctx context.Context, ref, dir string) error {
	if _, err := s.ostree(ctx, "checkout", "--union", "--whiteouts", "-H", ref, dir); err != nil {
		return fmt.Errorf("joining %s: %w", ref, err)
	}
	// ostree sets the time to 1970, and removes what is as old as that from its temporary folder.
	now := time.Now()
	return os.Chtimes(dir, now, now)
}

// importBase takes the commit out of the layers that have it, unless the host has it. They are a
// repository of ostree's, in a format that it reads.
func (s *Sysroot) importBase(ctx context.Context, image *Image, work string) error {
	ref := baseRef(image.Base.Commit)
	if _, err := s.ostree(ctx, "rev-parse", ref); err == nil {
		return nil
	}
	layers := image.Layers[:image.Base.Layers]
	for _, layer := range layers {
		if err := s.importLayer(ctx, layer, copyAll); err != nil {
			return fmt.Errorf("importing: layer %s: %w", layer.Digest, err)
		}
		if err := s.join(ctx, layerRef(layer.Digest), work); err != nil {
			return err
		}
	}
	if _, err := s.ostree(ctx, "pull-local", filepath.Join(work, "sysroot", "ostree", "repo"), image.Base.Commit); err != nil {
		return fmt.Errorf("importing the commit of the base: %w", err)
	}
	if _, err := s.ostree(ctx, "refs", "--create="+ref, image.Base.Commit); err != nil {
		return err
	}
	for _, layer := range layers {
		if _, err := s.ostree(ctx, "refs", "--delete", layerRef(layer.Digest)); err != nil {
			return err
		}
	}
	return os.RemoveAll(work)
}

// importLayer commits a layer, unless the host has it.
func (s *Sysroot) importLayer(ctx context.Context, layer Layer, transform func(io.Writer, io.Reader) error) error {
	if _, err := s.ostree(ctx, "rev-parse", layerRef(layer.Digest)); err == nil {
		return nil
	}
	content, err := layer.Open(ctx)
	if err != nil {
		return err
	}
	read, kept := &keeper{reader: content}, &keeper{}
	pipe, into := io.Pipe()
	kept.reader = pipe
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = into.CloseWithError(transform(into, read)) // it never fails
	}()
	_, err = s.Tool.run(ctx, kept, "commit", "--repo="+s.repo(), "--branch="+layerRef(layer.Digest), "--tree=tar=/dev/stdin", "--tar-autocreate-parents")
	_ = pipe.Close()
	<-done
	errClose := content.Close()
	// What the registry said matters more than what ostree says of the half of a layer.
	why := cmp.Or(read.err, kept.err)
	if why == nil && err == nil {
		why = errClose
	}
	if why == nil {
		return err
	}
	if err == nil {
		_, err = s.ostree(ctx, "refs", "--delete", layerRef(layer.Digest))
	} else {
		err = nil
	}
	return errors.Join(why, err)
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

// arrange makes of an image's tree what ostree deploys.
func arrange(tree string) error {
	if kernels, err := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*/vmlinuz")); err != nil || len(kernels) == 0 {
		return errors.Join(err, ErrNoKernel)
	}
	for _, dir := range []string{"var", "run", "tmp", "dev", "proc", "sys", "boot"} {
		if err := os.Mkdir(filepath.Join(tree, dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
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

// prefix begins the names of all refs.
const prefix = "layerwright/"

// Refs can't have a colon.
func layerRef(digest string) string {
	return prefix + "blob/" + strings.ReplaceAll(digest, ":", "/")
}

func baseRef(commit string) string { return prefix + "base/" + commit }

// imageRef has no name of the image: where a deployment's image is from is its origin's to say.
func imageRef(digest string) string {
	return prefix + "image/" + strings.ReplaceAll(digest, ":", "/")
}

// Prune removes what no deployment is made of: images, their layers, and files.
func (s *Sysroot) Prune(ctx context.Context) error {
	list, err := s.List(ctx)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, d := range list {
		about, err := s.metadata(ctx, d.Checksum)
		if err != nil {
			return err
		}
		keep[imageRef(d.Digest)] = true
		for _, part := range strings.Fields(about[keyParts]) {
			keep[part] = true
		}
	}
	refs, err := s.ostree(ctx, "refs", "--list", strings.TrimSuffix(prefix, "/"))
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(strings.Fields(refs), func(ref string) bool { return keep[ref] })
	if len(gone) == 0 {
		return nil
	}
	for _, ref := range gone {
		if _, err := s.ostree(ctx, "refs", "--delete", ref); err != nil {
			return err
		}
	}
	_, err = s.ostree(ctx, "prune", "--refs-only", "--depth=0")
	return err
}
