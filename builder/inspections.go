package builder

import (
	"sync"
	"time"

	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

// inspection is what preflight found for a MachineOSConfig: the image that is wanted, and what it
// is made with.
type inspection struct {
	key string
	at  time.Time

	credentials credentials.Credentials
	base        *preflight.Base
	extensions  string
	record      *plan.Record
	hasContent  bool
	// content is what has to be built.
	content maker.Content
	// warnings are the linter's, about the Containerfiles.
	warnings []string
}

// failure is what is wrong with a MachineOSConfig, or with what it names, until a person acts.
type failure struct {
	key string
	// access identifies the secrets that it was found with.
	access string
	at     time.Time
	err    error
}

// inspections remember what was found last for each MachineOSConfig, since many passes follow one
// change. They hold nothing that could not be found again, and no description: that has all of the
// configuration in it.
type inspections struct {
	mu     sync.Mutex
	last   map[string]*inspection
	failed map[string]*failure
}

func newInspections() *inspections {
	return &inspections{last: map[string]*inspection{}, failed: map[string]*failure{}}
}

// of is what was found last, unless that was about something else, or before the given time.
func (i *inspections) of(config, key string, since time.Time) *inspection {
	i.mu.Lock()
	defer i.mu.Unlock()
	last := i.last[config]
	if last == nil || last.key != key || last.at.Before(since) {
		return nil
	}
	return last
}

// latest is what was found last, whatever has changed since; nil where nothing was found yet.
func (i *inspections) latest(config string) *inspection {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last[config]
}

func (i *inspections) remember(config string, found *inspection) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last[config] = found
	delete(i.failed, config)
}

// note remembers what is wrong.
func (i *inspections) note(config string, f *failure) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failed[config] = f
}

// failure is what was wrong when it was looked at last; nil where nothing was.
func (i *inspections) failure(config string) *failure {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.failed[config]
}

func (i *inspections) forget(config string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.last, config)
	delete(i.failed, config)
}
