package containerfiles_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles/lint"
	"github.com/layerwright/layerwright/containerfiles/render"
)

// The pages about Containerfiles: for people, and the reference of the rules.
const (
	page      = "../docs/containerfiles.md"
	rulesPage = "../docs/containerfile-rules.md"
)

// TestDocumentationListsEveryRule keeps the tables of the pages as the code has them; -update
// writes them.
func TestDocumentationListsEveryRule(t *testing.T) {
	t.Parallel()
	requireTables(t, page, map[string][]string{"extensions": extensionTable()})
	requireTables(t, rulesPage, map[string][]string{"rules": ruleTable(), "buildkit": buildKitTable()})
}

func requireTables(t *testing.T, page string, tables map[string][]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	want := string(text)
	for name, lines := range tables {
		between := regexp.MustCompile(`(?s)<!-- ` + name + ` -->\n.*<!-- /` + name + ` -->\n`)
		require.Regexp(t, between, want)
		want = between.ReplaceAllLiteralString(want, "<!-- "+name+" -->\n"+strings.Join(lines, "\n")+"\n<!-- /"+name+" -->\n")
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Empty(t, cmp.Diff(want, string(text)), "write the tables with -update")
}

func ruleTable() []string {
	lines := []string{"| reason | severity | why | what to do |", "|---|---|---|---|"}
	for _, rule := range lint.Rules() {
		lines = append(lines, fmt.Sprintf("| %#q | %s | %s | %s |", rule.Reason, rule.Severity, rule.Why, rule.Fix))
	}
	return lines
}

func buildKitTable() []string {
	lines := []string{"| rule | used | |", "|---|---|---|"}
	for _, rule := range lint.BuildKitRules() {
		used := "no"
		if rule.Used {
			used = "yes"
		}
		lines = append(lines, fmt.Sprintf("| %#q | %s | %s |", rule.Name, used, rule.Why))
	}
	return lines
}

func extensionTable() []string {
	lines := []string{"| extension or kernel | packages | architectures |", "|---|---|---|"}
	for _, name := range render.Extensions() {
		lines = append(lines, fmt.Sprintf("| %#q | %#q | all |", name, strings.Join(render.ExtensionPackages(name), ", ")))
	}
	for _, name := range []render.KernelType{render.KernelRealtime, render.Kernel64kPages} {
		kernel := render.KernelOf(name)
		packages := "`" + strings.Join(kernel.Packages, "`, `") + "`"
		if kernel.Optional != "" {
			packages += ", and `" + kernel.Optional + "` where the extensions image has it"
		}
		archs := make([]string, len(kernel.Architectures))
		for i, arch := range kernel.Architectures {
			archs[i] = string(arch)
		}
		lines = append(lines, fmt.Sprintf("| kernel %#q | %s | %s |", name, packages, strings.Join(archs, " and ")))
	}
	return lines
}

// TestExamplesLintClean checks every Containerfile of the page: those that stand alone, and those
// in YAML.
func TestExamplesLintClean(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	examples := examplesIn(string(text))
	require.Len(t, examples, 9)
	for _, example := range examples {
		opts := lint.Options{Architecture: mcfgv1.Arm64, Context: map[string][]byte{"chrony.conf": nil}}
		c, findings := lint.Check("example", []byte(example), opts)
		require.Empty(t, findings, example)
		require.NotEmpty(t, c.Stages(), example)
		in := input(t, example)
		in.Context = opts.Context
		_, err := render.Render(in)
		require.NoError(t, err)
	}
}

// examplesIn are the fenced blocks of Containerfiles, and the block scalars of YAML that begin with
// FROM.
func examplesIn(text string) []string {
	var examples []string
	var current []string
	fenced, indent := false, ""
	for line := range strings.Lines(text) {
		switch {
		case line == "```dockerfile\n":
			fenced = true
		case fenced && line == "```\n":
			examples, current, fenced = append(examples, strings.Join(current, "")), nil, false
		case fenced:
			current = append(current, line)
		case indent == "" && strings.HasPrefix(strings.TrimLeft(line, " "), "FROM ") && strings.HasPrefix(line, " "):
			indent = line[:len(line)-len(strings.TrimLeft(line, " "))]
			current = []string{strings.TrimPrefix(line, indent)}
		case indent != "" && strings.HasPrefix(line, indent):
			current = append(current, strings.TrimPrefix(line, indent))
		case indent != "":
			examples, current, indent = append(examples, strings.Join(current, "")), nil, ""
		}
	}
	return examples
}

// TestBuildKitRulesAreComplete reads the rules from the source of BuildKit's linter, so that the
// rules of a new version are noticed.
func TestBuildKitRulesAreComplete(t *testing.T) {
	t.Parallel()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/moby/buildkit/frontend/dockerfile/linter").Output()
	require.NoError(t, err)
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "ruleset.go"))
	require.NoError(t, err)
	names := regexp.MustCompile(`Name:\s+"(\w+)"`).FindAllStringSubmatch(string(source), -1)
	require.Len(t, lint.BuildKitRules(), len(names))
	table := strings.Join(buildKitTable(), "\n")
	for _, name := range names {
		assert.Contains(t, table, "| `"+name[1]+"` |")
	}
	reasons := map[string]bool{}
	for _, rule := range lint.Rules() {
		reasons[rule.Reason] = true
	}
	for _, rule := range lint.BuildKitRules() {
		assert.True(t, !rule.Used || reasons[rule.Name], "%s is a rule", rule.Name)
	}
}
