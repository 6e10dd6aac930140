package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/layerwright/layerwright/internal/fault"
)

// maxOutput is how much of what a program says is kept: its end.
const maxOutput = 4 << 10

// waitDelay is how long what a program has started may keep its output open after it has ended.
const waitDelay = 10 * time.Second

// In runs programs of the host whose root is mounted in the folder root, as if that were the root.
// It needs the right to chroot; "/" needs none.
func In(root string) Runner { return &chroot{root} }

type chroot struct{ root string }

// Run implements Runner.
func (c *chroot) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	program, err := c.find(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // names are this package's, and no shell reads the arguments
	cmd.Dir, cmd.Env = "/", []string{
		"PATH=" + strings.Join(folders(), ":"), "LC_ALL=C.UTF-8",
		// Else systemctl makes a soft reboot of a reboot, where someone has prepared one.
		"SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1",
	}
	// A program that is ended takes with it what it has started, such as the one that asks the
	// registry: else that would keep the output open, and this call would wait for it for ever.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = waitDelay
	if c.root != "/" {
		cmd.SysProcAttr.Chroot = c.root
	}
	var said tail
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, failed(name, args, said.String(), err)
	}
	return out, nil
}

func failed(name string, args []string, said string, err error) error {
	what := name
	if len(args) > 0 {
		what += " " + args[0]
	}
	if said = strings.Join(strings.Fields(said), " "); said == "" {
		return fmt.Errorf("%s: %w", fault.Clean(what), err)
	}
	return fmt.Errorf("%s: %w: %s", fault.Clean(what), err, fault.Clean(said))
}

// Commands that drop what is staged: the deployment that boots next is the first of ostree's.
var (
	ostreeUndeploy   = []string{"ostree", "admin", "undeploy", "0"}
	rpmOSTreeCleanup = []string{"rpm-ostree", "cleanup", "--pending"}
)

// firstThatWorks runs commands that do the same until one does it: hosts have some of them.
func firstThatWorks(ctx context.Context, run Runner, commands ...[]string) error {
	var failed error
	for _, c := range commands {
		_, err := run.Run(ctx, c[0], c[1:]...)
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// explained says what to do where a host has no signature policy for an image.
func explained(err error) error {
	if err == nil {
		return nil
	}
	for _, text := range []string{"No signature verification policy found", "insecureAcceptAnything"} {
		if strings.Contains(err.Error(), text) {
			return fmt.Errorf("the host's signature policy does not cover the image: run the controller with --enforce-signatures, or give the pool a policy of your own (%w)", err)
		}
	}
	return err
}

// forgetLayersScript can write to the repository, which is read-only but for programs that have it
// otherwise in a mount namespace of their own. Where it is no mount, it can be written to anyway.
const forgetLayersScript = "mount -o remount,rw /sysroot 2>/dev/null; exec ostree container image prune-layers --repo=/ostree/repo"

// forgetLayers removes the layers that are of no image of the host: those of pulls that failed. The
// importer of bootc and rpm-ostree (ostree-ext 0.15.3) keeps a layer before it knows whether its
// digest is right. It refuses a wrong one, and takes it from the repository the next time: files
// that no one signed, in an image that someone did. A host without the command, or where it fails,
// stages all the same: its registry has to be trusted then.
func forgetLayers(ctx context.Context, run Runner) {
	_, err := run.Run(ctx, "unshare", "--mount", "sh", "-c", forgetLayersScript)
	if err == nil || errors.Is(err, ErrNoProgram) || strings.Contains(err.Error(), "Unknown command") {
		return
	}
	log.FromContext(ctx).Error(err, "Removing layers of pulls that failed")
}

// folders are where hosts have programs.
func folders() []string { return []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"} }

// find is the path of a program in the host.
func (c *chroot) find(name string) (string, error) {
	for _, folder := range folders() {
		path := filepath.Join(folder, name)
		switch info, err := os.Stat(filepath.Join(c.root, path)); {
		case err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0:
			return path, nil
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return "", fmt.Errorf("looking for %s on the host: %w", name, err)
		}
	}
	return "", fmt.Errorf("%s: %w", name, ErrNoProgram)
}

// tail keeps the end of what is written to it.
type tail struct{ bytes.Buffer }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	n, err := t.Buffer.Write(p)
	if over := t.Len() - maxOutput; over > 0 {
		t.Next(over)
	}
	return n, err
}
