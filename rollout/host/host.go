package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// ReasonUnsuitableHost is the reason of errors about a host that can't be managed: a person has to
// change it.
const ReasonUnsuitableHost = "UnsuitableHost"

// Deployment is one bootable state of a host.
type Deployment struct {
	// Image is the image that it was made of, as a name with a tag or a digest; empty where it is
	// of none.
	Image string
	// Digest is that of the image, such as sha256:...; empty where it is of none.
	Digest string
	// Checkout names the folder of its files below ostree/deploy/*/deploy: ostree's checksum and
	// serial number; empty where the host does not say it.
	Checkout string
	// Version is what the image calls itself; empty where it says nothing.
	Version string
	// Pinned reports whether a person keeps it from being removed.
	Pinned bool
	// SoftReboots reports whether the host gets there by restarting its user space: the kernel and
	// how it was started are what runs now.
	SoftReboots bool
}

// IsOf reports whether the deployment is of an image. Of an image for several architectures the
// digest may be that of one of them: then the name that it was made of says it.
func (d *Deployment) IsOf(image mcfgv1.ImageDigestFormat) bool {
	digest := image.Digest()
	return d != nil && digest != "" && (d.Digest == digest || mcfgv1.ImageDigestFormat(d.Image).Digest() == digest)
}

// checkout is the name of the folder that ostree gives a deployment.
func checkout(checksum string, serial int) string {
	if checksum == "" {
		return ""
	}
	return fmt.Sprintf("%s.%d", checksum, serial)
}

// Status is what a host has. Each may be nil but Booted.
type Status struct {
	// Booted runs.
	Booted *Deployment
	// Staged boots next. It is made ready when the host shuts down.
	Staged *Deployment
	// Rollback is what ran before.
	Rollback *Deployment
	// RollbackQueued reports whether Rollback boots next, and not Booted.
	RollbackQueued bool
}

// Host manages one host. Every method can be repeated.
type Host interface {
	Deployments
	KernelArguments
	// Reboot begins a reboot, and returns while the host still shuts down.
	Reboot(ctx context.Context, why string) error
	// SoftReboot begins a restart of user space in what is staged, which has to be one that
	// SoftReboots. Linux calls it the same boot afterwards.
	SoftReboot(ctx context.Context) error
}

// Trust is what an image is trusted for.
type Trust int

const (
	// TrustSignature means that the host's policy has to require a signature of the image.
	TrustSignature Trust = iota
	// TrustDigest means that the cluster names the digest, as it does of the OS image of a stream.
	// The host's policy applies, and need not require a signature.
	TrustDigest
)

// Deployments manages what a host boots.
type Deployments interface {
	// Status reads what the host has.
	Status(ctx context.Context) (Status, error)
	// Stage pulls an image, by digest, and makes it what boots next. The host's own signature
	// policy decides whether it may. What was staged before is replaced.
	Stage(ctx context.Context, image mcfgv1.ImageDigestFormat, trust Trust) error
	// Unstage removes what boots next, if it is of the given image: what others staged stays. What
	// ran before, and boots next only because of Rollback, stays on the host.
	Unstage(ctx context.Context, image mcfgv1.ImageDigestFormat) error
	// Rollback makes what ran before boot next. What is staged is dropped.
	Rollback(ctx context.Context) error
}

// KernelArguments manages how a host boots.
type KernelArguments interface {
	// KernelArguments are the words of the command line of what boots next, without the one that
	// ostree writes for each deployment.
	KernelArguments(ctx context.Context) ([]string, error)
	// SetKernelArguments changes the command line of what boots next. It fails where that is not
	// what the change begins with, as far as the host can tell.
	SetKernelArguments(ctx context.Context, change ArgumentChange) error
}

// ArgumentChange is a change of a whole command line, word by word.
type ArgumentChange struct{ From, To []string }

// IsEmpty reports whether nothing changes.
func (c ArgumentChange) IsEmpty() bool { return slices.Equal(c.From, c.To) }

// Runner runs programs of a host.
type Runner interface {
	// Run runs a program by its name and returns its standard output. An error has the end of what
	// the program said. ErrNoProgram means that the host does not have it.
	Run(ctx context.Context, name string, args ...string) ([]byte, error)
}

// ErrNoProgram means that a host does not have a program.
var ErrNoProgram = errors.New("there is no such program on the host")

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

// The oldest versions that speak as this package does.
var (
	minBootc     = version{1, 1}
	minRPMOSTree = version{2022, 10}
)

// Detect finds out what manages a host. A host that nothing manages, or too old a program, is a
// Terminal error that names it.
func Detect(ctx context.Context, run Runner, mode Mode) (Host, error) {
	if mode != ModeRPMOSTree {
		err := checkVersion(ctx, run, "bootc", minBootc)
		switch {
		case err == nil:
			return &bootc{run}, nil
		case mode == ModeBootc && errors.Is(err, ErrNoProgram):
			return nil, unsuitable("spec.deployMode of the MachineConfigPool is bootc, and the host has no bootc: remove the field, or set it to image for rpm-ostree")
		case !errors.Is(err, ErrNoProgram) && (mode == ModeBootc || !fault.IsTerminal(err)):
			return nil, err
		}
	}
	err := checkVersion(ctx, run, "rpm-ostree", minRPMOSTree)
	switch {
	case err == nil:
		return &rpmOSTree{run}, nil
	case errors.Is(err, ErrNoProgram):
		return nil, unsuitable("the host has neither bootc nor rpm-ostree: Layerwright updates hosts that were deployed from images")
	default:
		return nil, err
	}
}

func unsuitable(format string, args ...any) error {
	return fault.NewTerminal(ReasonUnsuitableHost, fmt.Errorf(format, args...))
}

func checkVersion(ctx context.Context, run Runner, program string, oldest version) error {
	out, err := run.Run(ctx, program, "--version")
	if err != nil {
		return err
	}
	found, ok := findVersion(string(out))
	switch {
	case !ok:
		return unsuitable("%s --version says no version: %q", program, firstLine(out))
	case found.isBefore(oldest):
		return unsuitable("%s %s of the host is too old: at least %s is needed", program, found, oldest)
	default:
		return nil
	}
}

func firstLine(out []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return fault.Clean(line)
}
