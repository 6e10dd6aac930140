package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// bootc manages a host by bootc.
type bootc struct{ run Runner }

// Status implements Host.
func (b *bootc) Status(ctx context.Context) (Status, error) {
	out, err := b.run.Run(ctx, "bootc", "status", "--format=json")
	if err != nil {
		return Status{}, err
	}
	return parseBootc(out)
}

// Stage implements Host. The policy is that of the image that runs; the flag refuses one that
// accepts images without signatures.
func (b *bootc) Stage(ctx context.Context, image mcfgv1.ImageDigestFormat, trust Trust) error {
	args := []string{"switch", "--enforce-container-sigpolicy", string(image)}
	if trust == TrustDigest {
		args = slices.Delete(args, 1, 2)
	}
	_, err := b.run.Run(ctx, "bootc", args...)
	return explained(err)
}

// Unstage implements Host. bootc has no command for what is staged. A rollback given twice is none.
func (b *bootc) Unstage(ctx context.Context, image mcfgv1.ImageDigestFormat) error {
	s, err := b.Status(ctx)
	switch {
	case err != nil:
	case s.Staged.IsOf(image):
		err = firstThatWorks(ctx, b.run, ostreeUndeploy, rpmOSTreeCleanup)
	case s.RollbackQueued && s.Rollback.IsOf(image):
		_, err = b.run.Run(ctx, "bootc", "rollback")
	}
	return err
}

// Rollback implements Host. bootc's own command is a switch: given twice it changes nothing.
func (b *bootc) Rollback(ctx context.Context) error {
	s, err := b.Status(ctx)
	if err != nil || s.RollbackQueued {
		return err
	}
	_, err = b.run.Run(ctx, "bootc", "rollback")
	return err
}

// KernelArguments implements Host.
func (b *bootc) KernelArguments(ctx context.Context) ([]string, error) {
	out, err := kernelArguments(ctx, b.run)
	return out, explainMissingRPMOSTree(err)
}

// SetKernelArguments implements Host. bootc reads arguments from images alone, so that those of one
// node are rpm-ostree's, which hosts of bootc have too.
func (b *bootc) SetKernelArguments(ctx context.Context, change ArgumentChange) error {
	return explainMissingRPMOSTree(setKernelArguments(ctx, b.run, change))
}

func explainMissingRPMOSTree(err error) error {
	if errors.Is(err, ErrNoProgram) {
		return unsuitable("the host has no rpm-ostree, which kernel arguments of a single node need: put them into the image instead (/usr/lib/bootc/kargs.d)")
	}
	return err
}

// Reboot implements Host.
func (b *bootc) Reboot(ctx context.Context, why string) error { return reboot(ctx, b.run, why) }

// SoftReboot implements Host. bootc prepares one only when it stages, which would have anyone's
// reboot become a soft one from then on: what it does is ostree's, which bootc has with it.
func (b *bootc) SoftReboot(ctx context.Context) error {
	if _, err := b.run.Run(ctx, "ostree", "admin", "prepare-soft-reboot", "0"); err != nil {
		return err
	}
	_, err := b.run.Run(ctx, "systemctl", "soft-reboot")
	return err
}

// bootcHost is what of `bootc status --format=json` matters; v1 and its forerunners have the same.
type bootcHost struct {
	Kind   string
	Status struct {
		Booted, Staged, Rollback *bootcEntry
		RollbackQueued           bool
	}
}

// bootcEntry has no image where the deployment is of none.
type bootcEntry struct {
	Image *struct {
		Image       struct{ Image string }
		ImageDigest string
		Version     string
	}
	Ostree struct {
		Checksum     string
		DeploySerial int
	}
	Pinned, SoftRebootCapable bool
}

// parseBootc reads `bootc status --format=json`.
func parseBootc(out []byte) (Status, error) {
	var h bootcHost
	if err := json.Unmarshal(out, &h); err != nil {
		return Status{}, fmt.Errorf("reading what bootc status says: %w", err)
	}
	if h.Kind != "BootcHost" {
		return Status{}, fmt.Errorf("reading what bootc status says: its kind is %q, not BootcHost", h.Kind)
	}
	if h.Status.Booted == nil {
		return Status{}, unsuitable("bootc does not know what the host has booted: it was not deployed from an image")
	}
	return Status{
		Booted: h.Status.Booted.deployment(), Staged: h.Status.Staged.deployment(), Rollback: h.Status.Rollback.deployment(),
		RollbackQueued: h.Status.RollbackQueued,
	}, nil
}

func (e *bootcEntry) deployment() *Deployment {
	if e == nil {
		return nil
	}
	d := &Deployment{Pinned: e.Pinned, SoftReboots: e.SoftRebootCapable, Checkout: checkout(e.Ostree.Checksum, e.Ostree.DeploySerial)}
	if e.Image != nil {
		d.Image, d.Digest, d.Version = e.Image.Image.Image, e.Image.ImageDigest, e.Image.Version
	}
	return d
}
