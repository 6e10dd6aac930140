package systemd_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "record what this machine's systemctl does")

// systemctl is the real program, and its version; 0 where this machine has none.
func systemctl(t *testing.T) (program string, version int) {
	t.Helper()
	program, err := exec.LookPath("systemctl")
	if err != nil {
		return "", 0
	}
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	require.NoError(t, err)
	found := regexp.MustCompile(`^systemd (\d+)`).FindSubmatch(out)
	require.NotNil(t, found, "%s", out)
	version, err = strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return program, version
}

// TestLikeSystemctl compares with what systemctl did when the golden files were recorded and, where
// this machine has systemctl, with what it does now.
func TestLikeSystemctl(t *testing.T) {
	t.Parallel()
	program, version := systemctl(t)
	for name, s := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden := filepath.Join("testdata", strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name)+".golden")
			if program != "" && version >= s.since {
				theirs := s.really(t, program)
				if *update {
					require.NoError(t, os.WriteFile(golden, []byte(theirs), 0o600))
				}
				require.Empty(t, cmp.Diff(recorded(t, golden), theirs), "systemctl %d differs from what was recorded", version)
			}
			require.Empty(t, cmp.Diff(recorded(t, golden), s.ours(t)))
		})
	}
}

func recorded(t *testing.T, golden string) string {
	t.Helper()
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	return string(want)
}

// ours is what this package makes of the scenario.
func (s scenario) ours(t *testing.T) string {
	t.Helper()
	tree := maps.Clone(s.tree)
	var text strings.Builder
	for _, operation := range s.operations {
		report := run(t, tree, operation)
		text.WriteString(result(operation, len(report.Failures) == 0, tree))
	}
	return text.String()
}

// really is what systemctl makes of it.
func (s scenario) really(t *testing.T, program string) string {
	t.Helper()
	root := t.TempDir()
	s.tree.write(t, root)
	var text strings.Builder
	for _, operation := range s.operations {
		args := append([]string{"--root=" + root}, strings.Fields(operation)...)
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if err != nil {
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s", out)
		}
		text.WriteString(result(operation, err == nil, readFiles(t, root)))
	}
	return text.String()
}

func result(operation string, ok bool, tree files) string {
	return fmt.Sprintf("%s: ok=%t\n%s", operation, ok, tree.links())
}
