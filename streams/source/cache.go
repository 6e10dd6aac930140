package source

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/streams"
)

const (
	// cacheSuffix has the version of what is in the files: another one reads everything again.
	cacheSuffix = ".stream-v1.json"
	tempPrefix  = ".writing-stream-"
	// tempAge is when a file that is being written has been left behind by a process that is gone.
	tempAge = time.Hour
)

// known is what is known of a digest.
type known struct {
	// Labels are those of an image that matter to streams.
	Labels map[string]string `json:"labels,omitempty"`
	// Release is the list of images of a release image, of which only the candidates are kept.
	Release *streams.Release `json:"release,omitempty"`
}

// cache keeps what is known of digests, in memory and in a folder. Files appear whole or not at
// all, so processes may share it.
type cache struct {
	dir   string // empty: there is none
	max   int
	clock clock.PassiveClock

	mu     sync.Mutex
	memory map[string]known
}

// path is the file of a key, which is made of a kind and a digest.
func (c *cache) path(key string) string {
	return filepath.Join(c.dir, strings.ReplaceAll(key, ":", "-")+cacheSuffix)
}

// load finds what is known. A file that can't be read is no file: it will be written anew.
func (c *cache) load(key string) (known, bool) {
	c.mu.Lock()
	found, ok := c.memory[key]
	c.mu.Unlock()
	if ok || c.dir == "" {
		return found, ok
	}
	content, err := os.ReadFile(c.path(key))
	if err != nil || json.Unmarshal(content, &found) != nil {
		return known{}, false
	}
	now := c.clock.Now()
	_ = os.Chtimes(c.path(key), now, now) // it is in use; if that can't be said, it goes a little earlier
	c.remember(key, found)
	return found, true
}

func (c *cache) remember(key string, value known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory == nil || len(c.memory) >= c.max {
		c.memory = map[string]known{}
	}
	c.memory[key] = value
}

// store adds what is known, and removes the files that were not used for longest.
func (c *cache) store(key string, value known) error {
	c.remember(key, value)
	if c.dir == "" {
		return nil
	}
	content, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("caching what is known of an image: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("caching what is known of an image: %w", err)
	}
	file, err := os.CreateTemp(c.dir, tempPrefix)
	if err != nil {
		return fmt.Errorf("caching what is known of an image: %w", err)
	}
	_, err = file.Write(content)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(file.Name(), c.path(key))
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("caching what is known of an image: %w", err)
	}
	c.prune()
	return nil
}

// prune keeps the folder at its size. What can't be removed now is removed later.
func (c *cache) prune() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	var files []fs.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		switch {
		case err != nil: // another process was faster
		case strings.HasSuffix(entry.Name(), cacheSuffix):
			files = append(files, info)
		case strings.HasPrefix(entry.Name(), tempPrefix) && c.clock.Since(info.ModTime()) > tempAge:
			_ = os.Remove(filepath.Join(c.dir, entry.Name()))
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, info := range files[min(c.max, len(files)):] {
		_ = os.Remove(filepath.Join(c.dir, info.Name()))
	}
}
