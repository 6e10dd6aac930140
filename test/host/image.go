//go:build containers_image_openpgp

package main

import (
	"context"
	"errors"
	"strings"

	"github.com/layerwright/layerwright/test/host/deployments"
	"github.com/layerwright/layerwright/test/host/power"
	"github.com/layerwright/layerwright/test/host/pull"
)

// How an image is verified, in the words of ostree's references.
const (
	signed     = "ostree-image-signed:docker://"
	unverified = "ostree-unverified-registry:"
	// insecure is what rpm-ostree calls an image that the policy may accept without a signature.
	insecure = "ostree-unverified-image:docker://"
)

// verifications are all of them.
var verifications = []string{signed, unverified, insecure}

// imageName is an image without how it is verified.
func imageName(reference string) string {
	for _, verification := range verifications {
		reference = strings.TrimPrefix(reference, verification)
	}
	return reference
}

// stage pulls an image and makes it what boots next.
func (h *host) stage(ctx context.Context, reference string) error {
	puller, err := pull.Open(ctx, imageName(reference))
	if err != nil {
		return err
	}
	defer func() { _ = puller.Close() }()
	if strings.HasPrefix(reference, signed) {
		if err := puller.RequireSignatures(); err != nil {
			return err
		}
	}
	puller.Cut = h.line.Has(power.PullCut)
	image, err := puller.Image(ctx)
	if err != nil {
		return err
	}
	commit, err := h.imported(ctx, image)
	if err != nil {
		return err
	}
	args, err := h.sysroot.NextArgs()
	if err != nil {
		return err
	}
	if err := h.sysroot.Deploy(ctx, deployments.Request{Commit: commit, Reference: reference, Args: args, Stage: true}); err != nil {
		return err
	}
	return h.sysroot.Prune(ctx)
}

func (h *host) imported(ctx context.Context, image *deployments.Image) (commit string, err error) {
	if h.line.Has(power.DiskFull) {
		restore, err := h.sysroot.Fill(ctx)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, restore()) }()
	}
	return h.sysroot.Import(ctx, image)
}

// found are the deployments by what they are for.
type found struct {
	booted, staged, rollback *deployments.Deployment
	rollbackQueued           bool
	all                      []deployments.Deployment
}

func (h *host) find(ctx context.Context) (*found, error) {
	list, err := h.sysroot.List(ctx)
	if err != nil {
		return nil, err
	}
	f := &found{all: list}
	for i := range list {
		d := &list[i]
		switch {
		case d.Booted:
			f.booted = d
		case d.Staged:
			f.staged = d
		case f.rollback == nil:
			f.rollback, f.rollbackQueued = d, f.booted == nil
		}
	}
	return f, nil
}

// rollBack makes the rollback deployment what boots next, and drops what is staged.
func (h *host) rollBack(ctx context.Context) error {
	f, err := h.find(ctx)
	if err != nil {
		return err
	}
	if f.rollback == nil {
		return errors.New("no rollback deployment available")
	}
	if err := h.sysroot.Unstage(ctx); err != nil {
		return err
	}
	return h.sysroot.SwapFirst()
}
