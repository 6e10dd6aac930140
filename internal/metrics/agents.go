package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Agents are the metrics of a node agent. A nil *Agents counts nothing.
type Agents struct {
	steps   *prometheus.CounterVec
	took    *prometheus.HistogramVec
	drifted prometheus.Gauge
}

// NewAgents makes the metrics.
func NewAgents() *Agents {
	return &Agents{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "layerwright_agent_steps_total", Help: "Steps of the node agent, by action and result: done, failed.",
		}, []string{"action", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "layerwright_agent_step_duration_seconds", Help: "How long steps of the node agent took that were done, by action.",
			Buckets: []float64{.1, 1, 10, 60, 300, 1800},
		}, []string{"action"}),
		drifted: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "layerwright_agent_drifted_files", Help: "Files of the node that are not as its image and its configuration have them.",
		}),
	}
}

// Describe describes them.
func (a *Agents) Describe(descriptions chan<- *prometheus.Desc) {
	a.steps.Describe(descriptions)
	a.took.Describe(descriptions)
	a.drifted.Describe(descriptions)
}

// Collect collects them.
func (a *Agents) Collect(metrics chan<- prometheus.Metric) {
	a.steps.Collect(metrics)
	a.took.Collect(metrics)
	a.drifted.Collect(metrics)
}

// Did counts a step that took so long.
func (a *Agents) Did(action string, took time.Duration, err error) {
	switch {
	case a == nil:
	case err != nil:
		a.steps.WithLabelValues(action, "failed").Inc()
	default:
		a.steps.WithLabelValues(action, "done").Inc()
		a.took.WithLabelValues(action).Observe(max(took.Seconds(), 0))
	}
}

// Drifted says how many files have drifted.
func (a *Agents) Drifted(files int) {
	if a != nil {
		a.drifted.Set(float64(files))
	}
}
