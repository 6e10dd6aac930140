package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// bootc manages a host by bootc.
type bootc struct {
	run     Runner
	root    fs.FS
	version version
	has     asker
}

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
	s, err := b.Status(ctx)
	if err != nil {
		return err
	}
	if !s.IsComposefs {
		forgetLayers(ctx, b.run)
	}
	_, err = b.run.Run(ctx, "bootc", args...)
	return explained(err)
}

// Unstage implements Host. bootc has no command for what is staged. A rollback given twice is none.
func (b *bootc) Unstage(ctx context.Context, image mcfgv1.ImageDigestFormat) error {
	s, err := b.Status(ctx)
	switch {
	case err != nil:
	case s.Staged.IsOf(image) && s.IsComposefs:
		err = cannot(mcfgv1.ReasonUnstagingUnsupported, "its bootc %s has no command that removes a staged image from a composefs store: "+
			"the next reboot boots it; run bootc rollback after that, or bootc switch to the image that it should have", b.version)
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

// abilities asks the host what it has for kernel arguments. bootc's command is of no use on an
// ostree that forgets what it tracks.
func (b *bootc) abilities(ctx context.Context, s *Status) (can abilities, err error) {
	if s.IsComposefs {
		return can, nil
	}
	if can.rpmOSTree, err = b.has(ctx, "rpm-ostree", "kargs"); err != nil {
		return can, err
	}
	if can.loaderEntries, err = b.has(ctx, "bootc", "loader-entries", "set-options-for-source"); err != nil || !can.loaderEntries {
		return can, err
	}
	_, err = checkVersion(ctx, b.run, "ostree", minOSTreeOfTracking)
	can.loaderEntries = err == nil
	if fault.IsTerminal(err) || errors.Is(err, ErrNoProgram) {
		err = nil
	}
	return can, err
}

// KernelArguments implements Host.
func (b *bootc) KernelArguments(ctx context.Context) ([]string, error) {
	line, _, err := b.line(ctx)
	if err != nil {
		return nil, err
	}
	return line.words, nil
}

// line is how what boots next is started, as ostree has written it, also where the host can't
// change that; and as rpm-ostree says it where it is the one to change it, or ostree's files can't
// be read.
func (b *bootc) line(ctx context.Context) (*bootLine, abilities, error) {
	s, err := b.Status(ctx)
	if err != nil {
		return nil, abilities{}, err
	}
	can, err := b.abilities(ctx, &s)
	switch {
	case err != nil:
		return nil, can, err
	case s.IsComposefs:
		_, _, err = chooseWay(can, b.version, nil, nil)
		return nil, can, err
	}
	line, err := readBootLine(b.root)
	if can.rpmOSTree && (err != nil || !can.loaderEntries) {
		can.loaderEntries = false
		words, err := kernelArguments(ctx, b.run)
		return &bootLine{words: words}, can, err
	}
	if err == nil {
		err = checkWords(line.words, "an editor: /"+entriesDir)
	}
	return line, can, err
}

// CheckKernelArguments implements Host.
func (b *bootc) CheckKernelArguments(ctx context.Context, change ArgumentChange) error {
	line, can, err := b.line(ctx)
	if err != nil {
		return err
	}
	_, _, err = chooseWay(can, b.version, line, change.To)
	return err
}

// SetKernelArguments implements Host.
func (b *bootc) SetKernelArguments(ctx context.Context, change ArgumentChange) error {
	line, can, err := b.line(ctx)
	if err != nil {
		return err
	}
	by, calls, err := chooseWay(can, b.version, line, change.To)
	switch {
	case err != nil:
		return err
	case by == byRPMOSTree:
		return setKernelArguments(ctx, b.run, change)
	case !slices.Equal(line.words, change.From):
		return errors.New("setting kernel arguments: someone has changed them meanwhile")
	}
	s, err := b.Status(ctx)
	if err != nil {
		return err
	}
	if s.Staged == nil && s.RollbackQueued {
		return ErrNotStaged
	}
	for _, options := range calls {
		args := []string{"loader-entries", "set-options-for-source", "--source=" + source}
		if len(options) > 0 {
			args = append(args, "--options="+strings.Join(options, " "))
		}
		if _, err := b.run.Run(ctx, "bootc", args...); err != nil {
			return withoutValues(err, change)
		}
	}
	return nil
}

// Lock implements Host.
func (b *bootc) Lock(ctx context.Context) error {
	s, err := b.Status(ctx)
	if err != nil {
		return err
	}
	return lockStaged(ctx, b.run, &s, b.has)
}

// Unlock implements Host.
func (b *bootc) Unlock(ctx context.Context) error {
	s, err := b.Status(ctx)
	if err != nil {
		return err
	}
	return unlockStaged(ctx, b.run, &s, b.has)
}

// WhyNotBooted implements Host.
func (b *bootc) WhyNotBooted(ctx context.Context) string { return whyNotBooted(ctx, b.run) }

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
		RollbackQueued, ReadOnly bool
		UsrOverlay               *struct{ AccessMode string }
	}
}

// bootcEntry has no image where the deployment is of none, or rpm-ostree has changed it. One of the
// composefs store has no ostree.
type bootcEntry struct {
	Image *struct {
		Image       struct{ Image string }
		ImageDigest string
		Version     string
	}
	Ostree *struct {
		Checksum     string
		DeploySerial int
	}
	Composefs                                             *struct{ Verity string }
	Pinned, SoftRebootCapable, DownloadOnly, Incompatible bool
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
		RollbackQueued: h.Status.RollbackQueued, IsReadOnly: h.Status.ReadOnly, IsComposefs: h.Status.Booted.Composefs != nil,
		UsrIsUnlocked: h.Status.UsrOverlay != nil && h.Status.UsrOverlay.AccessMode == "readWrite",
	}, nil
}

// deployment is the entry. A soft reboot is prepared by ostree, which the composefs store has not.
func (e *bootcEntry) deployment() *Deployment {
	if e == nil {
		return nil
	}
	d := &Deployment{Pinned: e.Pinned, Locked: e.DownloadOnly, HasLocalPackages: e.Incompatible}
	switch {
	case e.Ostree != nil:
		d.Checkout, d.SoftReboots = checkout(e.Ostree.Checksum, e.Ostree.DeploySerial), e.SoftRebootCapable
	case e.Composefs != nil:
		d.Checkout = e.Composefs.Verity
	}
	if e.Image != nil {
		d.Image, d.Digest, d.Version = e.Image.Image.Image, e.Image.ImageDigest, e.Image.Version
	}
	return d
}
