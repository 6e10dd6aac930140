package containerfiles_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/lint"
	"github.com/layerwright/layerwright/containerfiles/render"
)

var update = flag.Bool("update", false, "write the golden files")

// References by digest, as the builder resolves them.
var (
	baseImage       = "registry.example.com/os/rhel-coreos@sha256:" + strings.Repeat("a1", 32)
	configImage     = "registry.example.com/os/worker@sha256:" + strings.Repeat("b2", 32)
	extensionsImage = "registry.example.com/os/rhel-coreos-extensions@sha256:" + strings.Repeat("c3", 32)
)

func parse(tb testing.TB, text string) *containerfiles.Containerfile {
	tb.Helper()
	c, err := containerfiles.Parse("Containerfile", []byte(text))
	require.NoError(tb, err)
	return c
}

// file joins lines.
func file(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// short is what tests compare of findings: line and reason.
func short(findings []lint.Finding) []string {
	lines := []string{}
	for _, f := range findings {
		lines = append(lines, fmt.Sprintf("%d %s", f.Line, f.Reason))
	}
	return lines
}

// input is a complete one; tests change it.
func input(tb testing.TB, text string) render.Input {
	tb.Helper()
	return render.Input{
		Containerfile:   parse(tb, text),
		BaseImage:       baseImage,
		ConfigImage:     configImage,
		ExtensionsImage: extensionsImage,
		Architecture:    mcfgv1.Amd64,
		PackageManager:  render.RPMOSTree,
	}
}

// requireGolden compares with a file of testdata, or writes it.
func requireGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "write the golden files with -update")
	require.Empty(t, cmp.Diff(string(want), got))
}
