package hostcheck

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	mebibyte = 1 << 20
	// roomOfImage is what an image of an operating system may take, as its layers come and are
	// checked out.
	roomOfImage = 4 << 30
)

// space reports whether the next image and its kernel find room. ostree may make room for both, so
// that it can't be known.
func (c *checker) space() {
	c.room("/sysroot", roomOfImage, "an image may not fit")
	c.room("/boot", sizeOfKernel(filepath.Join(c.Root, "boot/ostree")), "a kernel like those there does not fit, unless ostree removes one first")
}

func (c *checker) room(path string, need int64, consequence string) {
	what := "space of " + path
	var at unix.Statfs_t
	if err := unix.Statfs(filepath.Join(c.Root, path), &at); err != nil {
		c.sayError(Limited, what, &fs.PathError{Op: "asking for the room of", Path: path, Err: err})
		return
	}
	free := int64(at.Bavail) * at.Bsize //nolint:gosec // no disk is so large
	mounted := ""
	if at.Flags&unix.ST_RDONLY != 0 {
		mounted = ", mounted read-only, which ostree's programs change for themselves"
	}
	if free < need {
		c.say(Limited, what, "%d MiB free%s; %s (%d MiB)", free/mebibyte, mounted, consequence, need/mebibyte)
		return
	}
	c.say(OK, what, "%d MiB free%s", free/mebibyte, mounted)
}

// sizeOfKernel is what the largest folder of a kernel takes, with its initramfs; 0 where there is
// none.
func sizeOfKernel(dir string) (largest int64) {
	kernels, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, kernel := range kernels {
		size := int64(0)
		_ = filepath.WalkDir(filepath.Join(dir, kernel.Name()), func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err == nil && info.Mode().IsRegular() {
				size += info.Size()
			}
			return err
		}) // what can't be read counts as nothing
		largest = max(largest, size)
	}
	return largest
}

// isOverlay reports whether a root is one that ostree has put together with composefs.
func isOverlay(root string) bool {
	var at unix.Statfs_t
	return unix.Statfs(root, &at) == nil && at.Type == unix.OVERLAYFS_SUPER_MAGIC
}
