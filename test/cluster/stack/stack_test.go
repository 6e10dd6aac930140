package stack

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func capable() facts {
	return facts{fileSystems: []string{"proc", "tmpfs", "overlay", "mqueue"}, programs: map[string]error{"nft": nil}}
}

func TestJudgeNamesWhatIsMissingAndWhatStillWorks(t *testing.T) {
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

func TestAccept(t *testing.T) {
	t.Parallel()
	existing := state{Name: "a", Nodes: 2, APIPort: 6443, RegistryPort: 5000}
	tests := map[string]struct {
		options UpOptions
		nodes   int
		err     string
	}{
		"keeps its nodes when none are asked for": {options: UpOptions{}, nodes: 2},
		"grows":                             {options: UpOptions{Nodes: 3}, nodes: 3},
		"keeps a port that it has":          {options: UpOptions{APIPort: 6443, RegistryPort: 5000}, nodes: 2},
		"refuses to shrink":                 {options: UpOptions{Nodes: 1}, err: "has 2 nodes and nodes are not taken away: `cluster down --name a` first"},
		"refuses another API port":          {options: UpOptions{APIPort: 7443}, err: "has its API server at port 6443, not 7443"},
		"refuses another registry port":     {options: UpOptions{RegistryPort: 5001}, err: "has its registry at port 5000, not 5001"},
		"refuses to become another kind":    {options: UpOptions{ControlPlaneOnly: true}, err: "control-plane-only=false"},
		"refuses more nodes than addresses": {options: UpOptions{Nodes: 1000}, err: "1000 nodes are more than"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := existing
			err := st.accept(tc.options)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.nodes, st.Nodes)
		})
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	port := taken.Addr().(*net.TCPAddr).Port

	other, err := choosePort(port, false)
	require.NoError(t, err)
	require.NotEqual(t, port, other, "a port that is only preferred gives way")
	_, err = choosePort(port, true)
	require.ErrorContains(t, err, "is occupied")
	_, err = handedListener(port)()
	require.ErrorContains(t, err, "is occupied")
	files, err := handedListener(other)()
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, files[0].Close())
}

func TestNewRefusesNamesThatFitNoFileOrHost(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "A", "a/b", "-a", "a-", "a.b", "../x", "a123456789012345678901234567890123"} {
		_, err := New("", t.TempDir(), name)
		require.ErrorContains(t, err, "lower-case letters", name)
	}
	s, err := New("", t.TempDir(), "dev-1")
	require.NoError(t, err)
	require.Equal(t, "registry.dev-1.test", s.RegistryHost())
}

func TestState(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	s, err := New("", cache, "a")
	require.NoError(t, err)
	_, err = s.load()
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "make up")

	require.NoError(t, os.MkdirAll(s.dir, 0o700))
	want := &state{Name: "a", Nodes: 1, Sysctls: map[string]string{"x": "1"}}
	require.NoError(t, s.save(want))
	got, err := s.load()
	require.NoError(t, err)
	require.Equal(t, want, got)
	names, err := Names(cache)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, names)

	other, err := New("", cache, "b")
	require.NoError(t, err)
	sysctls, err := other.othersSysctls()
	require.NoError(t, err)
	require.Equal(t, want.Sysctls, sysctls, "a second cluster must not remember what the first one's kubelet has set")

	require.NoError(t, os.WriteFile(filepath.Join(s.dir, stateFile), []byte("{"), 0o600))
	_, err = s.load()
	require.ErrorContains(t, err, "cluster down")
}

func TestLockNamesTheCluster(t *testing.T) {
	t.Parallel()
	s, err := New("", t.TempDir(), "a")
	require.NoError(t, err)
	unlock, err := s.lock()
	require.NoError(t, err)
	_, err = s.lock()
	require.ErrorContains(t, err, `cluster "a" is being changed by another`)
	unlock()
}

func TestLoadExplainsWhatItTakes(t *testing.T) {
	t.Parallel()
	s, err := New("", t.TempDir(), "a")
	require.NoError(t, err)
	_, err = s.Load(t.Context(), "quay.io/x/y:latest", nil)
	require.ErrorContains(t, err, "an image in a registry needs no loading")
	_, err = s.Load(t.Context(), t.TempDir(), nil)
	require.ErrorContains(t, err, "is a folder")
	archive := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, os.WriteFile(archive, nil, 0o600))
	_, err = s.Load(t.Context(), archive, nil)
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
}
