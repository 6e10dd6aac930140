package images

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLocksAreByName(t *testing.T) {
	t.Parallel()
	var l locks
	lock := func(name string) func() {
		unlock, err := l.lock(t.Context(), name)
		assert.NoError(t, err)
		return unlock
	}
	unlock := lock("a")
	lock("b")()
	got := make(chan struct{})
	go func() {
		defer close(got)
		lock("a")()
	}()
	impatient, giveUp := context.WithCancel(t.Context())
	giveUp()
	_, err := l.lock(impatient, "a")
	require.ErrorIs(t, err, context.Canceled)
	unlock()
	<-got
	assert.Empty(t, l.held)
}

func TestNoImageIsLookedAtForever(t *testing.T) {
	t.Parallel()
	assert.Positive(t, limits().ReconciliationTimeout)
}
