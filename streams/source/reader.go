package source

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/streams"
)

// Defaults of Options.
const (
	// DefaultTagInterval is how long a tag is believed to stand for the same image.
	DefaultTagInterval = 15 * time.Minute
	// DefaultConcurrency is how many images are read at once.
	DefaultConcurrency = 10
	// DefaultTimeout bounds the reading of one source.
	DefaultTimeout = 5 * time.Minute
	// DefaultMaxCached is how many digests are remembered, some 200 bytes each.
	DefaultMaxCached = 512
)

// TagJitter is the part of an interval by which the time of the next look at a tag differs, so that
// clusters that were made together do not ask together.
const TagJitter = 0.2

// Registry reads images, as a registry.Client does.
type Registry interface {
	Resolve(ctx context.Context, image string) (registry.Resolved, error)
	Inspect(ctx context.Context, image string) (registry.Inspected, error)
	Open(ctx context.Context, image string) (v1.Image, error)
}

// Access is how images are reached.
type Access struct {
	// Registry has the credentials, and knows the mirrors.
	Registry Registry
	// Anew asks what tags stand for, however lately that was done.
	Anew bool
}

// Options configure a Reader. The zero value works, with a cache in memory.
type Options struct {
	// CacheDir keeps what is known of digests between starts; it is made when it is needed.
	CacheDir string
	// MaxCached is how many digests that are; DefaultMaxCached where it is not positive.
	MaxCached int
	// Concurrency is how many images are read at once; DefaultConcurrency where it is not positive.
	Concurrency int
	// TagInterval is how long a tag is believed, give or take TagJitter; DefaultTagInterval where
	// it is not positive.
	TagInterval time.Duration
	// Timeout bounds the reading of one source; DefaultTimeout where it is not positive.
	Timeout time.Duration
	// Clock is the system's where nil.
	Clock clock.PassiveClock
	// InWork remembers which image is read, so that one that kills the process is found; nil
	// remembers nothing.
	InWork *inwork.Log
}

// Reader reads what images of streams are. It may be used by several goroutines.
type Reader struct {
	options Options
	cache   *cache

	mu   sync.Mutex
	tags map[string]resolved // by the name with the tag
}

// resolved is what a tag stood for.
type resolved struct {
	digest string
	until  time.Time
}

// NewReader returns a Reader.
func NewReader(options Options) *Reader {
	positive(&options.MaxCached, DefaultMaxCached)
	positive(&options.Concurrency, DefaultConcurrency)
	positive(&options.TagInterval, DefaultTagInterval)
	positive(&options.Timeout, DefaultTimeout)
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Reader{
		options: options, tags: map[string]resolved{},
		cache: &cache{dir: options.CacheDir, max: options.MaxCached, clock: options.Clock},
	}
}

func positive[N int | time.Duration](value *N, otherwise N) {
	if *value <= 0 {
		*value = otherwise
	}
}

// Inspect finds out what the images of a source are, some at once. An image that can't be read has
// a problem; an error is what may pass, and the result counts beside it.
func (r *Reader) Inspect(ctx context.Context, access Access, g streams.Gathered) (streams.Gathered, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	images := append([]streams.Found(nil), g.Images...)
	errs := make([]error, len(images))
	turns := make(chan struct{}, r.options.Concurrency)
	var group sync.WaitGroup
	for i := range images {
		if images[i].Problem != nil {
			continue
		}
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			errs[i] = r.inspect(ctx, access, g.Source, &images[i])
		})
	}
	group.Wait()
	g.Images = images
	return g, fault.Join(errs...)
}

// inspect finds out what one image is.
func (r *Reader) inspect(ctx context.Context, access Access, source streams.Source, f *streams.Found) error {
	digest, labels, err := r.look(ctx, access, f.Image)
	if err == nil {
		f.Pinned, f.Labels = pin(f.Image, digest), labels
		return nil
	}
	problem := streams.Problem{
		Type: mcfgv1.StreamImagesUnreadable, Reason: mcfgv1.ReasonSourceFailed, Message: fmt.Sprintf("%s of %s: %s", f.Where, source, fault.Message(err)),
	}
	f.Problem = &problem
	if fault.IsTerminal(err) {
		return nil
	}
	problem.Reason = mcfgv1.ReasonRetrying
	return fmt.Errorf("%s of %s: %w", f.Where, source, err)
}

// look finds digest and labels of an image, from what is known if it can.
func (r *Reader) look(ctx context.Context, access Access, image string) (digest string, labels map[string]string, err error) {
	if digest, err = r.digest(ctx, access, image); err != nil {
		return "", nil, err
	}
	key := "image-" + digest
	if found, ok := r.cache.load(key); ok {
		return digest, found.Labels, nil
	}
	end, err := r.options.InWork.Begin(ctx, workOn(image, digest))
	if err != nil {
		return "", nil, err
	}
	defer end()
	inspected, err := access.Registry.Inspect(ctx, pin(image, digest))
	if err != nil {
		return "", nil, err
	}
	labels = map[string]string{}
	for _, name := range []string{mcfgv1.ImageLabelStream, mcfgv1.ImageLabelBootc, mcfgv1.ImageLabelExtensions, mcfgv1.ImageLabelRelease} {
		if value, ok := inspected.Labels[name]; ok {
			labels[name] = value
		}
	}
	r.store(ctx, key, known{Labels: labels})
	return digest, labels, nil
}

// digest finds what an image's name stands for; of a tag, what it stood for not long ago.
func (r *Reader) digest(ctx context.Context, access Access, image string) (string, error) {
	if _, digest, isPinned := strings.Cut(image, "@"); isPinned {
		return digest, nil
	}
	now := r.options.Clock.Now()
	r.mu.Lock()
	last, known := r.tags[image]
	r.mu.Unlock()
	if known && !access.Anew && now.Before(last.until) {
		return last.digest, nil
	}
	found, err := access.Registry.Resolve(ctx, image)
	if err != nil {
		return "", err
	}
	digest := found.Digest.String()
	interval := wait.Jitter(time.Duration((1-TagJitter)*float64(r.options.TagInterval)), TagJitter)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tags) >= r.options.MaxCached {
		clear(r.tags)
	}
	r.tags[image] = resolved{digest: digest, until: now.Add(interval)}
	return digest, nil
}

// NextLook is when the first of the tags has to be looked at again; false where the source names
// none.
func (r *Reader) NextLook(g streams.Gathered) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var next time.Time
	for i := range g.Images {
		if streams.IsPinned(g.Images[i].Image) {
			continue
		}
		at := r.options.Clock.Now().Add(r.options.TagInterval)
		if last, known := r.tags[g.Images[i].Image]; known {
			at = last.until
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next, !next.IsZero()
}

// Release reads the list of images of a release image, and keeps the candidates in it.
func (r *Reader) Release(ctx context.Context, access Access, image string) (streams.Release, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	if wrong := streams.CheckReference(image); wrong != "" {
		return streams.Release{}, fault.NewTerminal(mcfgv1.ReasonSourceFailed, fmt.Errorf("reading release image %q: %s", image, wrong))
	}
	digest, err := r.digest(ctx, access, image)
	if err != nil {
		return streams.Release{}, fmt.Errorf("reading release image %q: %w", image, err)
	}
	key := "release-with-limits-" + digest
	if found, ok := r.cache.load(key); ok && found.Release != nil {
		return *found.Release, nil
	}
	end, err := r.options.InWork.Begin(ctx, workOn(image, digest))
	if err != nil {
		return streams.Release{}, fmt.Errorf("reading release image %q: %w", image, err)
	}
	defer end()
	content, limits, err := readRelease(ctx, access, pin(image, digest))
	if err != nil {
		return streams.Release{}, fmt.Errorf("reading release image %q: %w", image, err)
	}
	release, err := streams.ParseImageStream(content)
	if err != nil {
		return streams.Release{}, fault.NewTerminal(mcfgv1.ReasonSourceFailed, fmt.Errorf("reading release image %q: %w", image, err))
	}
	release.Tags, release.SkewLimits = streams.Candidates(release.Tags), limits
	r.store(ctx, key, known{Release: &release})
	return release, nil
}

// readRelease reads what matters of a release image: its list of images, and its limits of boot
// images.
func readRelease(ctx context.Context, access Access, pinned string) (list []byte, limits string, err error) {
	opened, err := access.Registry.Open(ctx, pinned)
	if err != nil {
		return nil, "", err
	}
	if limits, err = skewLimits(opened); err != nil {
		return nil, "", err
	}
	list, err = readList(ctx, opened)
	return list, limits, err
}

// workOn is the work on an image, which another digest begins anew.
func workOn(image, digest string) inwork.Work {
	return inwork.Work{Object: fmt.Sprintf("image %q", image), Version: digest}
}

// store adds to what is known. A cache that can't be written costs time, not the result.
func (r *Reader) store(ctx context.Context, key string, value known) {
	if err := r.cache.store(key, value); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Not cached", "key", key)
	}
}

// pin is an image's name with its digest in place of its tag.
func pin(image, digest string) string {
	repository, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndex(repository, ":"); colon > strings.LastIndex(repository, "/") {
		repository = repository[:colon]
	}
	return repository + "@" + digest
}
