//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// push uploads what Export wrote, on top of the layers of the base that Fetch has noted.
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
	exported, err := openLayout(r.Paths.Layout)
	if err != nil {
		return err
	}
	defer exported.close()
	image, closing, err := r.assembled(ctx, exported)
	if err != nil {
		return err
	}
	defer closing()
	return r.upload(ctx, system, image, target)
}

// assembled is the image to upload. Its base is read with the pull secret.
func (r *run) assembled(ctx context.Context, l *layout) (*assembled, func(), error) {
	fetched, err := r.readFetchedImages()
	if err != nil {
		return nil, nil, err
	}
	image, err := l.image()
	if err != nil {
		return nil, nil, err
	}
	base, err := image.base(fetched)
	if err != nil {
		return nil, nil, err
	}
	made, err := assemble(l, image, base)
	if err != nil || base == nil {
		return made, func() {}, err
	}
	system, err := r.newSystem()
	if err != nil {
		return nil, nil, err
	}
	named, err := reference.ParseNormalizedNamed(base.Image)
	if err == nil {
		err = system.logIn(r.Paths.BaseCredentials, []reference.Named{named})
	}
	if err == nil {
		err = made.on(ctx, base, system)
	}
	if err != nil {
		system.close()
		return nil, nil, err
	}
	return made, system.close, nil
}

func (r *run) upload(ctx context.Context, system *system, image *assembled, target reference.Named) error {
	about, err := system.about(ctx, target)
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
		what: what, from: image, to: to, isUpload: true,
		// The layers of the base keep their digests: the controller compares them with those of the
		// base image.
		options:     copy.Options{SourceCtx: &system.SystemContext, DestinationCtx: about, PreserveDigests: true},
		classifying: func(err error) error { return pushError(what, err) },
	})
	if err != nil {
		r.report.Bytes, r.report.Layers = transfer.moved()
		return err
	}
	r.report.Bytes, r.report.Layers = transfer.uploaded(image)
	digest, err := manifest.Digest(pushed)
	if err != nil {
		return fmt.Errorf("reading the manifest that was pushed: %w", err)
	}
	r.report.Image = reference.TrimNamed(target).String() + "@" + digest.String()
	return nil
}

// secrets are the credentials that the step has. A file that cannot be read is reported by whoever
// needs it.
func (p Paths) secrets() report.Secrets {
	var files [][]byte
	for _, dir := range []string{p.Credentials, p.BaseCredentials} {
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			if text, err := os.ReadFile(filepath.Join(dir, entry.Name())); err == nil {
				files = append(files, text)
			}
		}
	}
	return report.NewSecrets(files...)
}
