package node

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/daemon"
)

// kill ends a process at once and waits until it is gone.
func kill(ctx context.Context, pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return err
	}
	return daemon.AwaitExit(ctx, pid)
}
