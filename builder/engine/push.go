//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/classify"
	"github.com/layerwright/layerwright/builder/engine/layout"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// push uploads what Export wrote, on top of the layers of the base that Fetch has noted.
func (r *run) push(ctx context.Context) error {
	targets, err := r.targets()
	if err != nil {
		return err
	}
	system, err := r.newSystem()
	if err != nil {
		return err
	}
	defer system.close()
	if err := system.logIn(r.Paths.Credentials, targets[:1]); err != nil {
		return err
	}
	exported, err := layout.Open(r.Paths.Layout)
	if err != nil {
		return err
	}
	defer exported.Close()
	image, closing, err := r.assembled(ctx, exported)
	if err != nil {
		return err
	}
	defer closing()
	return r.upload(ctx, system, image, targets)
}

// targets are the names under which the image may be pushed.
func (r *run) targets() ([]reference.Named, error) {
	var targets []reference.Named
	for _, name := range classify.Targets(r.instructions.Target) {
		target, err := reference.ParseNormalizedNamed(name)
		if err == nil && reference.IsNameOnly(target) {
			err = errors.New("it has no tag")
		}
		if err != nil {
			return nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", name, err))
		}
		targets = append(targets, target)
	}
	return targets, nil
}

// assembled is the image to upload. Its base is read with the pull secret.
func (r *run) assembled(ctx context.Context, l *layout.Folder) (*assembled, func(), error) {
	fetched, err := r.readFetchedImages()
	if err != nil {
		return nil, nil, err
	}
	image, err := l.Image()
	if err != nil {
		return nil, nil, err
	}
	base, err := image.Base(fetched)
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

func (r *run) upload(ctx context.Context, system *system, image *assembled, targets []reference.Named) error {
	about, err := system.about(ctx, targets[0])
	if err != nil {
		return err
	}
	transfer, err := r.newTransfer(system.policy)
	if err != nil {
		return err
	}
	defer transfer.close()
	to, pushed, err := transfer.push(ctx, image, targets, &copy.Options{
		// The layers of the base keep their digests: the controller compares them with those of the
		// base image.
		SourceCtx: &system.SystemContext, DestinationCtx: about, PreserveDigests: true,
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
	r.report.Image = reference.TrimNamed(to).String() + "@" + digest.String()
	return r.results(image, to)
}

// push uploads an image under the first of its tags. Where that stands for another image for good,
// as what is built again finds it, the next one has it: what was pushed last is found under the
// last one that is there.
func (t *transfer) push(
	ctx context.Context, image *assembled, targets []reference.Named, options *copy.Options,
) (to reference.Named, pushed []byte, err error) {
	for i, to := range targets {
		what := "pushing " + to.String()
		named, err := docker.NewReference(to)
		if err != nil {
			return nil, nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", to, err))
		}
		pushed, err = t.copyImage(ctx, imageCopy{
			what: what, from: image, to: named, isUpload: true, options: *options,
			classifying: func(err error) error { return classify.Push(what, err) },
		})
		if err != nil && !classify.IsImmutable(err) || i == len(targets)-1 || err == nil && !t.has(ctx, targets[i+1], options.DestinationCtx) {
			return to, pushed, err
		}
	}
	return nil, nil, errors.New("there is nothing to push it to")
}

// has reports whether there is a tag that follows another, from when tags were immutable.
func (t *transfer) has(ctx context.Context, target reference.Named, about *types.SystemContext) bool {
	limited, cancel := context.WithTimeout(ctx, t.run.Patience)
	defer cancel()
	named, err := docker.NewReference(target)
	if err == nil {
		_, err = docker.GetDigest(limited, about, named)
	}
	return err == nil
}

// results writes what Tekton shows of the image, where it wants that: there is no other step for
// it.
func (r *run) results(image *assembled, target reference.Named) error {
	if r.Paths.Results == "" {
		return nil
	}
	size := int64(len(image.config))
	for _, layer := range image.layers {
		size += layer.Size
	}
	_, digest, _ := strings.Cut(r.report.Image, "@")
	age, _ := ContainerAge() // for people
	for name, value := range map[string]string{
		backend.ResultURL: target.String(), backend.ResultDigest: digest, backend.ResultImages: r.report.Image,
		backend.ResultSize: strconv.FormatInt(size, 10), backend.ResultDuration: strconv.FormatInt(int64(age.Seconds()), 10),
	} {
		file := filepath.Join(r.Paths.Results, name)
		if err := errors.Join(os.RemoveAll(file), os.WriteFile(file, []byte(value), 0o644)); err != nil { //nolint:gosec // results are for everyone
			return fmt.Errorf("writing result %s: %w", name, err)
		}
	}
	return nil
}

// uploaded counts what the registry did not have of an image, as large as it was on the wire.
func (t *transfer) uploaded(image *assembled) (bytes int64, layers int) {
	if t.wasSent(digest.FromBytes(image.config).String()) {
		bytes += int64(len(image.config))
	}
	for _, layer := range image.layers {
		if !t.wasReused(layer.Digest.String()) {
			bytes += layer.Size
			layers++
		}
	}
	return bytes, layers
}
