package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	for _, path := range strings.Fields(inMakefile(t, "NOT_RACY")) {
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

// TestConcurrentStoriesRunWithTheRaceDetector looks for tests of the Makefile's STORIES that start
// a goroutine, or the controllers that worldtest.NewCluster brings, and that it leaves to the run
// without it.
func TestConcurrentStoriesRunWithTheRaceDetector(t *testing.T) {
	t.Parallel()
	pattern := inMakefile(t, "CONCURRENT_STORIES")
	starts, chosen := regexp.MustCompile(`(?m)^\s*go [a-zA-Z.]+\(|\bworldtest\.NewCluster\(`), regexp.MustCompile(pattern)
	test := regexp.MustCompile(`(?ms)^func (Test\w+)\(t \*testing\.T\) \{.*?\n\}`)
	var files, names []string
	for _, folder := range strings.Fields(inMakefile(t, "STORIES")) {
		found, err := filepath.Glob("../../" + folder + "/*_test.go")
		require.NoError(t, err)
		require.NotEmpty(t, found, folder)
		files = append(files, found...)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range test.FindAllStringSubmatch(string(source), -1) {
			names = append(names, found[1])
			if starts.MatchString(found[0]) {
				assert.Regexp(t, chosen, found[1], "add it to CONCURRENT_STORIES in the Makefile")
			}
		}
	}
	for _, part := range strings.Split(pattern, "|") {
		assert.True(t, slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, part) }), "CONCURRENT_STORIES: no test is called %s", part)
	}
}

// inMakefile is the value of a variable.
func inMakefile(t *testing.T, variable string) string {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	_, value, found := strings.Cut(strings.ReplaceAll(string(text), "\\\n", " "), "\n"+variable+" := ")
	require.True(t, found, variable)
	value, _, _ = strings.Cut(value, "\n")
	return value
}
