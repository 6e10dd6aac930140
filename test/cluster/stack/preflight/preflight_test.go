package preflight

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func capable() facts {
	return facts{fileSystems: []string{"proc", "tmpfs", "overlay", "mqueue"}, programs: map[string]error{"nft": nil}}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	require.NoError(t, capable().judge())
	tests := map[string]struct {
		change func(*facts)
		want   string
	}{
		"root":                {func(f *facts) { f.uid = 1000 }, "it needs root and this is user 1000"},
		"a program":           {func(f *facts) { f.programs["nft"] = os.ErrNotExist }, "the program nft is missing (`make deps` installs it)"},
		"a file system":       {func(f *facts) { f.fileSystems = []string{"proc", "tmpfs"} }, "no overlay file system"},
		"namespaces":          {func(f *facts) { f.namespaces = errors.New("operation not permitted") }, "no network or mount namespace can be made"},
		"a cgroup controller": {func(f *facts) { f.cgroups = errors.New(`controller "pids" is not available`) }, `controller "pids"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := capable()
			tc.change(&f)
			err := f.judge()
			var unsupported *UnsupportedError
			require.ErrorAs(t, err, &unsupported)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "--control-plane-only")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	port := taken.Addr().(*net.TCPAddr).Port

	other, err := ChoosePort(port, false)
	require.NoError(t, err)
	require.NotEqual(t, port, other, "a port that is only preferred gives way")
	_, err = ChoosePort(port, true)
	require.ErrorContains(t, err, "is occupied")
	_, err = HandedListener(port)()
	require.ErrorContains(t, err, "is occupied")
	files, err := HandedListener(other)()
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, files[0].Close())
}
