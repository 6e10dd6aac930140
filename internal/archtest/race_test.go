package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shared are types and functions of sync and sync/atomic whose code is compiled into each package
// that uses them, and of which a program then has one copy.
var shared = regexp.MustCompile(`\b(sync\.(Map|OnceFunc|OnceValues?)|atomic\.(Pointer|Value))\b`)

// TestRaceDetectorSeesSynchronization looks at the packages that tests compile without the race
// detector: where one has the only copy of code that synchronizes, correct programs have races.
func TestRaceDetectorSeesSynchronization(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	_, list, found := strings.Cut(strings.ReplaceAll(string(text), "\\\n", " "), "\nNOT_RACY := ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n")
	for _, path := range strings.Fields(list) {
		dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", path).Output()
		require.NoError(t, err, path)
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, path)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Empty(t, shared.FindAllString(string(source), -1), "%s: take %s out of NOT_RACY in the Makefile", file, path)
		}
	}
}
