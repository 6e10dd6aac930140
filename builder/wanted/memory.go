package wanted

import (
	"time"

	"k8s.io/utils/lru"

	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

// Image is what preflight found for a MachineOSConfig: the image that is wanted, and what it
// is made with.
type Image struct {
	key string
	at  time.Time

	Credentials credentials.Credentials
	Base        *recipe.Base
	Extensions  string
	Record      *plan.Record
	HasContent  bool
	// content is what has to be built.
	content order.Content
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
// configuration in it, and is in recipes, for as long as a build needs it.
type memory struct{ last, failed, recipes *lru.Cache }

// How many MachineOSConfigs are remembered, and how many recipes.
const (
	maxConfigs = 1024
	maxRecipes = 16
)

func newMemory() *memory {
	return &memory{last: lru.New(maxConfigs), failed: lru.New(maxConfigs), recipes: lru.New(maxRecipes)}
}

// of is what was found last, unless that was about something else, or before the given time.
func (m *memory) of(config, key string, since time.Time) *Image {
	last := m.latest(config)
	if last == nil || last.key != key || last.at.Before(since) {
		return nil
	}
	return last
}

// latest is what was found last, whatever has changed since; nil where nothing was found yet.
func (m *memory) latest(config string) *Image { return get[Image](m.last, config) }

func (m *memory) remember(config string, found *Image) {
	m.last.Add(config, found)
	m.failed.Remove(config)
}

// note remembers what is wrong.
func (m *memory) note(config string, f *failure) { m.failed.Add(config, f) }

// failure is what was wrong when it was looked at last; nil where nothing was.
func (m *memory) failure(config string) *failure { return get[failure](m.failed, config) }

// outdate has the next look find out again which image is wanted, whatever is remembered.
func (m *memory) outdate(config string) {
	if last := m.latest(config); last != nil {
		again := *last
		again.key = ""
		m.remember(config, &again)
	}
}

func (m *memory) forget(config string) {
	m.last.Remove(config)
	m.failed.Remove(config)
}

func get[T any](from *lru.Cache, key string) *T {
	found, _ := from.Get(key)
	value, _ := found.(*T)
	return value
}
