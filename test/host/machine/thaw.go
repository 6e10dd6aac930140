package machine

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// fithaw is FITHAW of linux/fs.h.
	fithaw = 0xc0045878
	// freezePatience is far more than ostree keeps a file system frozen.
	freezePatience = 3 * time.Second
)

// KeepThawed thaws the file system of a folder, again and again, until the returned function is
// called. ostree freezes it for a moment while it writes what boots next; when it is killed
// together with what would thaw it, every write to the file system waits for ever.
func KeepThawed(dir string) (stop func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(freezePatience)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				thaw(dir)
			}
		}
	}()
	return func() { close(done) }
}

// thaw thaws a file system; one that is not frozen stays as it is.
func thaw(dir string) {
	folder, err := os.Open(dir)
	if err != nil {
		return
	}
	defer func() { _ = folder.Close() }()
	_ = unix.IoctlSetInt(int(folder.Fd()), fithaw, 0)
}
