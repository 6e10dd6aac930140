package metrics_test

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/version"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

// TestMetricsAreDocumented keeps the table of the page as the code has it; -update writes it.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../../docs/metrics.md", "<!-- metrics -->\n", "<!-- /metrics -->\n"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	want := before + begin + metricsTable(t) + end + after
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o600))
		return
	}
	require.Empty(t, cmp.Diff(want, string(text)), "write the table with -update")
}

// metricsTable has a row for each metric, by name.
func metricsTable(t *testing.T) string {
	t.Helper()
	described := regexp.MustCompile(`^Desc{fqName: "(\w+)", help: "(.*?)", (?:unit: "\w*", )?constLabels: {(.*)}, variableLabels: {(.*)}}$`)
	var rows []string
	for _, collector := range []prometheus.Collector{
		metrics.NewBuildInfo(version.Info{}), metrics.NewBuilds(), metrics.NewPools(nil), metrics.NewPoolStreams(nil), metrics.NewState(nil), metrics.NewRegistries(), metrics.NewVerifications(), metrics.NewDrains(), metrics.NewRollouts(), metrics.NewBootImages(), metrics.NewAgents(),
	} {
		descriptions := make(chan *prometheus.Desc)
		go func() {
			defer close(descriptions)
			collector.Describe(descriptions)
		}()
		for description := range descriptions {
			is := described.FindStringSubmatch(description.String())
			require.NotNil(t, is, description)
			labels := regexp.MustCompile(`\w+`).FindAllString(regexp.MustCompile(`="[^"]*"`).ReplaceAllString(is[3]+","+is[4], ""), -1)
			rows = append(rows, "| `"+is[1]+"` | "+strings.Join(labels, ", ")+" | "+is[2]+" |\n")
		}
	}
	slices.Sort(rows)
	return "| metric | labels | is |\n|---|---|---|\n" + strings.Join(rows, "")
}
