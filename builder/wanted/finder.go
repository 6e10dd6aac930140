package wanted

import (
	"hash/fnv"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/internal/inwork"
)

// Times for which what was found is believed.
const (
	// Idle is for tags that moved and images that were deleted.
	Idle = 10 * time.Minute
	// stopped is for what was put right in a registry.
	stopped = time.Minute
	// soon is how much earlier than the next look what was found is no longer believed.
	soon = 10 * time.Second
)

// Again is when to look again without being told: idle and up to a fifth of it, different for each
// name. What began together is not looked at together for ever.
func Again(name string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	const parts = 100
	return Idle + Idle/5/parts*time.Duration(hash.Sum32()%parts)
}

// Options are what a Finder works with.
type Options struct {
	// Client reads from the cache, Reader asks the API server.
	Client client.Reader
	Reader client.Reader
	Clock  clock.PassiveClock
	// Namespace has the secrets and ConfigMaps that MachineOSConfigs name.
	Namespace string
	// Checker looks at what a MachineOSConfig names, and Maker at what registries have already.
	Checker *preflight.Checker
	Maker   *maker.Maker
	// InWork may be nil.
	InWork *inwork.Log
}

// Finder finds out which images MachineOSConfigs want, remembers it, and hands it on to builds.
type Finder struct {
	options Options
	memory  *memory
}

// New makes a finder that remembers nothing yet.
func New(options Options) *Finder {
	return &Finder{options: options, memory: newMemory()}
}

// Latest is what was found last for a MachineOSConfig, whatever has changed since; nil where
// nothing was found yet.
func (f *Finder) Latest(config string) *Image { return f.memory.latest(config) }

// Forget drops what is known of a MachineOSConfig that is gone.
func (f *Finder) Forget(config string) { f.memory.forget(config) }
