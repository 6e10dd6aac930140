package view_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/view"
)

// TestRunbooksExist looks at all recorded clusters, which have each state that needs someone.
func TestRunbooksExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/runbooks.md")
	require.NoError(t, err)
	sections := map[string]bool{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		name, _, _ := strings.Cut(section, "\n")
		sections["https://github.com/layerwright/layerwright/blob/main/docs/runbooks.md#"+strings.ToLower(name)] = true
	}
	paths, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	found := map[string]bool{}
	var look func(path string, items []view.Item)
	look = func(path string, items []view.Item) {
		for _, i := range items {
			if i.Runbook != "" {
				assert.True(t, sections[i.Runbook], "%s: %s", path, i.Runbook)
				assert.GreaterOrEqual(t, i.Assessment, view.Held, path)
				_, name, _ := strings.Cut(i.Runbook, "#")
				found[name] = true
			}
			look(path, i.Items)
		}
	}
	for _, path := range paths {
		look(path, view.Of(record(t, path)).Items)
	}
	assert.Subset(t, found, map[string]bool{
		"layerwrightbuildwaiting": true, "oclbuilddegraded": true, "layerwrightimagequarantined": true, "layerwrightnodewithoutagent": true,
		"layerwrightdrainoverdue": true, "layerwrightrollouthalted": true, "layerwrightpoolnotprogressing": true,
	})
}
