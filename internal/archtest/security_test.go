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

// TestSecurityNamesTestsThatExist keeps the threat model true: each test that SECURITY.md names is
// there, and so is each part of a test.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	require.NoError(t, err)
	named := regexp.MustCompile(`(Test[A-Z]\w+)(?:/(\w+))?`).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		want := []string{"^func " + name[1] + "(t "}
		if name[2] != "" {
			want = append(want, `t.Run("`+strings.ReplaceAll(name[2], "_", " ")+`"`)
		}
		for _, line := range want {
			found := exec.CommandContext(t.Context(), "git", "grep", "-q", line, "--", "*_test.go")
			found.Dir = root
			assert.NoError(t, found.Run(), name[0])
		}
	}
}
