//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/builder/engine/classify"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// attempts are how often a registry is tried within one step. More is the backend's to decide.
const attempts = 3

// transfer is one step's copying of images, counted together.
type transfer struct {
	run    *run
	policy *signature.PolicyContext
	mutex  sync.Mutex
	blobs  map[string]*blob
	copied map[string]string // digests of the manifests that were written, by the image's name
}

// blob is how far one of them is.
type blob struct {
	size, done int64
	state      types.ProgressEvent
	isConfig   bool
}

func (r *run) newTransfer(policy *signature.Policy) (*transfer, error) {
	context, err := signature.NewPolicyContext(policy)
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	return &transfer{run: r, policy: context, blobs: map[string]*blob{}, copied: map[string]string{}}, nil
}

func (t *transfer) close() { _ = t.policy.Destroy() }

// imageCopy is one image to copy.
type imageCopy struct {
	what        string
	from, to    types.ImageReference
	options     copy.Options
	isUpload    bool
	classifying func(error) error
}

// copyImage copies an image, and tries again where a registry failed for a passing reason. What has
// arrived is not sent again.
func (t *transfer) copyImage(ctx context.Context, o imageCopy) (copied []byte, err error) {
	pause := t.run.Pause
	for attempt := 1; ; attempt++ {
		copied, err = t.attempt(ctx, o)
		if err == nil {
			return copied, nil
		}
		err = o.classifying(err)
		if attempt == attempts || ctx.Err() != nil || report.IsAdmin(err) {
			return nil, err
		}
		people := t.run.output.Lines()
		_, _ = fmt.Fprintf(people, "attempt %d of %d failed, the next one is in %s: %s\n", attempt, attempts, pause, t.run.secrets.FailureOf(err).Message)
		select {
		case <-ctx.Done():
			return nil, err
		case <-t.run.Clock.After(pause):
		}
		pause *= 2
	}
}

// attempt copies once. A registry that neither sends nor takes anything for longer than Patience
// has failed.
func (t *transfer) attempt(ctx context.Context, o imageCopy) ([]byte, error) {
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events := make(chan types.ProgressProperties)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		t.watch(o, events, cancel)
	}()
	options := o.options
	options.Progress = events
	options.ProgressInterval = time.Second / 4
	options.MaxParallelDownloads = parallelLayers
	copied, err := copy.Image(attempt, t.policy, o.to, o.from, &options)
	close(events)
	<-watched
	if err != nil && attempt.Err() != nil && ctx.Err() == nil {
		err = context.Cause(attempt)
	}
	return copied, err
}

// errTooLong is a registry that would fill the volume.
var errTooLong = errors.New("the registry sends more than the manifest says")

// watch counts what the copy reports, until it is over.
func (t *transfer) watch(o imageCopy, events <-chan types.ProgressProperties, cancel context.CancelCauseFunc) {
	patience := t.run.Clock.NewTimer(t.run.Patience)
	defer patience.Stop()
	for {
		select {
		case event, more := <-events:
			if !more {
				return
			}
			t.count(o, event)
			restart(patience, t.run.Patience)
			if size := event.Artifact.Size; size > 0 && event.Offset > uint64(size) {
				cancel(fmt.Errorf("%s: %w: %s has %d bytes", o.what, errTooLong, event.Artifact.Digest, size))
			}
		case <-patience.C():
			if !o.isUpload && t.isUnpacking() {
				patience.Reset(t.run.Patience) // the registry has done its part
				continue
			}
			cancel(fmt.Errorf("%s: %w (%s)", o.what, classify.ErrNoProgress, t.run.Patience))
		}
	}
}

func restart(timer clock.Timer, after time.Duration) {
	if !timer.Stop() {
		select {
		case <-timer.C():
		default:
		}
	}
	timer.Reset(after)
}

func (t *transfer) count(o imageCopy, event types.ProgressProperties) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	b := t.blobs[event.Artifact.Digest.String()]
	if b == nil {
		b = &blob{}
		t.blobs[event.Artifact.Digest.String()] = b
	}
	if event.Event == types.ProgressEventSkipped && b.state == types.ProgressEventDone {
		return // it is there since an earlier attempt
	}
	b.state = event.Event
	b.isConfig = isConfig(event.Artifact.MediaType)
	b.size = max(b.size, event.Artifact.Size, int64(event.Offset)) //nolint:gosec // sizes of blobs
	switch event.Event {
	case types.ProgressEventSkipped:
		b.size, b.done = 0, 0
	case types.ProgressEventNewArtifact, types.ProgressEventRead, types.ProgressEventDone:
		b.done = max(b.done, int64(event.Offset)) //nolint:gosec // sizes of blobs
	}
	done, total := t.sum()
	t.run.output.Progress(done, total, o.what)
}

func isConfig(mediaType string) bool {
	return mediaType == imagespec.MediaTypeImageConfig || mediaType == manifest.DockerV2Schema2ConfigMediaType
}

func (t *transfer) sum() (done, total int64) {
	for _, b := range t.blobs {
		done += b.done
		total += b.size
	}
	return done, total
}

// isUnpacking reports whether all that was begun has arrived.
func (t *transfer) isUnpacking() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, b := range t.blobs {
		if b.state == types.ProgressEventNewArtifact || b.state == types.ProgressEventRead {
			return false
		}
	}
	return len(t.blobs) > 0
}

// moved are the layers that went over the wire, and the bytes of them and of what else did.
func (t *transfer) moved() (bytes int64, layers int) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, b := range t.blobs {
		bytes += b.done
		if b.done > 0 && !b.isConfig {
			layers++
		}
	}
	return bytes, layers
}

// wasReused reports whether the destination had the blob already.
func (t *transfer) wasReused(digest string) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	b := t.blobs[digest]
	return b != nil && b.state == types.ProgressEventSkipped
}

// wasSent reports whether any of the blob was asked for by the destination.
func (t *transfer) wasSent(digest string) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	b := t.blobs[digest]
	return b != nil && b.done > 0
}
