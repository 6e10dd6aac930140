package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/daemon"
)

// InMounts calls do in the node's mount namespace, which is there once the runtime runs.
func (n *Node) InMounts(do func() error) error {
	pid, err := n.Manager.Pid(n.containerdName())
	if err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and it is never unlocked: the thread ends with its namespace
		err := daemon.JoinNamespace(pid, "mnt", unix.CLONE_NEWNS)
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// Command is a program in the node's mount namespace, which is there once the runtime runs.
func (n *Node) Command(ctx context.Context, argv ...string) (*exec.Cmd, error) {
	pid, err := n.Manager.Pid(n.containerdName())
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(pid), "--mount"}, argv...)...)
	cmd.Env = []string{"PATH=/usr/bin:/usr/sbin:/bin:/sbin"}
	return cmd, nil
}

// bootIDPath is where Linux says which boot this is.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// SetBootID makes the node's programs take this for another boot of the machine. It is called in
// the node's mount namespace.
func (n *Node) SetBootID(id string) error {
	file := n.path("boot-id")
	_, err := os.Stat(file)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err := os.WriteFile(file, []byte(id+"\n"), 0o644); err != nil { // in place: it is mounted
		return err
	}
	if !isNew {
		return nil
	}
	if err := unix.Mount(file, bootIDPath, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting the ID of the boot of %s: %w", n.Name(), err)
	}
	return n.mountWholeProc()
}

// mountWholeProc mounts a second /proc, of which nothing is covered. Without one Linux lets no pod
// with a user namespace of its own mount its /proc.
func (n *Node) mountWholeProc() error {
	dir := n.path("proc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", dir, "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting a second /proc for %s: %w", n.Name(), err)
	}
	return nil
}
