package metrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/metrics"
)

// values are the values of gauges and counters by name and state; of histograms the number of what
// was observed.
func values(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				if label.GetName() == "state" {
					name += " " + label.GetValue()
				}
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestBuilds(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	b := metrics.NewBuilds()
	require.NoError(t, registry.Register(b))
	begin := time.Unix(1000, 0)

	b.Started("worker", begin, begin.Add(3*time.Second))
	b.Job("worker", metrics.JobPending)
	b.Job("worker", metrics.JobSucceeded)
	b.Retried("worker")
	b.Changed("worker")
	b.Pushed("worker", "succeeded", time.Second)
	b.Ended("worker", "succeeded", 2*time.Second)
	assert.Equal(t, map[string]float64{
		"layerwright_image_deletions_total": 0, "ocl_build_retries_total": 1, "ocl_config_change_total": 1, "ocl_build_queue_duration_seconds": 1,
		"ocl_build_total succeeded": 1, "ocl_build_duration_seconds succeeded": 1,
		"ocl_image_push_total succeeded": 1, "ocl_image_push_duration_seconds succeeded": 1,
		"ocl_build_job_state pending": 0, "ocl_build_job_state building": 0, "ocl_build_job_state succeeded": 1,
		"ocl_build_job_state failed": 0, "ocl_build_job_state interrupted": 0,
	}, values(t, registry))

	b.Forget("worker")
	for name := range values(t, registry) {
		assert.NotContains(t, name, "_state ")
	}
}

func TestNoBuildsCountNothing(t *testing.T) {
	t.Parallel()
	var b *metrics.Builds
	assert.NotPanics(t, func() {
		b.Started("a", time.Time{}, time.Time{})
		b.Ended("a", "failed", 0)
		b.Pushed("a", "failed", 0)
		b.Retried("a")
		b.Job("a", metrics.JobFailed)
		b.Changed("a")
		b.Forget("a")
	})
}
