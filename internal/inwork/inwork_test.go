package inwork_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
)

var culprit = inwork.Work{Object: `MachineOSConfig "big"`, Version: "1", Retry: "set the annotation x"}

// begin notes work as a process that may be killed: no one takes the note back.
func begin(t *testing.T, l *inwork.Log, w inwork.Work) (end func()) {
	t.Helper()
	end, err := l.Begin(t.Context(), w)
	require.NoError(t, err)
	return end
}

func open(t *testing.T, dir string) *inwork.Log {
	t.Helper()
	l, err := inwork.Open(dir)
	require.NoError(t, err)
	return l
}

func TestWorkThatCrashesTwiceAloneIsRefused(t *testing.T) {
	t.Parallel()
	other := inwork.Work{Object: `MachineOSConfig "other"`, Version: "1"}
	dir := filepath.Join(t.TempDir(), "made", "when-needed")
	first := open(t, dir)
	begin(t, first, culprit)
	begin(t, first, other)

	for range 2 {
		begin(t, open(t, dir), culprit)
	}
	for range 2 { // later ends of the process change nothing
		after := open(t, dir)
		_, err := after.Begin(t.Context(), culprit)
		require.EqualError(t, err, `the controller was killed 2 times while it worked on MachineOSConfig "big" alone, which may take more memory than it `+
			`has: change what it reads to something smaller, or set the annotation x to try again`)
		assert.True(t, fault.IsTerminal(err))
		assert.Equal(t, mcfgv1.ReasonControllerKilled, fault.Reason(err))
		begin(t, after, other)()
	}
	changed := culprit
	changed.Version = "2"
	again := open(t, dir)
	begin(t, again, changed)()
	begin(t, open(t, dir), culprit)()
}

// TestNothingIsBlamedForAnother is about what is in work whenever the process is killed, and never
// alone: it may be long, or begin first after each start.
func TestNothingIsBlamedForAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	innocent := inwork.Work{Object: `MachineOSConfig "innocent"`, Version: "1"}
	for i := range 5 {
		l := open(t, dir)
		begin(t, l, innocent)
		begin(t, l, inwork.Work{Object: fmt.Sprintf("hostile %d", i), Version: "1"})
	}
	begin(t, open(t, dir), innocent)()
}

// TestSuspicionOutlivesTheKillOfAnother is about two that kill the process, in turn: each is found.
func TestSuspicionOutlivesTheKillOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	works := []inwork.Work{{Object: "a"}, {Object: "b"}}
	l := open(t, dir)
	for _, w := range works {
		begin(t, l, w)
	}
	for kill := range 4 {
		begin(t, open(t, dir), works[kill%2])
	}
	l = open(t, dir)
	for _, w := range works {
		_, err := l.Begin(t.Context(), w)
		require.ErrorContains(t, err, "killed 2 times")
	}
}

func TestAnOrderlyEndIsNoCrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 3 {
		l := open(t, dir)
		begin(t, l, culprit)
		require.NoError(t, l.Close())
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestFinishedWorkIsNoSuspect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 3 {
		begin(t, open(t, dir), culprit)
		l := open(t, dir)
		begin(t, l, culprit)()
	}
}

func TestSuspectsAreInWorkOneAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	works := []inwork.Work{{Object: "a"}, {Object: "b"}}
	killed := open(t, dir)
	for _, w := range works {
		begin(t, killed, w)
	}
	l := open(t, dir)
	end := begin(t, l, works[0])
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Begin(ended, works[1])
	require.ErrorIs(t, err, context.Canceled)
	begin(t, l, inwork.Work{Object: "no suspect"})()
	end()
	begin(t, l, works[1])()
}

func TestSuspectsDoNotWaitForLong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	works := []inwork.Work{{Object: "a"}, {Object: "b"}}
	killed := open(t, dir)
	for _, w := range works {
		begin(t, killed, w)
	}
	synctest.Test(t, func(t *testing.T) {
		l := open(t, dir)
		begin(t, l, works[0])
		began := time.Now()
		_, err := l.Begin(t.Context(), works[1])
		require.ErrorContains(t, err, "b was in work when the controller was killed")
		assert.True(t, fault.IsWaiting(err))
		assert.Equal(t, mcfgv1.ReasonWaitingForTurn, fault.Reason(err))
		assert.Equal(t, 2*time.Second, fault.After(err))
		assert.Equal(t, time.Second, time.Since(began))
	})
}

func TestFilesThatAreDamagedAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"half.new": `{"obj`, "other": `{}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	begin(t, open(t, dir), culprit)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestNoLogRemembersNothing(t *testing.T) {
	t.Parallel()
	var l *inwork.Log
	begin(t, l, culprit)()
	require.NoError(t, l.Close())
}
