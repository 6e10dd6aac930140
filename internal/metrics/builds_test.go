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

	b.Configs(2)
	b.State("worker", "pending")
	b.Started("worker", begin, begin.Add(3*time.Second))
	b.Active("worker", true)
	b.State("worker", "building")
	b.Job("worker", metrics.JobPending)
	b.Job("worker", metrics.JobSucceeded)
	b.Retried("worker")
	b.Changed("worker")
	assert.InDelta(t, 1, values(t, registry)["ocl_active_builds"], 0)
	b.Active("worker", false)
	b.Pushed("worker", "succeeded", time.Second)
	b.Ended("worker", "succeeded", begin.Add(5*time.Second), 2*time.Second)
	b.State("worker", "succeeded")
	assert.Equal(t, map[string]float64{
		"mco_mosc_count": 2, "ocl_active_builds": 0, "ocl_build_retries_total": 1, "ocl_config_change_total": 1, "ocl_build_queue_duration_seconds": 1,
		"ocl_build_start_timestamp_seconds": 1003, "ocl_build_end_timestamp_seconds succeeded": 1005,
		"ocl_build_total succeeded": 1, "ocl_build_duration_seconds succeeded": 1,
		"ocl_image_push_total succeeded": 1, "ocl_image_push_duration_seconds succeeded": 1,
		"ocl_image_push_state succeeded": 1, "ocl_image_push_state failed": 0,
		"ocl_build_job_state pending": 0, "ocl_build_job_state building": 0, "ocl_build_job_state succeeded": 1,
		"ocl_build_job_state failed": 0, "ocl_build_job_state interrupted": 0,
		"ocl_build_state pending": 0, "ocl_build_state prepared": 0, "ocl_build_state building": 0,
		"ocl_build_state failed": 0, "ocl_build_state interrupted": 0, "ocl_build_state succeeded": 1,
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
		b.Configs(1)
		b.State("a", "failed")
		b.Started("a", time.Time{}, time.Time{})
		b.Ended("a", "failed", time.Time{}, 0)
		b.Pushed("a", "failed", 0)
		b.Retried("a")
		b.Job("a", metrics.JobFailed)
		b.Changed("a")
		b.Active("a", true)
		b.Forget("a")
	})
}
