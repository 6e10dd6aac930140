package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// rpmOSTree manages a host by rpm-ostree.
type rpmOSTree struct {
	run Runner
	has asker
}

// Status implements Host.
func (r *rpmOSTree) Status(ctx context.Context) (Status, error) {
	out, err := r.run.Run(ctx, "rpm-ostree", "status", "--json")
	if err != nil {
		return Status{}, err
	}
	return parseRPMOSTree(out)
}

// Stage implements Host. Newer versions take --experimental and do nothing for it.
func (r *rpmOSTree) Stage(ctx context.Context, image mcfgv1.ImageDigestFormat, trust Trust) error {
	verification := "ostree-image-signed:docker://"
	if trust == TrustDigest {
		verification = "ostree-unverified-image:docker://"
	}
	forgetLayers(ctx, r.run)
	_, err := r.run.Run(ctx, "rpm-ostree", "rebase", "--experimental", verification+string(image))
	if ctx.Err() != nil { // the daemon goes on when its client has ended
		stop, done := context.WithTimeout(context.WithoutCancel(ctx), waitDelay)
		defer done()
		_, cancelled := r.run.Run(stop, "rpm-ostree", "cancel")
		err = errors.Join(err, cancelled)
	}
	return explained(err)
}

// Unstage implements Host.
func (r *rpmOSTree) Unstage(ctx context.Context, image mcfgv1.ImageDigestFormat) error {
	s, err := r.Status(ctx)
	switch {
	case err != nil:
	case s.Staged.IsOf(image):
		err = firstThatWorks(ctx, r.run, rpmOSTreeCleanup, ostreeUndeploy)
	case s.RollbackQueued && s.Rollback.IsOf(image):
		_, err = r.run.Run(ctx, "rpm-ostree", "rollback")
	}
	return err
}

// Rollback implements Host. rpm-ostree's own command swaps the two: given twice it changes nothing.
// It refuses while something is staged.
func (r *rpmOSTree) Rollback(ctx context.Context) error {
	s, err := r.Status(ctx)
	if err != nil || s.RollbackQueued {
		return err
	}
	if s.Staged != nil {
		if _, err := r.run.Run(ctx, "rpm-ostree", "cleanup", "--pending"); err != nil {
			return err
		}
	}
	_, err = r.run.Run(ctx, "rpm-ostree", "rollback")
	return err
}

// KernelArguments implements Host.
func (r *rpmOSTree) KernelArguments(ctx context.Context) ([]string, error) {
	return kernelArguments(ctx, r.run)
}

// CheckKernelArguments implements Host: rpm-ostree makes any change.
func (r *rpmOSTree) CheckKernelArguments(context.Context, ArgumentChange) error { return nil }

// SetKernelArguments implements Host.
func (r *rpmOSTree) SetKernelArguments(ctx context.Context, change ArgumentChange) error {
	return setKernelArguments(ctx, r.run, change)
}

// Lock implements Host.
func (r *rpmOSTree) Lock(ctx context.Context) error {
	s, err := r.Status(ctx)
	if err != nil {
		return err
	}
	if s.Staged != nil {
		s.Staged.Locked = false // rpm-ostree says it of the file alone
	}
	return lockStaged(ctx, r.run, &s, r.has)
}

// Unlock implements Host.
func (r *rpmOSTree) Unlock(ctx context.Context) error {
	s, err := r.Status(ctx)
	if err != nil {
		return err
	}
	return unlockStaged(ctx, r.run, &s, r.has)
}

// WhyNotBooted implements Host.
func (r *rpmOSTree) WhyNotBooted(ctx context.Context) string { return whyNotBooted(ctx, r.run) }

// Reboot implements Host.
func (r *rpmOSTree) Reboot(ctx context.Context, why string) error { return reboot(ctx, r.run, why) }

// SoftReboot implements Host. rpm-ostree says of no deployment that it can be had like that.
func (r *rpmOSTree) SoftReboot(ctx context.Context) error { return r.Reboot(ctx, "") }

// reboot asks systemd, which does not wait for the reboot.
func reboot(ctx context.Context, run Runner, why string) error {
	_, err := run.Run(ctx, "systemctl", "reboot", "--message="+firstLine([]byte(why)))
	return err
}

// rpmOSTreeStatus is what of `rpm-ostree status --json` matters.
type rpmOSTreeStatus struct {
	Deployments []rpmOSTreeDeployment `json:"deployments"`
	// Transaction is what the daemon does: the method, who asked for it, and an address.
	Transaction []string `json:"transaction"`
}

type rpmOSTreeDeployment struct {
	Booted  bool   `json:"booted"`
	Staged  bool   `json:"staged"`
	Pinned  bool   `json:"pinned"`
	Locked  bool   `json:"finalization-locked"`
	Version string `json:"version"`
	// Unlocked is how /usr of it was made writable: none, development, transient or hotfix.
	Unlocked string `json:"unlocked"`
	// Checksum and Serial name the folder of its files.
	Checksum string `json:"checksum"`
	Serial   int    `json:"serial"`
	// Reference says also how the image is verified:
	// "ostree-image-signed:docker://registry/image@sha256:...".
	Reference string `json:"container-image-reference"`
	Digest    string `json:"container-image-reference-digest"`
	// CustomOrigin is what OpenShift's hosts wrote before there were images to rebase to:
	// "pivot://registry/image@sha256:...".
	CustomOrigin []string `json:"custom-origin"`
}

// parseRPMOSTree reads `rpm-ostree status --json`. Deployments come in the order in which they
// boot: the staged one, or a rollback that is queued, before the booted one.
func parseRPMOSTree(out []byte) (Status, error) {
	var list rpmOSTreeStatus
	if err := json.Unmarshal(out, &list); err != nil {
		return Status{}, fmt.Errorf("reading what rpm-ostree status says: %w", err)
	}
	if len(list.Deployments) == 0 {
		return Status{}, errors.New("reading what rpm-ostree status says: it has no deployments")
	}
	booted := slices.IndexFunc(list.Deployments, func(d rpmOSTreeDeployment) bool { return d.Booted })
	if booted < 0 {
		return Status{}, unsuitable("rpm-ostree does not know what the host has booted")
	}
	how := list.Deployments[booted].Unlocked
	s := Status{Booted: list.Deployments[booted].deployment(), UsrIsUnlocked: how != "" && how != "none"}
	if len(list.Transaction) > 0 {
		s.Transaction = fault.Clean(list.Transaction[0])
	}
	for i := range list.Deployments {
		d := &list.Deployments[i]
		switch {
		case d.Staged && s.Staged == nil:
			s.Staged = d.deployment()
		case d.Staged || d.Booted || s.Rollback != nil:
		default:
			s.Rollback, s.RollbackQueued = d.deployment(), i < booted
		}
	}
	return s, nil
}

func (d *rpmOSTreeDeployment) deployment() *Deployment {
	out := &Deployment{
		Image: imageOf(d.Reference), Digest: d.Digest, Version: d.Version, Pinned: d.Pinned, Locked: d.Locked, Checkout: checkout(d.Checksum, d.Serial),
	}
	if out.Image == "" && len(d.CustomOrigin) > 0 {
		out.Image, _ = strings.CutPrefix(d.CustomOrigin[0], "pivot://")
	}
	if out.Digest == "" {
		out.Digest = mcfgv1.ImageDigestFormat(out.Image).Digest()
	}
	return out
}

// imageOf is the image of a reference of ostree's: after what says how it is verified, and how it
// is transported.
func imageOf(reference string) string {
	for _, transport := range []string{"docker://", "registry:"} {
		if _, image, found := strings.Cut(reference, transport); found {
			return image
		}
	}
	for _, verification := range []string{"ostree-unverified-registry:", "ostree-unverified-image:"} {
		if image, found := strings.CutPrefix(reference, verification); found {
			return image
		}
	}
	return reference
}
