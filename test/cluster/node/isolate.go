package node

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// masked are the folders of the host that a container runtime or a kubelet
// writes to whatever its configuration says. A node gets its own, in memory.
var masked = []string{"/run", "/var/lib", "/var/log"}

// Isolate turns the mount namespace that this process was started in into that
// of a node: mounts made here don't reach the host, and are shared with the
// kubelet and the pods. keep is a folder that stays visible wherever it lies.
func Isolate(keep string) error {
	kept, err := unix.Open(keep, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", keep, err)
	}
	defer func() { _ = unix.Close(kept) }()
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("separating mounts from the host's: %w", err)
		}
	}
	for _, dir := range masked {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mounting a tmpfs at %s: %w", dir, err)
		}
	}
	if !isMasked(keep) {
		return nil
	}
	if err := os.MkdirAll(keep, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", kept), keep, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keeping %s visible: %w", keep, err)
	}
	return nil
}

func isMasked(path string) bool {
	for _, dir := range masked {
		if strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
