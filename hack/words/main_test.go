package main

import (
	"go/format"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	glossary, err := parseGlossary("# comment\nnobody\tno user\ncome back\trequeue\n")
	require.NoError(t, err)
	long := "// " + strings.Repeat("word ", 25) + "end."
	tests := map[string]struct {
		file, text string
		want       []string
	}{
		"a page":                    {"a.md", "One.\nNobody knows.\n", []string{`a.md:2: "Nobody": write no user`}},
		"a comment":                 {"a.go", "package a\n\n// nobody does.\n", []string{`a.go:3: "nobody": write no user`}},
		"a string":                  {"a.go", "package a\n\nvar x = \"nobody\"\n", []string{`a.go:3: "nobody": write no user`}},
		"a name":                    {"a.go", "package a\n\nvar comeBack = 1\n", []string{`a.go:3: "come back": write requeue`}},
		"a part of a word":          {"a.md", "nobodys\n", nil},
		"a long comment":            {"a.go", "package a\n\n" + long + "\n", []string{"a.go:3: the comment has 132 columns: 100 are enough"}},
		"a long comment after code": {"a.go", "package a\n\nvar x = 1 " + long + "\n", nil},
		"a long directive":          {"a.go", "package a\n\n// +" + strings.Repeat("word ", 25) + "\n", nil},
		"a long link":               {"a.go", "package a\n\n// https://" + strings.Repeat("a", 120) + "\n", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, check(tt.file, []byte(tt.text), glossary))
		})
	}
}

func TestParseGlossary(t *testing.T) {
	t.Parallel()
	_, err := parseGlossary(glossaryText)
	require.NoError(t, err)
	_, err = parseGlossary("nobody")
	require.ErrorContains(t, err, `"nobody" has no tab`)
	_, err = parseGlossary("(\tx")
	require.ErrorContains(t, err, "missing closing )")
}

func TestIsBelow(t *testing.T) {
	t.Parallel()
	for place, files := range map[string]map[string]bool{
		"builder/":         {"builder/a.go": true, "builder/plan/a.go": true, "builders/a.go": false, "docs/builder/a.md": false},
		"docs/api.md":      {"docs/api.md": true, "docs/api.md.go": false},
		"docs/adr/0*":      {"docs/adr/0001-x.md": true, "docs/adr/README.md": false},
		"api/*/*/zz_gen.*": {"api/a/v1/zz_gen.go": true, "api/a/v1/x.go": false, "api/v1/zz_gen.go": false},
		"CHANGELOG.md":     {"CHANGELOG.md": true, "docs/CHANGELOG.md": false},
		"test/e2e/main.go": {"test/e2e/main.go": true, "test/e2e/main_test.go": false},
	} {
		for file, want := range files {
			assert.Equal(t, want, isBelow(file, []string{place}), "%s in %s", file, place)
		}
	}
}

func TestWrapComments(t *testing.T) {
	t.Parallel()
	long := strings.TrimSpace(strings.Repeat("word ", 30))
	head, tail := strings.TrimSpace(strings.Repeat("word ", 19)), strings.TrimSpace(strings.Repeat("word ", 11))
	tests := map[string]struct{ text, want string }{
		"a paragraph":                    {"// " + long + "\n// end.\n", "// " + head + "\n// " + tail + " end.\n"},
		"only paragraphs that are long":  {"// a\n// b\n//\n// " + long + "\n", "// a\n// b\n//\n// " + head + "\n// " + tail + "\n"},
		"an indented paragraph":          {"func f() {\n\t// " + long + "\n}\n", "func f() {\n\t// " + strings.TrimSuffix(head, " word") + "\n\t// " + tail + " word\n}\n"},
		"directives stay":                {"// " + long + "\n// +optional\n", "// " + head + "\n// " + tail + "\n// +optional\n"},
		"code stays":                     {"// See:\n//\n//\t" + long + "\n", "// See:\n//\n//\t" + long + "\n"},
		"lists stay":                     {"//   - " + long + "\n", "//   - " + long + "\n"},
		"comments after code stay":       {"var x = 1 // " + long + "\n", "var x = 1 // " + long + "\n"},
		"text in a string stays":         {"var x = `\n// " + long + "\n`\n", "var x = `\n// " + long + "\n`\n"},
		"a line does not begin as lists": {"// " + head + "xx - " + tail + "\n", "// " + strings.TrimSuffix(head, " word") + "\n// wordxx - " + tail + "\n"},
		"short comments stay":            {"// a\n\n// b\n", "// a\n\n// b\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := []byte("package a\n\n" + tt.text)
			after := wrapComments(before)
			assert.Equal(t, "package a\n\n"+tt.want, string(after))
			assert.Equal(t, string(after), string(wrapComments(after)), "once is enough")
			_, err := format.Source(after)
			require.NoError(t, err)
		})
	}
}
