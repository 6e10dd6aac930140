//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package process

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

// sleeps is a clock on which time passes by sleeping, and only while the test takes the sleeps.
type sleeps struct {
	*clocktesting.FakeClock

	taken chan time.Duration
}

func (s sleeps) Sleep(d time.Duration) {
	s.taken <- d
	s.Step(d)
}

// lastWords runs a command that says something and fails, and gives where that can be read, and how
// drained ends.
func lastWords(t *testing.T, patience time.Duration) (words io.Reader, clock sleeps, code <-chan int) {
	t.Helper()
	read, out, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo error: no such package; exit 3")
	cmd.Stdout = out
	ended := make(chan int, 1)
	clock = sleeps{clocktesting.NewFakeClock(time.Now()), make(chan time.Duration)}
	go func() { ended <- drained(cmd, clock, patience, out) }()
	t.Cleanup(func() {
		_ = read.Close()
		_ = out.Close()
	})
	return read, clock, ended
}

// The process that passes output on ends with the command, whether or not it has read all: so the
// command's end waits for that.
func TestFailureWaitsUntilItsOutputIsRead(t *testing.T) {
	t.Parallel()
	words, clock, code := lastWords(t, time.Minute)
	for range 10 {
		require.Equal(t, drainTick, <-clock.taken, "it waits for a reader")
	}
	text := make([]byte, len("error: no such package\n"))
	_, err := io.ReadFull(words, text)
	require.NoError(t, err)
	assert.Equal(t, "error: no such package\n", string(text))
	assert.Equal(t, 3, codeAfter(clock, code))
}

func TestUnreadOutputIsDroppedAfterItsGracePeriod(t *testing.T) {
	t.Parallel()
	_, clock, code := lastWords(t, 10*drainTick)
	for range 10 {
		require.Equal(t, drainTick, <-clock.taken)
	}
	require.Equal(t, drainGrace, <-clock.taken, "its patience is over")
	assert.Equal(t, 3, <-code)
}

// codeAfter lets it sleep until it ends.
func codeAfter(clock sleeps, code <-chan int) int {
	for {
		select {
		case <-clock.taken:
		case c := <-code:
			return c
		}
	}
}
