package machine

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// immutable is the flag of chattr +i.
const immutable = 0x10

// setMutable takes the flag away that keeps a folder from being changed.
func setMutable(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || flags&immutable == 0 {
		return nil
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags&^immutable)); err != nil {
		return fmt.Errorf("making %s mutable: %w", dir, err)
	}
	return nil
}
