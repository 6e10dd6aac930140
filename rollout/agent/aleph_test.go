package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// putAleph writes what a host says of the image that it was installed from.
func putAleph(t *testing.T, root, content string) {
	t.Helper()
	at := filepath.Join(root, alephPath)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(t, os.WriteFile(at, []byte(content), 0o600))
}

func TestBootImage(t *testing.T) {
	t.Parallel()
	assert.Empty(t, bootImage(t.TempDir()), "a host that does not say it")
	for content, want := range map[string]string{
		`{"build":"410.84.202206010000-0","imgid":"rhcos.qcow2"}`:           "410.84.202206010000-0",
		`{"version":"9.6.20250826-1","container-image":{"image-name":"x"}}`: "9.6.20250826-1",
		`{"version":7}`: "",
		`no JSON`:       "",
		`{"version":"` + strings.Repeat("9", 200) + `"}`: strings.Repeat("9", maxVersion),
	} {
		root := t.TempDir()
		putAleph(t, root, content)
		assert.Equal(t, want, bootImage(root), content)
	}
}

func TestNodeReportsItsBootImage(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	before := w.is()
	putAleph(t, w.root, `{"build":"410.84.202206010000-0"}`)
	w.settle()
	assert.Equal(t, "410.84.202206010000-0", w.node().Annotations[mcfgv1.AnnotationBootImageVersion])
	assert.Equal(t, before, w.is(), "nothing else changes")
}
