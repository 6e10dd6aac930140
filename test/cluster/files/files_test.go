package files

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, Write(path, []byte("x"), 0o600))
	before, err := os.Stat(path)
	require.NoError(t, err)

	require.NoError(t, Write(path, []byte("x"), 0o640))
	same, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, same), "a file that fits is not touched")
	require.Equal(t, before.ModTime(), same.ModTime())
	require.Equal(t, os.FileMode(0o640), same.Mode())

	require.NoError(t, Write(path, []byte("y"), 0o600))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "y", string(content))

	require.Error(t, Write(filepath.Join(dir, "absent", "a"), nil, 0o600))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no part is left behind")
}

func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "lock")
	unlock, err := TryLock(path)
	require.NoError(t, err)
	_, err = TryLock(path)
	require.ErrorIs(t, err, ErrLocked)

	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Lock(impatient, path)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, path)

	got := make(chan error, 1)
	go func() {
		second, err := Lock(t.Context(), path)
		if err == nil {
			second()
		}
		got <- err
	}()
	unlock()
	require.NoError(t, <-got)
	// Not TryLock: the wait that was given up gets a slot too, and lets go at once.
	unlock, err = Lock(t.Context(), path)
	require.NoError(t, err)
	unlock()
}
