package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFinalization(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := FinalizationIn(root)
	can, err := f.CanLock()
	require.NoError(t, err)
	require.False(t, can, "ostree has not booted it")
	require.NoError(t, f.Unlock(), "it is not locked")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "run"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "run/ostree-booted"), nil, 0o600))
	can, err = f.CanLock()
	require.NoError(t, err)
	require.True(t, can)
	for _, step := range []struct {
		do   func() error
		want bool
	}{{f.Lock, true}, {f.Lock, true}, {f.Unlock, false}} {
		require.NoError(t, step.do())
		isLocked, err := f.IsLocked()
		require.NoError(t, err)
		require.Equal(t, step.want, isLocked)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(root, "run")))
	require.NoError(t, os.WriteFile(filepath.Join(root, "run"), nil, 0o600))
	_, err = f.CanLock()
	require.Error(t, err, "what can't be looked at is no answer")
	require.ErrorContains(t, f.Lock(), "locking what is staged")
}
