package configs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/turns"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/test/worldtest"
)

// queued is a reader of base images that takes a turn for each.
type queued struct {
	configlayer.BaseImages
	*turns.Turns
}

// Index reads when it has a turn.
func (q queued) Index(ctx context.Context, image v1.Image) (*osindex.Index, error) {
	ctx, end, err := q.Take(ctx, "registry.example", "registry.example/os:1")
	if err != nil {
		return nil, err
	}
	defer end()
	return q.BaseImages.Index(ctx, image)
}

// sharing is a reader of base images that reads one at a time for all who want it.
type sharing struct {
	configlayer.BaseImages

	flights *turns.Flights
}

// Index reads, or waits a moment for who does.
func (s sharing) Index(ctx context.Context, image v1.Image) (*osindex.Index, error) {
	return turns.Share(ctx, s.flights, "os", "registry.example/os:1", func() (*osindex.Index, error) { return s.BaseImages.Index(ctx, image) })
}

// TestWhoWaitsForATurnSaysSoOnce has another pool read the base image for long.
func TestWhoWaitsForATurnSaysSoOnce(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	var flights turns.Flights
	begun, ends, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		_, err := turns.Share(context.WithoutCancel(t.Context()), &flights, "os", "registry.example/os:1", func() (*osindex.Index, error) {
			close(begun)
			<-ends
			return nil, errors.New("broken off")
		})
		ended <- err
	}()
	<-begun
	b := w.Builder(func(o *worldtest.Settings) { o.Base, o.SlowAfter = sharing{o.Base, &flights}, 20*time.Millisecond })
	require.NoError(t, w.Round(b))
	assert.Contains(t, w.Says("worker", status.Reconciling), "True WaitingForTurn ")
	written := len(w.Writes)
	for range 2 {
		require.NoError(t, w.Round(b))
	}
	assert.Empty(t, w.Writes[written:], "what it waits for is said already")
	close(ends)
	require.EqualError(t, <-ended, "broken off")
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

// TestWaitingForATurnUsesUpNoAttempt: other images are no fault of the build's.
func TestWaitingForATurnUsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildRetryLimit = new(int32) })
	given := turns.New(1, clock.RealClock{})
	require.NoError(t, w.Round(w.Builder()))
	_, end, err := given.Take(t.Context(), "slow.example", "slow.example/os:1")
	require.NoError(t, err)
	b := w.Builder(func(o *worldtest.Settings) { o.Base = queued{o.Base, given} })
	for range 2 {
		_, err = b.Parts().Builds.Reconcile(t.Context(), worldtest.Request(w.Builds()[0].Name))
		require.NoError(t, err)
	}
	assert.Equal(t, "False AsExpected", worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildFailed))
	end()
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

// TestWhoWaitsForATurnSaysWhose has a base image of a slow registry take the only turn.
func TestWhoWaitsForATurnSaysWhose(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	given := turns.New(1, clock.RealClock{})
	process := func() *worldtest.Process {
		return w.Builder(func(o *worldtest.Settings) { o.Base = queued{o.Base, given} })
	}
	slow := func() (end func()) {
		_, end, err := given.Take(t.Context(), "slow.example", "slow.example/os:1")
		require.NoError(t, err)
		return end
	}
	const says = `it waits for the turn of image "slow.example/os:1" of registry "slow.example", which is read now`

	end := slow()
	require.NoError(t, w.Round(process()), "waiting is no failure")
	assert.Contains(t, w.Says("worker", status.Reconciling), "True WaitingForTurn ")
	assert.Contains(t, w.Says("worker", status.Reconciling), says)
	end()
	require.NoError(t, w.Round(process()))
	require.Len(t, w.Builds(), 1)

	end = slow()
	require.NoError(t, w.Round(process()))
	assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.Reconciling), "True WaitingForTurn ")
	assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.Reconciling), says)
	end()
	b := process()
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))

	end = slow()
	w.Clock.SetTime(w.Clock.Now().Add(time.Hour)) // what was found is looked at again
	require.NoError(t, w.Round(b))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready), "a turn changes nothing about an image")
	end()
}

// TestAPassingWaitAnswersNoQuestion asks for a check of images, and for a trial of a stream, while
// the only turn is taken.
func TestAPassingWaitAnswersNoQuestion(t *testing.T) {
	t.Parallel()
	given := turns.New(1, clock.RealClock{})
	process := func(w *worldtest.World) *worldtest.Process {
		return w.Builder(func(o *worldtest.Settings) { o.Base = queued{o.Base, given} })
	}
	w := worldtest.Layered(t, "worker")
	w.Annotate("worker", mcfgv1.AnnotationCheckImages)
	_, end, err := given.Take(t.Context(), "slow.example", "slow.example/os:1")
	require.NoError(t, err)
	require.NoError(t, w.Round(process(w)))
	assert.Contains(t, w.Says("worker", status.Reconciling), "True WaitingForTurn ")
	assert.Contains(t, w.OSConfig("worker").Annotations, mcfgv1.AnnotationCheckImages, "nothing was checked")
	end()
	w.Settle(process(w))
	assert.NotContains(t, w.OSConfig("worker").Annotations, mcfgv1.AnnotationCheckImages)

	base := &busy{}
	w, b := worldtest.Trying(t, worldtest.Motd, func(o *worldtest.Settings) {
		base.Loader = o.Base.(*baseimage.Loader)
		o.Base = base
	})
	w.Try(worldtest.NewStream)
	for reading := 1; ; reading++ { // each of them may have to wait
		base.left = reading
		trial, result, err := w.ReconcileTrial(b)
		require.NoError(t, err)
		if base.left > 0 {
			assert.Equal(t, mcfgv1.StreamTrialReported, trial.State)
			assert.Empty(t, trial.Blockers)
			assert.Greater(t, reading, 3, "both sides are described, and compared")
			return
		}
		require.Equal(t, mcfgv1.StreamTrialRunning, trial.State, "%v", trial.Blockers)
		assert.Positive(t, result.RequeueAfter)
	}
}

// busy is a reader of base images where another image has the turn once, when left comes to zero.
type busy struct {
	*baseimage.Loader

	left int
}

// Index reads, or waits.
func (b *busy) Index(ctx context.Context, image v1.Image) (*osindex.Index, error) {
	if b.left--; b.left == 0 {
		return nil, fault.NewWaiting(mcfgv1.ReasonWaitingForTurn, time.Second, assert.AnError)
	}
	return b.Loader.Index(ctx, image)
}
