package runs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBuildsBeginInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	r := New(2)
	assert.True(t, r.Admit("a-1", t0))
	assert.True(t, r.Admit("a-1", t0), "asking again changes nothing")
	assert.True(t, r.Admit("b-1", t0))
	assert.False(t, r.Admit("c-1", t0), "two are at work")
	assert.False(t, r.Admit("d-1", t0))

	_, endA, ok := r.Begin(t.Context(), "a", "a-1")
	assert.True(t, ok)
	_, endB, ok := r.Begin(t.Context(), "b", "b-1")
	assert.True(t, ok)
	assert.False(t, r.Admit("d-1", t0), "one that was admitted and one that runs are the same one")
	endA()
	assert.False(t, r.Admit("d-1", t0), "the other one came first")
	assert.True(t, r.Admit("c-1", t0))
	assert.False(t, r.Admit("d-1", t0))
	endB()
	assert.True(t, r.Admit("d-1", t0))
}

func TestPlacesOfTheGoneAreForgotten(t *testing.T) {
	t.Parallel()
	r := New(1)
	assert.True(t, r.Admit("admitted", t0))
	assert.False(t, r.Admit("gone", t0))
	assert.False(t, r.Admit("patient", t0))
	soon := t0.Add(reservationTimeout)
	assert.False(t, r.Admit("patient", soon), "the others may come back")
	late := soon.Add(time.Second)
	assert.True(t, r.Admit("patient", late), "neither did")
	assert.False(t, r.Admit("gone", late), "and has to wait like anybody else")
}

var t0 = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
