package push

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/layerwright/layerwright/hack/release/images"
)

// InstallFile has all objects for plain Kubernetes.
const InstallFile = "install.yaml"

// Manifests copies the manifests of a release to another folder, with the pinned names of images by
// those of their layouts. The folder is replaced as a whole.
func Manifests(from, to string, pushed map[string]string) error {
	var names []string
	for layout, pinned := range pushed {
		_, digest, _ := strings.Cut(pinned, "@")
		names = append(names, images.Registry+layout+"@"+digest, pinned)
	}
	replacer := strings.NewReplacer(names...)
	temporary := filepath.Clean(to) + ".new"
	if err := os.RemoveAll(temporary); err != nil { // what an interruption left
		return err
	}
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(temporary, below)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755) //nolint:gosec // as the folder that it is a copy of
		}
		text, err := os.ReadFile(path) //nolint:gosec // the folder is the caller's
		if err != nil {
			return err
		}
		return os.WriteFile(target, []byte(replacer.Replace(string(text))), 0o644) //nolint:gosec // anyone may read manifests
	})
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(to), os.Rename(temporary, to))
}
