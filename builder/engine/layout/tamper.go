//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// ErrStoreChanged is a store that is not as Build left it.
var ErrStoreChanged = errors.New("a RUN line changed the store of the build")

// Bounds of the files in which the store keeps what it knows: far more than it needs.
const (
	maxStoreFile  = 1 << 30
	maxStoreDepth = 4
)

// CheckStore refuses a store in which RUN lines have put what would have its reader follow a link,
// or wait. What layers contain is not looked at: there all of it is allowed, and the digests say
// whether it was changed.
func CheckStore(root string) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		parts := strings.Split(relative, string(filepath.Separator))
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case parts[0] == "overlay" && len(parts) == 3 && parts[1] == "l":
			return checkShortName(path, info)
		case entry.IsDir() && isContent(parts):
			return fs.SkipDir
		case entry.IsDir() && len(parts) <= maxStoreDepth, info.Mode().IsRegular() && info.Size() <= maxStoreFile && !isContent(parts):
			return nil
		case relative == filepath.Join("overlay", "backingFsBlockDev"): // made where the volume has quotas
			return nil
		}
		return fmt.Errorf("%q in it is %s of %d bytes: %w", relative, kindOf(info.Mode()), info.Size(), ErrStoreChanged)
	})
	if err != nil {
		return fmt.Errorf("looking at the store: %w", err)
	}
	return nil
}

// kindOf is what a path is, in words.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	}
	return "a device, pipe or socket"
}

// isContent reports whether a path is a folder with files of a layer.
func isContent(parts []string) bool {
	if parts[0] != "overlay" || len(parts) != 3 {
		return false
	}
	switch parts[2] {
	case "diff", "work", "merged", "empty":
		return true
	}
	return false
}

// checkShortName looks at one of the links by which overlay mounts name layers.
func checkShortName(path string, info fs.FileInfo) error {
	if info.Mode().Type() != fs.ModeSymlink {
		return fmt.Errorf("%q is no link: %w", path, ErrStoreChanged)
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil //nolint:nilerr // of a layer that is gone
	}
	layer, err := filepath.Rel(filepath.Dir(filepath.Dir(path)), target)
	if parts := strings.Split(layer, string(filepath.Separator)); err != nil || len(parts) != 2 || parts[1] != "diff" {
		return fmt.Errorf("%q leads to %q: %w", path, target, ErrStoreChanged)
	}
	return nil
}
