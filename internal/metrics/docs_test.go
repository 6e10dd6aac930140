package metrics_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/version"
)

func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	var docs strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		docs.Write(text)
	}
	nameIn := regexp.MustCompile(`fqName: "(\w+)"`)
	for _, collector := range []prometheus.Collector{
		metrics.NewBuildInfo(version.Info{}), metrics.NewBuilds(), metrics.NewPools(nil), metrics.NewPoolStreams(nil), metrics.NewVerifications(), metrics.NewDrains(), metrics.NewAgents(),
	} {
		descriptions := make(chan *prometheus.Desc)
		go func() {
			defer close(descriptions)
			collector.Describe(descriptions)
		}()
		for description := range descriptions {
			name := nameIn.FindStringSubmatch(description.String())
			require.Len(t, name, 2, description)
			assert.Contains(t, docs.String(), "`"+name[1]+"`")
		}
	}
}
