package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/version"
)

func TestNewBuildInfo(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(NewBuildInfo(version.Info{Version: "v1.2.3", Revision: "0123abcd", GoVersion: "go1.26"})))

	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	assert.Equal(t, "layerwright_build_info", families[0].GetName())
	require.Len(t, families[0].GetMetric(), 1)

	metric := families[0].GetMetric()[0]
	assert.InDelta(t, 1.0, metric.GetGauge().GetValue(), 0)
	labels := map[string]string{}
	for _, pair := range metric.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	assert.Equal(t, map[string]string{"version": "v1.2.3", "revision": "0123abcd", "goversion": "go1.26"}, labels)
}
