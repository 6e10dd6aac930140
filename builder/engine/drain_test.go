//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

// lastWords runs a command that says something and fails, and gives where that can be read, and how drained ends.
func lastWords(t *testing.T, patience time.Duration) (words io.Reader, code <-chan int) {
	t.Helper()
	read, out, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo error: no such package; exit 3")
	cmd.Stdout = out
	ended := make(chan int, 1)
	go func() { ended <- drained(cmd, clock.RealClock{}, patience, out) }()
	t.Cleanup(func() {
		_ = read.Close()
		_ = out.Close()
	})
	return read, ended
}

// The process that passes output on ends with the command, whether or not it has read all: so the command's end waits for that.
func TestAFailureWaitsUntilItsWordsAreRead(t *testing.T) {
	t.Parallel()
	words, code := lastWords(t, time.Minute)
	isOver := func() bool { return len(code) > 0 }
	require.Never(t, isOver, 200*time.Millisecond, 10*time.Millisecond)
	text := make([]byte, len("error: no such package\n"))
	_, err := io.ReadFull(words, text)
	require.NoError(t, err)
	assert.Equal(t, "error: no such package\n", string(text))
	assert.Equal(t, 3, <-code)
}

func TestNobodyWaitsForWordsThatAreNeverRead(t *testing.T) {
	t.Parallel()
	_, code := lastWords(t, 20*time.Millisecond)
	assert.Equal(t, 3, <-code)
}
