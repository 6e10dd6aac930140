//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/pkg/compression"
	"go.podman.io/storage"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// push uploads what Build made.
func (r *run) push(ctx context.Context) error {
	target, err := reference.ParseNormalizedNamed(r.instructions.Target)
	if err == nil && reference.IsNameOnly(target) {
		err = errors.New("it has no tag")
	}
	if err != nil {
		return report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", r.instructions.Target, err))
	}
	system, err := r.newSystem()
	if err != nil {
		return err
	}
	defer system.close()
	if err := system.logIn(r.Paths.Credentials, []reference.Named{target}); err != nil {
		return err
	}
	store, err := r.openStore()
	if err != nil {
		return err
	}
	defer closeStore(store)
	return r.upload(ctx, system, store, target)
}

func (r *run) upload(ctx context.Context, system *system, store storage.Store, target reference.Named) error {
	name, err := reference.ParseNormalizedNamed(resultName(r.instructions))
	if err != nil {
		return fmt.Errorf("naming the image that was built: %w", err)
	}
	image, err := find(store, name)
	if err != nil {
		return err
	}
	if image == nil {
		return errors.New("the store has no image that was built")
	}
	if err := r.checkLayers(store, image); err != nil {
		return err
	}
	about, err := system.about(target)
	if err != nil {
		return err
	}
	if about.CompressionFormat, err = r.compressionOfBase(store, image); err != nil {
		return err
	}
	from, err := inStore(store, name)
	if err != nil {
		return err
	}
	to, err := docker.NewReference(target)
	if err != nil {
		return report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", target, err))
	}
	transfer, err := r.newTransfer(system.policy)
	if err != nil {
		return err
	}
	defer transfer.close()
	what := "pushing " + target.String()
	pushed, err := transfer.copyImage(ctx, one{
		what: what, from: from, to: to, isUpload: true,
		options:     copy.Options{SourceCtx: &system.SystemContext, DestinationCtx: about},
		classifying: func(err error) error { return pushError(what, err) },
	})
	if err != nil {
		r.report.Bytes, r.report.Layers = transfer.moved()
		return err
	}
	if r.report.Bytes, r.report.Layers, err = uploaded(store, image, transfer, pushed); err != nil {
		return err
	}
	digest, err := manifest.Digest(pushed)
	if err != nil {
		return fmt.Errorf("reading the manifest that was pushed: %w", err)
	}
	r.report.Image = reference.TrimNamed(target).String() + "@" + digest.String()
	return nil
}

// checkLayers refuses layers that are links: the store was shared with the step that ran other people's lines, and a link would have files of
// this container, which has the push secret, uploaded.
func (r *run) checkLayers(store storage.Store, image *storage.Image) error {
	layers, err := chain(store, image)
	if err != nil {
		return err
	}
	for _, layer := range layers {
		dir := filepath.Join(r.Paths.store(), "overlay", layer.ID)
		for _, path := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "diff")} {
			info, err := os.Lstat(path)
			if err != nil {
				return fmt.Errorf("looking at layer %s: %w", layer.ID, err)
			}
			if !info.IsDir() {
				return report.NewAdmin(mcfgv1.ReasonBuildFailed, fmt.Errorf("layer %s in the store is no folder: somebody changed the store", layer.ID))
			}
		}
	}
	return nil
}

// uploaded counts what the registry did not have, as large as it was on the wire. The store says how large layers are unpacked, and the
// manifest how large they became.
func uploaded(store storage.Store, image *storage.Image, t *transfer, pushed []byte) (bytes int64, layers int, err error) {
	parsed, err := manifest.OCI1FromManifest(pushed)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the manifest that was pushed: %w", err)
	}
	unpacked, err := chain(store, image)
	if err != nil {
		return 0, 0, err
	}
	slices.Reverse(unpacked)
	if t.wasSent(parsed.Config.Digest.String()) {
		bytes += parsed.Config.Size
	}
	next := 0
	for _, layer := range parsed.Layers {
		if next < len(unpacked) && t.wasReused(unpacked[next].UncompressedDigest.String()) {
			next++
			continue
		}
		next++
		bytes += layer.Size
		layers++
	}
	return bytes, layers, nil
}

// compressionOfBase is how the base of the image compresses its layers, so that new ones are like them: nodes that can read the base can read
// the image. Nil is the libraries' default.
func (r *run) compressionOfBase(store storage.Store, image *storage.Image) (*compression.Algorithm, error) {
	pulled, err := r.pulled(store)
	if err != nil {
		return nil, err
	}
	layers, err := chain(store, image)
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		base := pulled[layer.ID]
		if base == "" {
			continue
		}
		text, err := store.ImageBigData(base, storage.ImageDigestBigDataKey)
		if err != nil {
			return nil, fmt.Errorf("reading the manifest of the base: %w", err)
		}
		if isZstd(text) {
			return &compression.Zstd, nil
		}
		return &compression.Gzip, nil
	}
	return nil, nil //nolint:nilnil // an image from scratch has no base
}

// isZstd looks at the last layer of a manifest, which is the newest.
func isZstd(text []byte) bool {
	parsed, err := manifest.OCI1FromManifest(text)
	if err != nil || len(parsed.Layers) == 0 {
		return false
	}
	return strings.HasSuffix(parsed.Layers[len(parsed.Layers)-1].MediaType, "+zstd")
}
