package turns_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/turns"
)

// requireWaits asserts that a turn is refused, and why.
func requireWaits(t *testing.T, err error, text string) {
	t.Helper()
	var wait *turns.WaitError
	require.ErrorAs(t, err, &wait)
	require.EqualError(t, err, text)
	require.Equal(t, fault.Waiting, fault.ClassOf(err))
	require.InDelta(t, 2*time.Second, fault.After(err), float64(50*time.Millisecond))
}

func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		given := turns.New(2, clock.RealClock{})
		_, endA, err := given.Take(t.Context(), "a.example", "a.example/os:1")
		require.NoError(t, err)
		_, _, err = given.Take(t.Context(), "a.example", "a.example/os:2")
		requireWaits(t, err, `it waits for the turn of image "a.example/os:1" of registry "a.example", which is read now`)
		_, endB, err := given.Take(t.Context(), "b.example", "b.example/os:1")
		require.NoError(t, err, "one registry keeps no other from being read")
		_, _, err = given.Take(t.Context(), "c.example", "c.example/os:1")
		requireWaits(t, err, `it waits for the turn of image "a.example/os:1" of registry "a.example", which is read now`)

		time.AfterFunc(500*time.Millisecond, endA)
		_, endC, err := given.Take(t.Context(), "c.example", "c.example/os:1")
		require.NoError(t, err, "it is waited for a little")
		endB()
		endC()
	})
}

func TestManyQuickTurnsAreTakenInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		given := turns.New(1, clock.RealClock{})
		const quick = 40 * time.Millisecond
		var order []int
		for n := range 20 {
			go func() {
				_, end, err := given.Take(t.Context(), "a.example", "a.example/os:1")
				if assert.NoError(t, err) {
					order = append(order, n)
					time.Sleep(quick)
					end()
				}
			}()
			synctest.Wait()
		}
		time.Sleep(20 * quick)
		synctest.Wait()
		assert.IsIncreasing(t, order)
		assert.Len(t, order, 20)
	})
}

func TestALongTurnEndsForOthers(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]string{"of another registry": "b.example", "of the same registry": "slow.example"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				given := turns.New(1, clock.RealClock{})
				slow, endSlow, err := given.Take(t.Context(), "slow.example", "slow.example/os:1")
				require.NoError(t, err)
				time.Sleep(4 * time.Minute)
				_, _, err = given.Take(t.Context(), other, other+"/os:2")
				require.Error(t, err)
				require.NoError(t, slow.Err())

				time.Sleep(time.Minute)
				_, _, err = given.Take(t.Context(), other, other+"/os:2")
				requireWaits(t, err, `it waits for the turn of image "slow.example/os:1" of registry "slow.example", which is read now`)
				require.EqualError(t, context.Cause(slow), `image "slow.example/os:1" took more than 5m0s to read while others waited; it goes on at its next turn`)
				require.True(t, fault.IsWaiting(context.Cause(slow)))
				endSlow()
				_, end, err := given.Take(t.Context(), other, other+"/os:2")
				require.NoError(t, err)
				end()
			})
		})
	}
}

// TestTurnsThatEndEachOtherGrow has two images of one registry need seven minutes each.
func TestTurnsThatEndEachOtherGrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		given := turns.New(1, clock.RealClock{})
		want := func(image, other string) (done bool) {
			ctx, end, err := given.Take(t.Context(), "a.example", image)
			require.NoError(t, err)
			defer end()
			for range 7 {
				time.Sleep(time.Minute)
				_, _, err := given.Take(t.Context(), "a.example", other)
				require.Error(t, err)
				if ctx.Err() != nil {
					return false
				}
			}
			return true
		}
		require.False(t, want("one", "two"))
		require.False(t, want("two", "one"))
		require.True(t, want("one", "two"))
		require.True(t, want("two", "one"))
		require.False(t, want("one", "two"), "what was read begins anew")
	})
}

func TestATurnIsNotWaitedForWithoutAContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		given := turns.New(1, clock.RealClock{})
		_, end, err := given.Take(t.Context(), "a.example", "a.example/os:1")
		require.NoError(t, err)
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stopped)
		_, _, err = given.Take(ctx, "b.example", "b.example/os:1")
		require.ErrorIs(t, err, stopped)
		end()
		_, end, err = given.Take(t.Context(), "b.example", "b.example/os:1")
		require.NoError(t, err, "it has left no trace")
		end()
	})
}

func TestShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var flights turns.Flights
		read := make(chan int)
		ask := func() (int, error) {
			return turns.Share(t.Context(), &flights, "key", "a.example/os:1", func() (int, error) { return <-read, nil })
		}
		leads := make(chan int, 1)
		go func() {
			got, err := ask()
			assert.NoError(t, err)
			leads <- got
		}()
		synctest.Wait()
		asked := time.Now()
		_, err := ask()
		assert.Equal(t, time.Second, time.Since(asked), "no longer than for a turn")
		requireWaits(t, err, `it waits until image "a.example/os:1" has been read, which is wanted elsewhere too`)

		for range 9 {
			_, err = ask()
		}
		assert.Equal(t, 2500*time.Millisecond, fault.After(err), "many ask again with room between them")
		for range 300 {
			_, err = ask()
		}
		assert.Equal(t, 15*time.Second, fault.After(err))

		follows := make(chan int, 1)
		go func() {
			got, err := ask()
			assert.NoError(t, err)
			follows <- got
		}()
		synctest.Wait()
		read <- 7
		assert.Equal(t, 7, <-leads, "who reads is not hurried")
		assert.Equal(t, 7, <-follows)

		go func() {
			got, err := ask()
			assert.NoError(t, err)
			leads <- got
		}()
		synctest.Wait()
		_, err = ask()
		assert.Equal(t, 2050*time.Millisecond, fault.After(err), "another reading")
		read <- 8
		assert.Equal(t, 8, <-leads)
	})
}

func TestAPanicIsAnError(t *testing.T) {
	t.Parallel()
	var flights turns.Flights
	_, err := turns.Share(t.Context(), &flights, "key", "a.example/os:1", func() (int, error) { panic("broken") })
	require.EqualError(t, err, `reading image "a.example/os:1": panic: broken`)
}
