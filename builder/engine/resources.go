//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// killsByMemory is how many processes of this container were killed because it had used up its
// memory; 0 where the kernel does not say. The first file is that of cgroup v2, the second that of
// v1.
func killsByMemory() int64 {
	for _, file := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if key != "oom_kill" {
				continue
			}
			if kills, err := strconv.ParseInt(value, 10, 64); err == nil {
				return kills
			}
		}
	}
	return 0
}

// space knows whether the volume was full when a RUN line failed. What the line says of it is up to
// the command, and a moment later the container is gone, with what filled the volume.
type space struct {
	dir    string
	isFull atomic.Bool
}

// Write looks when Buildah says that a RUN line has failed.
func (s *space) Write(p []byte) (int, error) {
	const enough = 1 << 20
	if bytes.Contains(p, []byte("subprocess exited")) {
		var volume unix.Statfs_t
		if err := unix.Statfs(s.dir, &volume); err == nil {
			s.isFull.Store(volume.Bavail*uint64(volume.Bsize) < enough) //nolint:gosec // the size of a block
		}
	}
	return len(p), nil
}
