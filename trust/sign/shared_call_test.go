package sign

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errAway = errors.New("the service is away")

// A service that hangs takes everyone's time once, not each one's after the other's.
func TestWhoeverWaitsGetsTheAnswerToWhoAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var services SharedCall[int]
		asked, release := 0, make(chan struct{})
		ask := func(context.Context) (int, error) {
			asked++
			<-release
			return asked, errAway
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				got, err := services.Ask(t.Context(), ask)
				if assert.ErrorIs(t, err, errAway) {
					assert.Equal(t, 1, got)
				}
			})
		}
		synctest.Wait()
		impatient, giveUp := context.WithCancel(t.Context())
		giveUp()
		_, err := services.Ask(impatient, ask)
		require.ErrorIs(t, err, context.Canceled)
		close(release)
		all.Wait()
		got, err := services.Ask(t.Context(), ask)
		require.ErrorIs(t, err, errAway)
		assert.Equal(t, 2, got, "an answer is for those who waited for it")
	})
}

// Who gives up takes the answer from no one.
func TestWhoAskedGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var services SharedCall[int]
		ctx, giveUp := context.WithCancel(t.Context())
		release := make(chan struct{})
		ask := func(ctx context.Context) (int, error) {
			<-release
			return 7, ctx.Err()
		}
		gone := make(chan error)
		go func() {
			_, err := services.Ask(ctx, ask)
			gone <- err
		}()
		synctest.Wait()
		giveUp()
		require.ErrorIs(t, <-gone, context.Canceled)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			got, err := services.Ask(t.Context(), func(context.Context) (int, error) { return 0, errAway })
			if assert.NoError(t, err) {
				assert.Equal(t, 7, got)
			}
		})
		synctest.Wait()
		close(release)
		waiting.Wait()
	})
}
