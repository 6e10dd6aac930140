package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// Mode says which program manages a host.
type Mode string

// The modes.
const (
	// ModeAuto takes bootc where the host was deployed from an image and has it, else rpm-ostree.
	ModeAuto Mode = ""
	// ModeBootc is bootc.
	ModeBootc Mode = "bootc"
	// ModeRPMOSTree is rpm-ostree.
	ModeRPMOSTree Mode = "rpm-ostree"
)

// The oldest versions that speak as this package does. That of ostree keeps what bootc tracks of
// kernel arguments over a shutdown.
var (
	minBootc            = version{1, 1}
	minRPMOSTree        = version{2022, 10}
	minOSTreeOfTracking = version{2026, 1}
)

// Detector finds out what manages a host. It remembers what programs can do for as long as they are
// of the same version.
type Detector struct {
	run  Runner
	root fs.FS
	// can is what commands were found to do, by the version of bootc or rpm-ostree and their help.
	can map[string]bool
}

// NewDetector looks at the host whose root is mounted in a folder. It needs the right to chroot;
// "/" needs none. One agent at a time may ask it.
func NewDetector(root string) *Detector {
	return &Detector{run: In(root), root: os.DirFS(root), can: map[string]bool{}}
}

// Detect finds out what manages the host. A host that nothing manages, or too old a program, is an
// error about the host that names it.
func (d *Detector) Detect(ctx context.Context, mode Mode) (Host, error) {
	if mode != ModeRPMOSTree {
		found, err := checkVersion(ctx, d.run, "bootc", minBootc)
		switch {
		case err == nil:
			return &bootc{d.run, d.root, found, d.asker("bootc", found)}, nil
		case mode == ModeBootc && errors.Is(err, ErrNoProgram):
			return nil, unsuitable("spec.deployMode of the MachineConfigPool is bootc, and the host has no bootc: remove the field, or set it to image for rpm-ostree")
		case !errors.Is(err, ErrNoProgram) && (mode == ModeBootc || !fault.IsTerminal(err)):
			return nil, err
		}
	}
	found, err := checkVersion(ctx, d.run, "rpm-ostree", minRPMOSTree)
	switch {
	case err == nil:
		return &rpmOSTree{d.run, d.asker("rpm-ostree", found)}, nil
	case errors.Is(err, ErrNoProgram):
		return nil, unsuitable("the host has neither bootc nor rpm-ostree: Layerwright updates hosts that were deployed from images")
	default:
		return nil, err
	}
}

// asker asks a host whether it knows a command, by the command's help.
type asker func(ctx context.Context, command ...string) (bool, error)

// asker asks once for each version of a program, which others of the host change with.
func (d *Detector) asker(program string, of version) asker {
	return func(ctx context.Context, command ...string) (bool, error) {
		key := fmt.Sprintf("%s %s: %s", program, of, command)
		if can, isKnown := d.can[key]; isKnown {
			return can, nil
		}
		_, err := d.run.Run(ctx, command[0], append(slices.Clone(command[1:]), "--help")...)
		if err != nil && !errors.Is(err, ErrNoProgram) && !isAnswer(ctx, err) {
			return false, err
		}
		d.can[key] = err == nil
		return err == nil, nil
	}
}

// isAnswer reports whether an error of a program is the program's own, and not that it was killed.
func isAnswer(ctx context.Context, err error) bool {
	exit := (*exec.ExitError)(nil)
	return ctx.Err() == nil && errors.As(err, &exit) && exit.Exited()
}

// Reasons of errors about a host.
var reasons = []string{
	mcfgv1.ReasonUnsuitableHost, mcfgv1.ReasonKernelArgumentsUnsupported, mcfgv1.ReasonUnstagingUnsupported, mcfgv1.ReasonLocalPackages,
	mcfgv1.ReasonReadOnlyHost, mcfgv1.ReasonHostBusy, mcfgv1.ReasonWaitingForSignaturePolicy,
}

// IsAboutHost reports whether an error says what a host can't do, or can't do yet. No image and no
// configuration is to blame for it.
func IsAboutHost(err error) bool { return slices.Contains(reasons, fault.Reason(err)) }

// cannot is an error about what a host can't do until a person changes the host.
func cannot(reason, format string, args ...any) error {
	return fault.NewTerminal(reason, fmt.Errorf(format, args...))
}

func unsuitable(format string, args ...any) error {
	return cannot(mcfgv1.ReasonUnsuitableHost, format, args...)
}

func checkVersion(ctx context.Context, run Runner, program string, oldest version) (version, error) {
	out, err := run.Run(ctx, program, "--version")
	if err != nil {
		return version{}, err
	}
	found, ok := findVersion(string(out))
	switch {
	case !ok:
		return version{}, unsuitable("%s --version says no version: %q", program, firstLine(out))
	case found.isBefore(oldest):
		return version{}, unsuitable("%s %s of the host is too old: at least %s is needed", program, found, oldest)
	default:
		return found, nil
	}
}

func firstLine(out []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return fault.Clean(line)
}
