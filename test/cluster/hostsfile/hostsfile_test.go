package hostsfile

import (
	"os"
	"path/filepath"
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
