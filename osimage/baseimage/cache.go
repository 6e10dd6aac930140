package baseimage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/osimage/packages"
)

const (
	indexSuffix = ".index"
	tempPrefix  = ".writing-"
	// tempAge is when a file that is being written has been left behind by a process that is gone.
	tempAge = time.Hour
)

// cache is a folder of encoded indexes, named after what they are of, and of what was read from
// images beside. Files appear whole or not at all.
type cache struct {
	dir   string // empty: there is none
	max   int
	clock clock.PassiveClock
}

func (c cache) path(key string) string { return c.file(key, indexSuffix) }

func (c cache) file(key, suffix string) string {
	return filepath.Join(c.dir, strings.ReplaceAll(key, ":", "-")+suffix)
}

// longest finds the index of most layers, and their number; an empty index if none is known. An
// index that is damaged, or of another version, is removed: it will be made again. What is returned
// asks room for memory.
func (c cache) longest(log logr.Logger, keys []string, room osindex.Room) (*osindex.Index, int, error) {
	for n := len(keys); n > 0 && c.dir != ""; n-- {
		x, err := c.load(keys[n-1], n, room)
		if err == nil {
			return x, n, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var full *osindex.RoomError
		if errors.As(err, &full) {
			return nil, 0, full.Err
		}
		log.Error(err, "Cached index not usable", "file", c.path(keys[n-1]))
		var format *osindex.FormatError
		if errors.As(err, &format) {
			_ = os.Remove(c.path(keys[n-1]))
		}
	}
	return osindex.New(room), 0, nil
}

func (c cache) load(key string, layers int, room osindex.Room) (*osindex.Index, error) {
	path := c.path(key)
	file, err := os.Open(path) //nolint:gosec // the name is made of a digest
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	x, err := osindex.DecodeIn(bufio.NewReader(file), room)
	if err != nil {
		return nil, err
	}
	if x.Layers() != layers {
		return nil, &osindex.FormatError{Problem: fmt.Sprintf("it is of %d layers instead of %d", x.Layers(), layers)}
	}
	c.touch(path)
	return x, nil
}

// touch says that a file is in use; if that can't be said, it goes a little earlier.
func (c cache) touch(path string) {
	now := c.clock.Now()
	_ = os.Chtimes(path, now, now)
}

// store adds an index, and removes those that were not used for longest.
func (c cache) store(key string, x *osindex.Index) error {
	return c.write(c.path(key), x.Encode)
}

// write adds a file, and removes those of its kind that were not used for longest.
func (c cache) write(path string, encode func(io.Writer) error) error {
	if c.dir == "" {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("caching: %w", err)
	}
	file, err := os.CreateTemp(c.dir, tempPrefix)
	if err != nil {
		return fmt.Errorf("caching: %w", err)
	}
	err = write(file, encode)
	if err == nil {
		now := c.clock.Now()
		_ = os.Chtimes(file.Name(), now, now)
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("caching: %w", err)
	}
	return c.prune()
}

func write(file io.WriteCloser, encode func(io.Writer) error) error {
	buffered := bufio.NewWriter(file)
	err := encode(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	return errors.Join(err, file.Close())
}

// prune keeps the cache at its size, and removes what processes that are gone have left.
func (c cache) prune() error {
	if c.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("cleaning the cache of indexes: %w", err)
	}
	cached := map[string][]fs.FileInfo{} // by suffix
	var errs []error
	for _, entry := range entries {
		info, err := entry.Info()
		switch {
		case err != nil: // another process was faster
		case slices.Contains([]string{indexSuffix, packagesSuffix, releaseSuffix}, filepath.Ext(entry.Name())):
			cached[filepath.Ext(entry.Name())] = append(cached[filepath.Ext(entry.Name())], info)
		case strings.HasPrefix(entry.Name(), tempPrefix) && c.clock.Since(info.ModTime()) > tempAge:
			errs = append(errs, c.remove(info))
		case strings.HasPrefix(entry.Name(), packages.SpoolPrefix) && c.clock.Since(info.ModTime()) > tempAge:
			errs = append(errs, os.RemoveAll(filepath.Join(c.dir, entry.Name())))
		}
	}
	for _, files := range cached {
		slices.SortFunc(files, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
		for _, info := range files[min(c.max, len(files)):] {
			errs = append(errs, c.remove(info))
		}
	}
	return errors.Join(errs...)
}

func (c cache) remove(info fs.FileInfo) error {
	err := os.Remove(filepath.Join(c.dir, info.Name()))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("cleaning the cache of indexes: %w", err)
}
