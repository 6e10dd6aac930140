package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSecurityNamesTestsThatExist keeps the threat model true: each test that SECURITY.md names is
// there. Those of the shared cluster are parts of one test, so their names begin with a small
// letter.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	require.NoError(t, err)
	named := regexp.MustCompile(`Test[A-Z]\w+`).FindAllString(string(text), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		found := exec.CommandContext(t.Context(), "git", "grep", "-q", "^func [Tt]"+name[1:]+"(t ", "--", "*_test.go")
		found.Dir = root
		assert.NoError(t, found.Run(), name)
	}
}
