package push

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/layerwright/layerwright/hack/release/images"
)

// InstallFile has all objects for plain Kubernetes.
const InstallFile = "install.yaml"

// Manifests copies the manifests of a release to another folder, with the pinned names of images by
// those of their layouts. What else is in that folder stays.
func Manifests(from, to string, pushed map[string]string) error {
	var names []string
	for layout, pinned := range pushed {
		_, digest, _ := strings.Cut(pinned, "@")
		names = append(names, images.Registry+layout+"@"+digest, pinned)
	}
	replacer := strings.NewReplacer(names...)
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, below)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755) //nolint:gosec // as the folder that it is a copy of
		}
		content, err := os.ReadFile(path) //nolint:gosec // the folder is the caller's
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".tgz") {
			content, err = inChart(content, replacer)
		} else {
			content = []byte(replacer.Replace(string(content)))
		}
		if err != nil {
			return fmt.Errorf("rewriting %q: %w", below, err)
		}
		if err := os.WriteFile(target+".new", content, 0o644); err != nil { //nolint:gosec // anyone may read manifests
			return err
		}
		return os.Rename(target+".new", target)
	})
}

// maxChart is how many bytes a file of a chart may have.
const maxChart = 10 << 20

// inChart replaces names in the archive of a Helm chart.
func inChart(content []byte, replacer *strings.Replacer) ([]byte, error) {
	compressed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	recompressed := gzip.NewWriter(&out)
	from, to := tar.NewReader(compressed), tar.NewWriter(recompressed)
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			err := errors.Join(to.Close(), recompressed.Close())
			return out.Bytes(), err
		}
		if err != nil {
			return nil, err
		}
		file, err := io.ReadAll(io.LimitReader(from, maxChart))
		if err != nil {
			return nil, err
		}
		file = []byte(replacer.Replace(string(file)))
		header.Size = int64(len(file))
		if err := to.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := to.Write(file); err != nil {
			return nil, err
		}
	}
}
