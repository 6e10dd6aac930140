package builder

import (
	"context"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/turns"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// queued is a reader of base images that takes a turn for each.
type queued struct {
	maker.BaseImages
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

// TestWhoWaitsForATurnSaysWhose has a base image of a slow registry take the only turn.
func TestWhoWaitsForATurnSaysWhose(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	given := turns.New(1, clock.RealClock{})
	process := func() *process {
		return w.builder(func(o *settings) { o.Base = queued{o.Base, given} })
	}
	slow := func() (end func()) {
		_, end, err := given.Take(t.Context(), "slow.example", "slow.example/os:1")
		require.NoError(t, err)
		return end
	}
	const says = `it waits for the turn of image "slow.example/os:1" of registry "slow.example", which is read now`

	end := slow()
	require.NoError(t, w.round(process()), "waiting is no failure")
	assert.Contains(t, w.says("worker", status.Reconciling), "True WaitingForTurn ")
	assert.Contains(t, w.says("worker", status.Reconciling), says)
	end()
	require.NoError(t, w.round(process()))
	require.Len(t, w.builds(), 1)

	end = slow()
	require.NoError(t, w.round(process()))
	assert.Contains(t, text(w.builds()[0].Status.Conditions, status.Reconciling), "True WaitingForTurn ")
	assert.Contains(t, text(w.builds()[0].Status.Conditions, status.Reconciling), says)
	end()
	b := process()
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))

	end = slow()
	w.clock.SetTime(w.clock.Now().Add(time.Hour)) // what was found is looked at again
	require.NoError(t, w.round(b))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready), "a turn changes nothing about an image")
	end()
}
