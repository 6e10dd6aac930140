package baseimage

import (
	"context"
	"errors"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/packages"
	"github.com/layerwright/layerwright/machineconfigs/osindex"
)

// Packages lists the packages of an image whose index is known. The index says which layers have the databases, and only these are read. A
// database that is broken or too large is a Terminal error. Databases are copied into the cache's folder while they are read, where there is one.
func (l *Loader) Packages(ctx context.Context, image v1.Image, index *osindex.Index) (*packages.List, error) {
	if l.options.CacheDir != "" {
		if err := os.MkdirAll(l.options.CacheDir, 0o700); err != nil {
			return nil, fmt.Errorf("making room for package databases: %w", err)
		}
	}
	list, err := packages.Read(ctx, &indexedFiles{loader: l, image: image, index: index}, l.options.CacheDir)
	var broken *packages.BrokenError
	var large *packages.TooLargeError
	if errors.As(err, &broken) || errors.As(err, &large) {
		err = fault.NewTerminal(mcfgv1.ReasonInvalid, err)
	}
	return list, err
}

// indexedFiles are the files of an image with an index.
type indexedFiles struct {
	loader *Loader
	image  v1.Image
	index  *osindex.Index
}

// Sizes are the regular files directly below a directory.
func (f *indexedFiles) Sizes(dir string) map[string]int64 {
	found, err := f.index.Follow(dir)
	if err != nil || !found.Exists() {
		return nil
	}
	sizes := map[string]int64{}
	for name := range f.index.Children(found.Path) {
		if _, size, ok := f.file(dir, name); ok {
			sizes[name] = size
		}
	}
	return sizes
}

// file is where a file really is, and how large.
func (f *indexedFiles) file(dir, name string) (path string, size int64, ok bool) {
	found, err := f.index.Follow(dir + "/" + name)
	if err != nil || !found.Exists() {
		return "", 0, false
	}
	entry, ok := f.index.Lookup(found.Path)
	return found.Path, entry.Size, ok && entry.Kind == osindex.File
}

// Copy writes files of a directory into a folder.
func (f *indexedFiles) Copy(ctx context.Context, dir string, names []string, folder string) error {
	// Two names may be links to one file, and CopyFiles takes each path once: then they are copied one after the other.
	for len(names) > 0 {
		targets := map[string]string{}
		var again []string
		for _, name := range names {
			path, _, ok := f.file(dir, name)
			if !ok {
				return &MissingError{Paths: []string{dir + "/" + name}}
			}
			if targets[path] != "" {
				again = append(again, name)
				continue
			}
			targets[path] = name
		}
		if err := f.loader.CopyFiles(ctx, f.image, f.index, folder, targets); err != nil {
			return err
		}
		names = again
	}
	return nil
}
