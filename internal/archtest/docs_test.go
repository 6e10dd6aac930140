package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pageWords is how many words the pages of docs may have that people write.
const pageWords = 26000

// generatedPages are written by `make generate`.
var generatedPages = []string{"api.md", "commands.md"}

// notProse is a table that a test writes into a page, and what is to be copied: objects, commands
// and their output.
var notProse = []*regexp.Regexp{
	regexp.MustCompile(`(?s)\n<!-- \w+ -->\n.*?\n<!-- /\w+ -->\n`),
	regexp.MustCompile("(?s)\n *```.*?\n *```\n"),
}

// TestPagesStayShort counts what has a letter or a digit.
func TestPagesStayShort(t *testing.T) {
	t.Parallel()
	words := 0
	for name, text := range pages(t, "docs") {
		if slices.Contains(generatedPages, filepath.Base(name)) {
			continue
		}
		for _, part := range notProse {
			text = part.ReplaceAllString(text, "\n")
		}
		for _, field := range strings.Fields(text) {
			if strings.IndexFunc(field, isWordRune) >= 0 {
				words++
			}
		}
	}
	require.Greater(t, words, pageWords/2)
	assert.LessOrEqual(t, words, pageWords, "shorten another page: each fact has one home")
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// TestLinksOfPagesLeadSomewhere follows links to files of the repository and to their headings.
func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := pages(t, "docs", filepath.Join("docs", "adr"), ".")
	for name, text := range all {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			path, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(path, ":") {
				continue
			}
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(target); !assert.NoError(t, err, "%s: %s", name, match[1]) || anchor == "" {
				continue
			}
			if page, ok := all[target]; assert.True(t, ok, "%s: %s is no page", name, match[1]) {
				assert.Contains(t, anchorsOf(page), anchor, "%s: %s", name, match[1])
			}
		}
	}
}

// pages are the texts of folders' pages, by their paths.
func pages(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, folder := range folders {
		names, err := filepath.Glob(filepath.Join("..", "..", folder, "*.md"))
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			texts[name] = string(text)
		}
	}
	return texts
}

// anchorsOf are the anchors that GitHub gives to the headings of a page.
func anchorsOf(page string) []string {
	var anchors []string
	for _, match := range heading.FindAllStringSubmatch(page, -1) {
		title := linked.ReplaceAllString(match[1], "$1")
		anchors = append(anchors, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case isWordRune(r), r == '-', r == '_':
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, title))
	}
	return anchors
}
