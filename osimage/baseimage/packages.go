package baseimage

import (
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/turns"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/osimage/packages"
)

// Suffixes of what is cached beside indexes.
const (
	packagesSuffix = ".packages"
	releaseSuffix  = ".release"
)

// Packages lists the packages of an image whose index is known. The index says which layers have
// the databases, and only these are read. A database that is broken or too large is a Terminal
// error. Databases are copied into the cache's folder while they are read, where there is one.
//
// The cache knows a list by the layers that its databases come from: it is read once for all images
// that have the same ones. The list must not be changed, callers may share it.
func (l *Loader) Packages(ctx context.Context, image v1.Image, index *osindex.Index) (*packages.List, error) {
	p, err := open(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("listing the packages of an image: %w", err)
	}
	files := &indexedFiles{loader: l, image: image, index: index}
	key, err := files.databases(p)
	if err != nil {
		return nil, err
	}
	return cached(ctx, l, p, l.cache.file(key, packagesSuffix), func() (*packages.List, error) { return l.readPackages(ctx, p, files) })
}

// PackagesKey stands for what is in the package databases of an image whose index is known: images
// with one key have the same packages. It reads no layer.
func (l *Loader) PackagesKey(ctx context.Context, image v1.Image, index *osindex.Index) (string, error) {
	p, err := open(ctx, image)
	if err != nil {
		return "", fmt.Errorf("looking for the package databases of an image: %w", err)
	}
	return (&indexedFiles{loader: l, image: image, index: index}).databases(p)
}

func (l *Loader) readPackages(ctx context.Context, p *parts, files *indexedFiles) (*packages.List, error) {
	ctx, end, err := l.turns.Take(ctx, p.registry, p.image)
	if err != nil {
		return nil, err
	}
	defer end()
	if l.options.CacheDir != "" {
		if err := os.MkdirAll(l.options.CacheDir, 0o700); err != nil {
			return nil, fmt.Errorf("making room for package databases: %w", err)
		}
	}
	if err := l.cache.prune(); err != nil { // what a process has left that was killed has to make room
		logr.FromContextOrDiscard(ctx).Error(err, "Cache not cleaned")
	}
	list, err := packages.Read(ctx, files, l.options.CacheDir)
	var broken *packages.BrokenError
	var large *packages.TooLargeError
	if errors.As(err, &broken) || errors.As(err, &large) {
		err = fault.NewTerminal(mcfgv1.ReasonInvalid, err)
	}
	return list, err
}

// OSRelease is what an image whose index is known says of its operating system, in os-release(5);
// empty where it says nothing, or in a file that is larger than Options.MaxFileBytes. It is cached
// like lists of packages. Errors are those of ReadFiles.
func (l *Loader) OSRelease(ctx context.Context, image v1.Image, index *osindex.Index) (map[string]string, error) {
	path := ""
	for _, at := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if found, err := index.Follow(at); err == nil && found.Entry.Kind == osindex.File && found.Entry.Size <= l.options.MaxFileBytes {
			path = found.Path
			break
		}
	}
	if path == "" {
		return nil, nil
	}
	if content, known := index.Content(path); known {
		return packages.OSRelease(content), nil
	}
	p, err := open(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("reading what an image says of its system: %w", err)
	}
	key := sha256.New()
	if err := originOf(key, p, index, path); err != nil {
		return nil, err
	}
	release, err := cached(ctx, l, p, l.cache.file(hex.EncodeToString(key.Sum(nil)), releaseSuffix), func() (*map[string]string, error) {
		content, err := l.ReadFiles(ctx, image, index, []string{path})
		if err != nil {
			return nil, err
		}
		fields := packages.OSRelease(content[path])
		return &fields, nil
	})
	if err != nil {
		return nil, err
	}
	return *release, nil
}

// originOf writes where the bytes of a file come from.
func originOf(into io.Writer, p *parts, index *osindex.Index, path string) error {
	source, ok := index.Source(path)
	if !ok || source.Layer >= len(p.diffIDs) {
		return fmt.Errorf("image %q has %d layers, and its index has %q elsewhere", p.name, len(p.diffIDs), path)
	}
	_, err := fmt.Fprintf(into, "%q %s %q\n", path, p.diffIDs[source.Layer], source.Name)
	return err
}

// cachedVersion is that of the form of what is cached: what another one has written is read again.
const cachedVersion = 1

// windowBytes is how far back the compressor of cached values looks; it needs about so much memory.
const windowBytes = 1 << 20

// maxCachedBytes bounds what a file of the cache may unpack to.
const maxCachedBytes = 256 << 20

// cachedValue is a value in the cache.
type cachedValue[T any] struct {
	Version int
	Value   T
}

// cached takes a value of an image from the cache, or else makes it, once for all who want it.
func cached[T any](ctx context.Context, l *Loader, p *parts, path string, read func() (*T, error)) (*T, error) {
	log := logr.FromContextOrDiscard(ctx)
	return turns.Share(ctx, &l.flights, p.flight(path), p.image, func() (*T, error) {
		if value, err := loadValue[T](l.cache, path); err == nil {
			return value, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			log.Error(err, "Cached file not usable", "file", path)
		}
		value, err := read()
		if err != nil {
			return nil, err
		}
		err = l.cache.write(path, func(w io.Writer) error {
			packer, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowBytes),
				zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(true))
			if err != nil {
				return err
			}
			return errors.Join(gob.NewEncoder(packer).Encode(cachedValue[T]{cachedVersion, *value}), packer.Close())
		})
		if err != nil {
			log.Error(err, "Not cached", "file", path)
		}
		return value, nil
	})
}

func loadValue[T any](c cache, path string) (*T, error) {
	if c.dir == "" {
		return nil, fs.ErrNotExist
	}
	file, err := os.Open(path) //nolint:gosec // the name is made of a digest
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	unpacker, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	defer unpacker.Close()
	var value cachedValue[T]
	if err := gob.NewDecoder(io.LimitReader(unpacker, maxCachedBytes)).Decode(&value); err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, unpacker); err != nil { // its checksum is at its end
		return nil, err
	}
	if value.Version != cachedVersion {
		return nil, fmt.Errorf("it is of version %d", value.Version)
	}
	now := c.clock.Now()
	_ = os.Chtimes(path, now, now) // as with indexes
	return &value.Value, nil
}

// indexedFiles are the files of an image with an index.
type indexedFiles struct {
	loader *Loader
	image  v1.Image
	index  *osindex.Index
}

// databases is the key of the package databases: where each of their files comes from.
func (f *indexedFiles) databases(p *parts) (string, error) {
	if len(p.layers) != f.index.Layers() {
		return "", fmt.Errorf("looking for the package databases of image %q: it has %d layers, its index %d", p.name, len(p.layers), f.index.Layers())
	}
	key := sha256.New()
	for _, database := range packages.Find(f) {
		for _, name := range database.Names {
			path, _, _ := f.file(database.Dir, name)
			_, _ = fmt.Fprintf(key, "%q %q ", database.Path, name)
			if err := originOf(key, p, f.index, path); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(key.Sum(nil)), nil
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
	// Many names may be links to one file: its layer is read once.
	targets, links := map[string]string{}, map[string]string{}
	for _, name := range names {
		path, _, ok := f.file(dir, name)
		switch {
		case !ok:
			return &MissingError{Paths: []string{dir + "/" + name}}
		case targets[path] == "":
			targets[path] = name
		default:
			links[name] = targets[path]
		}
	}
	if err := f.loader.CopyFiles(ctx, f.image, f.index, folder, targets); err != nil {
		return err
	}
	for name, copied := range links {
		if err := os.Link(filepath.Join(folder, copied), filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("copying %q: %w", dir+"/"+name, err)
		}
	}
	return nil
}
