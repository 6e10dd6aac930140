package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/cluster/files"
)

func TestOldDisksGo(t *testing.T) {
	t.Parallel()
	disks := Disks{Dir: t.TempDir()}
	at := func(n int) string { return filepath.Join(disks.Dir, fmt.Sprintf("%d.img", n)) }
	for n := range keptDisks + 3 {
		unlock, err := files.TryLock(at(n) + ".lock")
		require.NoError(t, err)
		if n > 0 { // the first one is being worked on
			unlock()
		} else {
			t.Cleanup(unlock)
		}
		require.NoError(t, os.WriteFile(at(n), nil, 0o600))
		require.NoError(t, os.Chtimes(at(n), time.Time{}, time.Unix(int64(n), 0)))
		require.NoError(t, os.Mkdir(at(n)+".tmp", 0o700))
	}
	require.NoError(t, disks.prune())
	for n, want := range []bool{true, false, false, true, true, true, true} {
		_, err := os.Stat(at(n))
		require.Equal(t, want, err == nil, at(n))
		_, err = os.Stat(at(n) + ".tmp")
		require.Equal(t, n == 0, err == nil, "what a killed run has left of %s", at(n))
	}
}
