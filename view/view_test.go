package view_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/view"
)

var update = flag.Bool("update", false, "write the golden files")

// now is when the clusters were recorded.
func now() time.Time { return time.Date(2026, 11, 23, 20, 0, 0, 0, time.UTC) }

// record reads a recorded cluster: documents, and lists as kubectl writes them.
func record(t *testing.T, path string) *view.Objects {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	o := &view.Objects{}
	for _, document := range strings.Split("\n"+string(text), "\n---\n") {
		require.NoError(t, add(o, []byte(document)), path)
	}
	return o
}

func add(o *view.Objects, document []byte) error {
	var head struct {
		Kind  string
		Items []runtime.RawExtension
	}
	if err := yaml.Unmarshal(document, &head); err != nil {
		return err
	}
	for _, item := range head.Items {
		if err := add(o, item.Raw); err != nil {
			return err
		}
	}
	switch head.Kind {
	case "", "List":
		return nil
	case "MachineConfigPool":
		return into(&o.Pools, document)
	case "MachineOSConfig":
		return into(&o.Configs, document)
	case "MachineOSBuild":
		return into(&o.Builds, document)
	case "MachineOSImage":
		return into(&o.Images, document)
	case "Node":
		return into(&o.Nodes, document)
	case "MachineConfigNode":
		return into(&o.Reports, document)
	case "OSImageStream":
		return into(&o.Streams, document)
	case "MachineConfiguration":
		return into(&o.Machines, document)
	default:
		return fmt.Errorf("kind %q is in no tree", head.Kind)
	}
}

func into[T any](list *[]T, document []byte) error {
	var one T
	if err := yaml.UnmarshalStrict(document, &one); err != nil {
		return err
	}
	*list = append(*list, one)
	return nil
}

func render(t *testing.T, o *view.Objects, width int) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, view.Text(&out, view.Of(o), view.Style{Now: now(), Width: width}))
	return out.String()
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestRecordedClusters(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			t.Parallel()
			o := record(t, path)
			golden(t, strings.TrimSuffix(path, ".yaml")+".txt", render(t, o, 100))
			requireFit(t, render(t, o, 40), 40)
			requireFit(t, render(t, o, 160), 160)
		})
	}
}

// requireFit requires lines that a terminal of a width shows as they are.
func requireFit(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(strings.TrimSpace(line), "$ ") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), width, line)
		}
		for _, r := range line {
			require.True(t, unicode.IsPrint(r), "%q", line)
		}
	}
}

// TestEveryRowOfWhatItWaitsFor reads the table of docs/rollout.md: a recorded cluster has each of
// its texts, and the view says who acts.
func TestEveryRowOfWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/rollout.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "\n## What it waits for\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	paths, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	var shown strings.Builder
	for _, path := range paths {
		shown.WriteString(render(t, record(t, path), 1000))
	}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		for _, says := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(says[1]), `\.\.\.`, ".+")
			require.Regexp(t, pattern, shown.String(), "no recorded cluster shows it")
		}
	}
	require.Greater(t, rows, 15)
}

// TestFaultsOfThePage holds what docs/troubleshooting.md shows to the recorded clusters.
func TestFaultsOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/troubleshooting.md")
	require.NoError(t, err)
	paths, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	var recorded strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		recorded.Write(text)
	}
	shown := regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, shown, 3)
	for _, fault := range shown {
		for line := range strings.Lines(fault[1]) {
			require.Contains(t, recorded.String(), line)
		}
	}
}
