package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

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
	// Locked reports whether it is staged, and does not boot until that is unlocked.
	Locked bool
	// HasLocalPackages reports whether someone has installed packages over its image, of which
	// bootc then says nothing.
	HasLocalPackages bool
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
	// IsComposefs reports whether bootc keeps deployments in its composefs store: nothing of ostree
	// works on them.
	IsComposefs bool
	// IsReadOnly reports whether the disk can't be written, as that of a live medium.
	IsReadOnly bool
	// UsrIsUnlocked reports whether someone has made /usr writable until the next boot.
	UsrIsUnlocked bool
	// Transaction is what rpm-ostree is doing for someone else; empty where it does nothing.
	Transaction string
}

// busyRetry is after how long a host is asked again that does something for someone else.
const busyRetry = 30 * time.Second

// CheckStaging says why no image can be staged; nil where one can.
func (s *Status) CheckStaging() error {
	switch {
	case s.IsReadOnly:
		return cannot(mcfgv1.ReasonReadOnlyHost, "its disk is read-only: it runs from a medium that can't be changed; install it to a disk")
	case s.Booted != nil && s.Booted.HasLocalPackages:
		return cannot(mcfgv1.ReasonLocalPackages, "it has packages that rpm-ostree installed over its image, which bootc can't update: "+
			"run rpm-ostree reset on it and reboot it, or set spec.deployMode of the MachineConfigPool to image")
	case s.Transaction != "":
		return fault.NewWaiting(mcfgv1.ReasonHostBusy, busyRetry, fmt.Errorf("its rpm-ostree is doing something else: %s", s.Transaction))
	default:
		return nil
	}
}

// SaysUsrUnlocked tells people of a host whose UsrIsUnlocked.
const SaysUsrUnlocked = "someone has made /usr writable (bootc usr-overlay, ostree admin unlock): what was changed there is lost at the next reboot"

// CheckEtc says why no configuration can be applied to the host whose root is mounted in a folder;
// nil where one can.
func CheckEtc(root string) error {
	var at unix.Statfs_t
	if err := unix.Statfs(filepath.Join(root, "etc"), &at); err == nil && at.Flags&unix.ST_RDONLY != 0 {
		return cannot(mcfgv1.ReasonReadOnlyHost, "its /etc is read-only, so that it would not keep its configuration: "+
			"mount it writable (ostree's prepare-root.conf, etc.transient or composefs), or install another base image")
	}
	return nil
}

// Host manages one host. Every method can be repeated.
type Host interface {
	Deployments
	KernelArguments
	Lock
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
	// CheckKernelArguments says why the host can't change them so; nil where it can.
	CheckKernelArguments(ctx context.Context, change ArgumentChange) error
	// SetKernelArguments changes the command line of what boots next. It fails where that is not
	// what the change begins with, as far as the host can tell, and with ErrNotStaged where that
	// can be done only of what is staged or runs.
	SetKernelArguments(ctx context.Context, change ArgumentChange) error
}

// ErrNotStaged means that what boots next has to be staged again first.
var ErrNotStaged = errors.New("bootc changes kernel arguments only of what is staged or runs")

// Lock is ostree's own of what is staged, which its programs show. Finalization has what all
// versions of ostree know.
type Lock interface {
	// Lock keeps what is staged from booting, where the host has a command for that.
	Lock(ctx context.Context) error
	// Unlock has what is staged boot next.
	Unlock(ctx context.Context) error
	// WhyNotBooted is why what was staged for this boot did not boot, as the host's units say it;
	// empty where they say nothing.
	WhyNotBooted(ctx context.Context) string
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
