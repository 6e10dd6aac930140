package hostsfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSetAndRemove(t *testing.T) {
	t.Parallel()
	const original = "127.0.0.1\tlocalhost\n::1 localhost # layerwright, said a person\n"
	file := File{Path: filepath.Join(t.TempDir(), "hosts"), Lock: func() (func(), error) { return func() {}, nil }}
	require.NoError(t, os.WriteFile(file.Path, []byte(original), 0o644))
	requireContent := func(want string) {
		t.Helper()
		got, err := os.ReadFile(file.Path)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}

	const (
		a  = "127.0.0.1\tregistry.a.test\t# layerwright test cluster a\n"
		ab = "127.0.0.1\tregistry.ab.test\t# layerwright test cluster ab\n"
	)
	require.NoError(t, file.Set("a", "registry.a.test"))
	require.NoError(t, file.Set("ab", "registry.ab.test"))
	requireContent(original + a + ab)
	require.NoError(t, file.Set("a", "registry.a.test"))
	requireContent(original + ab + a)
	require.NoError(t, file.Remove("a"))
	requireContent(original + ab)
	require.NoError(t, file.Remove("ab"))
	require.NoError(t, file.Remove("ab"))
	requireContent(original)
}

func TestSetNamesTheFileThatIsMissing(t *testing.T) {
	t.Parallel()
	file := File{Path: filepath.Join(t.TempDir(), "absent"), Lock: func() (func(), error) { return func() {}, nil }}
	require.ErrorContains(t, file.Set("a", "registry.a.test"), file.Path)
}

// FuzzSetAndRemove holds that whatever a machine's file says, adding and
// removing a name leaves it as it was.
func FuzzSetAndRemove(f *testing.F) {
	f.Add("127.0.0.1 localhost\n", "a")
	f.Add("\n\n# comment\r\n::1\tx", "b-1")
	f.Fuzz(func(t *testing.T, original, owner string) {
		if strings.ContainsAny(owner, "\n\r\t ") || strings.Contains(original, mark(owner)) {
			t.Skip("no name of a cluster, or a file that has it already")
		}
		file := File{Path: filepath.Join(t.TempDir(), "hosts"), Lock: func() (func(), error) { return func() {}, nil }}
		require.NoError(t, os.WriteFile(file.Path, []byte(original), 0o644))
		require.NoError(t, file.Set(owner, "registry.test"))
		require.NoError(t, file.Remove(owner))
		got, err := os.ReadFile(file.Path)
		require.NoError(t, err)
		require.Equal(t, strings.TrimRight(original, "\n"), strings.TrimRight(string(got), "\n"))
	})
}
