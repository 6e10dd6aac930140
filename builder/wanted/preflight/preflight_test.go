package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

var t0 = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func TestMemory(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(t0)
	m := newMemory[int](clock, time.Minute, 2)
	asked := 0
	ask := func() (int, error) { asked++; return asked, nil }
	get := func(key string, fresh bool) int {
		value, err := m.get(t.Context(), question{about: key, fresh: fresh}, ask)
		require.NoError(t, err)
		return value
	}
	assert.Equal(t, []int{1, 1, 2, 2}, []int{get("a", false), get("a", false), get("a", true), get("a", false)})
	clock.SetTime(t0.Add(time.Minute))
	assert.Equal(t, 3, get("a", false), "an answer grows old")

	_, err := m.get(t.Context(), question{about: "b"}, func() (int, error) { return 0, errors.New("no") })
	require.EqualError(t, err, "no")
	assert.Equal(t, 4, get("b", false), "an error is not remembered")
	_, err = m.get(t.Context(), question{about: "b", fresh: true}, func() (int, error) { return 0, errors.New("no") })
	require.Error(t, err)
	assert.Equal(t, 4, get("b", false), "and makes no one forget")

	for i := range 10 {
		clock.SetTime(clock.Now().Add(time.Second))
		get(fmt.Sprint(i), false)
		assert.LessOrEqual(t, m.answers.Len(), 2)
	}
	_, known := m.known("9|")
	assert.True(t, known, "what was asked for last is there")
}

func TestConcurrentQuestionsAreSharedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory[int](clocktesting.NewFakePassiveClock(t0), time.Minute, 10)
		asked, answer := 0, make(chan error)
		ask := func() (int, error) {
			asked++
			err := <-answer
			return asked, err
		}
		values, errs := make([]int, 3), make([]error, 3)
		var group sync.WaitGroup
		for i := range values {
			group.Go(func() { values[i], errs[i] = m.get(t.Context(), question{about: "a"}, ask) })
		}
		synctest.Wait()
		assert.Equal(t, 1, asked)
		answer <- fmt.Errorf("reading: %w", context.Canceled) // whoever asked first has gone
		synctest.Wait()
		assert.Equal(t, 2, asked, "one of the others asks for both")
		fresh := 0
		group.Go(func() {
			fresh, _ = m.get(t.Context(), question{about: "a", fresh: true}, func() (int, error) { return 100, nil })
		})
		synctest.Wait()
		assert.Equal(t, 100, fresh, "a fresh answer is not one that was asked for earlier")
		answer <- nil
		group.Wait()
		slices.Sort(values)
		assert.Equal(t, []int{1, 2, 2}, values)
		gone := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
		require.Len(t, gone, 1)
		assert.ErrorIs(t, gone[0], context.Canceled)
	})
}

func TestAnswersGrowOldApart(t *testing.T) {
	t.Parallel()
	m := newMemory[int](clocktesting.NewFakePassiveClock(t0), 10*time.Minute, 100)
	seen := map[time.Duration]bool{}
	for i := range 50 {
		ttl := m.ttlOf(fmt.Sprint(i))
		assert.LessOrEqual(t, ttl, 10*time.Minute)
		assert.GreaterOrEqual(t, ttl, 8*time.Minute)
		seen[ttl] = true
	}
	assert.Greater(t, len(seen), 20)
}
