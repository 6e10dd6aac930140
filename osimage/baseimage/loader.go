package baseimage

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/internal/turns"
	"github.com/layerwright/layerwright/osimage/osindex"
)

const (
	defaultMaxCached    = 32
	defaultMaxFileBytes = 1 << 20
	// maxFilesBytes is how much is read of an image's files at once.
	maxFilesBytes = 32 << 20
	// atOnce is how many images are indexed, or have their package databases read, at the same
	// time. Each takes a core, and memory or disk.
	atOnce = 2
	// keepAfter is how long layers are read before what is known of them is kept, so that the next
	// try goes on there.
	keepAfter = time.Minute
)

// Options configures a [Loader]. The zero value works, without a cache.
type Options struct {
	// CacheDir is the folder for indexes, made when it is needed; several processes may share it.
	// Nothing is cached where it is empty.
	CacheDir string
	// MaxCached is the number of indexes that stay in the cache, the least recently used goes
	// first; 32 where it is not positive. An index takes up to about 1 MB. So many lists of
	// packages stay too, of up to about 100 kB.
	MaxCached int
	// MaxFileBytes is the size of the biggest file that ReadFiles reads; 1 MiB where it is not
	// positive.
	MaxFileBytes int64
	// MaxMemory is about how much memory all indexes may take that anyone holds, in bytes; without
	// a limit where it is not positive. [MaxMemory] is what a controller has for them.
	MaxMemory int
	// Progress is told what is being read, if it is set. It is called while reading, so it must be
	// quick; calls for different images may come at the same time.
	Progress ProgressFunc
	// Clock tells how old cached indexes are; the system's where nil.
	Clock clock.PassiveClock
}

// ProgressFunc is told how far the reading of a layer has come: when it begins, about every MiB,
// and when it is done.
type ProgressFunc func(Progress)

// Progress is how far the reading of a layer has come.
type Progress struct {
	// Image is the digest of the image's configuration.
	Image v1.Hash
	// Layer counts from 1 to Layers.
	Layer, Layers int
	// Bytes of Size have been read, both compressed.
	Bytes, Size int64
}

// Loader makes and keeps indexes of images. Its methods may be called at the same time.
type Loader struct {
	options Options
	cache   cache
	flights turns.Flights
	turns   *turns.Turns
	// memory is that of all indexes.
	memory *budget
}

// New returns a loader. Nothing is made or read before it is needed.
func New(options Options) *Loader {
	if options.MaxCached <= 0 {
		options.MaxCached = defaultMaxCached
	}
	if options.MaxFileBytes <= 0 {
		options.MaxFileBytes = defaultMaxFileBytes
	}
	if options.MaxMemory <= 0 {
		options.MaxMemory = math.MaxInt
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Loader{
		options: options,
		cache:   cache{dir: options.CacheDir, max: options.MaxCached, clock: options.Clock},
		turns:   turns.New(atOnce, options.Clock),
		memory:  newBudget(options.MaxMemory),
	}
}

// Index returns the index of an image, which is one platform's: who has an index of several chooses
// one. It must not be changed, callers may share it.
//
// The cache knows an image by the chain of its layers' uncompressed digests (the ChainID of the OCI
// image specification), and so every image that begins with the same layers: of an image that was
// built on an indexed base, only its own layers are read. Callers that want the same image at the
// same time share one reading. A cache that can't be read or written costs time, not the result;
// the logger in ctx is told.
//
// A few images are read at a time, and one of each registry. Others get a [turns.WaitError], as
// does who shares a reading that takes long.
//
// All indexes that anyone holds have one budget of memory. Who holds one should let it go before
// asking for another: while others hold all there is, Index waits for it, and at last returns an
// error.
//
// When ctx ends, Index returns at once. Requests of a remote image should end with it too: give it
// remote.WithContext. Errors: [fault.Terminal] for an image that does not exist, may not be pulled,
// or is broken for good. All others, such as an unreachable registry or a transfer that was cut
// off, may go away.
func (l *Loader) Index(ctx context.Context, image v1.Image) (*osindex.Index, error) {
	p, err := open(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("indexing an image: %w", err)
	}
	if len(p.layers) == 0 {
		return &osindex.Index{}, nil
	}
	x, err := turns.Share(ctx, &l.flights, p.flight(p.keys[len(p.keys)-1]), p.image, func() (*osindex.Index, error) { return l.index(ctx, p) })
	if err != nil {
		return nil, fmt.Errorf("indexing image %q: %w", p.name, err)
	}
	return x, nil
}

// index takes from the cache what it has, and applies the layers that are missing. Memory is taken
// before it is used, for decoding too.
func (l *Loader) index(ctx context.Context, p *parts) (x *osindex.Index, err error) {
	log := logr.FromContextOrDiscard(ctx).WithValues("image", p.name)
	key := p.keys[len(p.keys)-1]
	if x = l.memory.known(key); x != nil {
		l.cache.touch(l.cache.path(key))
		return x, nil
	}
	memory := l.memory.grant(ctx)
	defer func() { memory.end(key, x) }()
	// x is the index when it is whole, and not before: a panic leaves nothing in memory.
	made, known, err := l.cache.longest(log, p.keys, memory.take)
	if err != nil || known == len(p.layers) {
		return made, err
	}
	ctx, end, err := l.turns.Take(ctx, p.registry, p.image)
	if err != nil {
		return nil, err
	}
	defer end()
	memory.ctx = ctx // who waits for memory does not outlast the turn
	kept := l.options.Clock.Now()
	for number := known; number < len(p.layers); number++ {
		if err := l.stream(ctx, p, number, made.Apply); err != nil {
			return nil, err
		}
		if number+1 < len(p.layers) && l.options.Clock.Since(kept) >= keepAfter {
			kept = l.options.Clock.Now()
			_ = l.cache.store(p.keys[number], made) // only the next try misses it
		}
	}
	if err := l.cache.store(key, made); err != nil {
		log.Error(err, "Index not cached")
	}
	return made, nil
}
