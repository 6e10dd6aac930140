package preflight

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

var t0 = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func TestMemory(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(t0)
	m := newMemory[int](clock, time.Minute, 2)
	asked := 0
	ask := func() (int, error) { asked++; return asked, nil }
	get := func(key string, fresh bool) int {
		value, err := m.get(key, fresh, ask)
		require.NoError(t, err)
		return value
	}
	assert.Equal(t, []int{1, 1, 2, 2}, []int{get("a", false), get("a", false), get("a", true), get("a", false)})
	clock.SetTime(t0.Add(time.Minute))
	assert.Equal(t, 3, get("a", false), "an answer grows old")

	_, err := m.get("b", false, func() (int, error) { return 0, errors.New("no") })
	require.EqualError(t, err, "no")
	assert.Equal(t, 4, get("b", false), "an error is not remembered")
	_, err = m.get("b", true, func() (int, error) { return 0, errors.New("no") })
	require.Error(t, err)
	assert.Equal(t, 4, get("b", false), "and makes nobody forget")

	for i := range 10 {
		clock.SetTime(clock.Now().Add(time.Second))
		get(fmt.Sprint(i), false)
		assert.LessOrEqual(t, len(m.answers), 2)
	}
	assert.Contains(t, m.answers, "9", "what was asked for last is there")
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

func TestRepository(t *testing.T) {
	t.Parallel()
	for pushSpec, want := range map[mcfgv1.ImageTagFormat]string{
		"quay.io/team/os:latest":                   "quay.io/team/os",
		"registry:5000/os/worker:1":                "registry:5000/os/worker",
		"registry.ns.svc:5000/repository/name:tag": "registry.ns.svc:5000/repository/name",
		"127.0.0.1:5000/a/b/c/d:x":                 "127.0.0.1:5000/a/b/c/d",
	} {
		got, err := Repository(pushSpec)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := Repository("quay.io/UPPER/os:latest")
	require.ErrorContains(t, err, "spec.renderedImagePushSpec: ")
	assert.True(t, fault.IsTerminal(err))
}
