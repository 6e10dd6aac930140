package wanted

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/builder/wanted/preflight"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/registry/credentials"
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

// Registry finds images and content that are there already, as far as they may be taken;
// *reuse.Registry is one.
type Registry interface {
	FindImage(ctx context.Context, with credentials.Credentials, t order.Target, key string, platforms []recipe.Platform) (string, error)
	FindContent(
		ctx context.Context, with credentials.Credentials, content order.Content, repository string, isStale func(context.Context, string) (bool, error),
	) (image string, stated json.RawMessage, err error)
}

// Options are what a Finder works with.
type Options struct {
	// Client reads from the cache, Reader asks the API server.
	Client client.Reader
	Reader client.Reader
	Clock  clock.PassiveClock
	// Namespace has the secrets and ConfigMaps that MachineOSConfigs name.
	Namespace string
	// Checker looks at what a MachineOSConfig names, and Registry at what registries have already.
	Checker  *preflight.Checker
	Registry Registry
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
