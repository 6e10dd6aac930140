package wanted

import (
	"sync"
	"time"

	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

// Image is what preflight found for a MachineOSConfig: the image that is wanted, and what it
// is made with.
type Image struct {
	key string
	at  time.Time

	Credentials credentials.Credentials
	Base        *preflight.Base
	Extensions  string
	Record      *plan.Record
	HasContent  bool
	// content is what has to be built.
	content maker.Content
	// Warnings are the linter's, about the Containerfiles.
	Warnings []string
}

// failure is what is wrong with a MachineOSConfig, or with what it names, until a person acts.
type failure struct {
	key string
	// access identifies the secrets that it was found with.
	access string
	at     time.Time
	err    error
}

// memory remembers what was found last for each MachineOSConfig, since many reconciles follow one
// change. It holds nothing that could not be found again, and no description: that has all of the
// configuration in it.
type memory struct {
	mu     sync.Mutex
	last   map[string]*Image
	failed map[string]*failure
}

func newMemory() *memory {
	return &memory{last: map[string]*Image{}, failed: map[string]*failure{}}
}

// of is what was found last, unless that was about something else, or before the given time.
func (i *memory) of(config, key string, since time.Time) *Image {
	i.mu.Lock()
	defer i.mu.Unlock()
	last := i.last[config]
	if last == nil || last.key != key || last.at.Before(since) {
		return nil
	}
	return last
}

// latest is what was found last, whatever has changed since; nil where nothing was found yet.
func (i *memory) latest(config string) *Image {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last[config]
}

func (i *memory) remember(config string, found *Image) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last[config] = found
	delete(i.failed, config)
}

// note remembers what is wrong.
func (i *memory) note(config string, f *failure) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failed[config] = f
}

// failure is what was wrong when it was looked at last; nil where nothing was.
func (i *memory) failure(config string) *failure {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.failed[config]
}

func (i *memory) forget(config string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.last, config)
	delete(i.failed, config)
}
