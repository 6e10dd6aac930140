package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Finalization keeps what is staged from booting: with ostree's lock, a reboot boots what ran. What
// was staged is gone then, and its layers stay on the disk.
type Finalization struct{ root string }

// FinalizationIn is that of the host whose root is mounted in a folder.
func FinalizationIn(root string) Finalization { return Finalization{root} }

// lock is a file that all versions of ostree look for that stage. Newer ones write it themselves,
// and a mark beside what is staged (ostree admin lock-finalization).
const lock = "run/ostree/staged-deployment-locked"

// CanLock reports whether ostree manages what the host boots.
func (f Finalization) CanLock() (bool, error) { return f.has("run/ostree-booted") }

// IsLocked reports whether what is staged does not boot.
func (f Finalization) IsLocked() (bool, error) { return f.has(lock) }

func (f Finalization) has(name string) (bool, error) {
	_, err := os.Lstat(filepath.Join(f.root, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("looking for ostree's lock of what is staged: %w", err)
	}
	return err == nil, nil
}

// Lock keeps what is staged, now or later, from booting.
func (f Finalization) Lock() error {
	at := filepath.Join(f.root, lock)
	err := os.MkdirAll(filepath.Dir(at), 0o755) //nolint:gosec // as ostree makes it
	if err == nil {
		err = os.WriteFile(at, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("locking what is staged: %w", err)
	}
	return nil
}

// Unlock has what is staged boot next.
func (f Finalization) Unlock() error {
	if err := os.Remove(filepath.Join(f.root, lock)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unlocking what is staged: %w", err)
	}
	return nil
}
