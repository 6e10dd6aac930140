package toolchain

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CacheVariable names the environment variable that moves the cache folder.
const CacheVariable = "LAYERWRIGHT_CACHE"

// CacheDir returns the folder for everything that is kept between runs:
// $LAYERWRIGHT_CACHE, else ~/.cache/layerwright.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w; set %s", err, CacheVariable)
	}
	return filepath.Join(home, ".cache", "layerwright"), nil
}

// RequireSpace returns an error that names the folder when its file system has
// fewer than need bytes left.
func RequireSpace(dir string, need uint64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the cache folder: %w; set %s to one that can be written", err, CacheVariable)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("asking for free space of %s: %w", dir, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < need {
		return fmt.Errorf("the disk that holds %s has %d MiB free and %d MiB are needed: make room, or set %s to a folder elsewhere",
			dir, free>>20, need>>20, CacheVariable)
	}
	return nil
}

// RepositoryRoot returns the folder of the checkout that dir lies in.
func RepositoryRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "hack", "cluster", "kubernetes", "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside a checkout of Layerwright: the cluster's programs are built from its hack/cluster folder", dir)
		}
	}
}
