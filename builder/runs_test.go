package builder

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBuildsBeginInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	r := newRuns(2)
	assert.True(t, r.admit("a-1", t0))
	assert.True(t, r.admit("a-1", t0), "asking again changes nothing")
	assert.True(t, r.admit("b-1", t0))
	assert.False(t, r.admit("c-1", t0), "two are at work")
	assert.False(t, r.admit("d-1", t0))

	_, endA, ok := r.begin(t.Context(), "a", "a-1")
	assert.True(t, ok)
	_, endB, ok := r.begin(t.Context(), "b", "b-1")
	assert.True(t, ok)
	assert.False(t, r.admit("d-1", t0), "one that was admitted and one that runs are the same one")
	endA()
	assert.False(t, r.admit("d-1", t0), "the other one came first")
	assert.True(t, r.admit("c-1", t0))
	assert.False(t, r.admit("d-1", t0))
	endB()
	assert.True(t, r.admit("d-1", t0))
}

func TestPlacesOfTheGoneAreForgotten(t *testing.T) {
	t.Parallel()
	r := newRuns(1)
	assert.True(t, r.admit("admitted", t0))
	assert.False(t, r.admit("gone", t0))
	assert.False(t, r.admit("patient", t0))
	soon := t0.Add(forgotten)
	assert.False(t, r.admit("patient", soon), "the others may come back")
	late := soon.Add(time.Second)
	assert.True(t, r.admit("patient", late), "neither did")
	assert.False(t, r.admit("gone", late), "and has to wait like anybody else")
}
