//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// unnamed is a file in memory that no folder has. Its path means something to this process only,
// and it is gone with it.
type unnamed struct{ file *os.File }

// newUnnamed makes one with this content. The name is for whoever debugs.
func newUnnamed(name string, content []byte) (*unnamed, error) {
	descriptor, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(descriptor), name)
	if _, err := file.Write(content); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("writing a file in memory: %w", err)
	}
	return &unnamed{file: file}, nil
}

// path opens it, as often as one likes.
func (u *unnamed) path() string { return fmt.Sprintf("/proc/self/fd/%d", u.file.Fd()) }

// close frees it.
func (u *unnamed) close() { _ = u.file.Close() }
