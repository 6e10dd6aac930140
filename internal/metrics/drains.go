package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of an eviction.
const (
	// EvictionAccepted means that the pod leaves.
	EvictionAccepted = "accepted"
	// EvictionBlocked means that a PodDisruptionBudget keeps it.
	EvictionBlocked = "blocked"
	// EvictionRefused means that the API server refuses it for another reason, such as an admission
	// webhook.
	EvictionRefused = "refused"
)

// Drains are the metrics of nodes that are being drained. A nil *Drains counts nothing.
type Drains struct {
	blocking  *prometheus.GaugeVec
	evictions *prometheus.CounterVec
	took      prometheus.Histogram
}

// NewDrains makes the metrics.
func NewDrains() *Drains {
	return &Drains{
		blocking: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "layerwright_drain_blocking_pods", Help: "Pods that keep a node from being drained.",
		}, []string{"node"}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "layerwright_drain_evictions_total", Help: "Evictions of pods that were asked for, by what the API server made of them: accepted, blocked, refused.",
		}, []string{"result"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "layerwright_drain_duration_seconds", Help: "From the cordon of a node until it was drained.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200},
		}),
	}
}

// Describe describes them.
func (d *Drains) Describe(descriptions chan<- *prometheus.Desc) {
	d.blocking.Describe(descriptions)
	d.evictions.Describe(descriptions)
	d.took.Describe(descriptions)
}

// Collect collects them.
func (d *Drains) Collect(metrics chan<- prometheus.Metric) {
	d.blocking.Collect(metrics)
	d.evictions.Collect(metrics)
	d.took.Collect(metrics)
}

// Evicted counts an eviction that was asked for.
func (d *Drains) Evicted(result string) {
	if d != nil {
		d.evictions.WithLabelValues(result).Inc()
	}
}

// Blocked says how many pods block the drain of a node, also that none does.
func (d *Drains) Blocked(node string, pods int) {
	if d != nil {
		d.blocking.WithLabelValues(node).Set(float64(pods))
	}
}

// Unblocked says that a node is not being drained, or gone.
func (d *Drains) Unblocked(node string) {
	if d != nil {
		d.blocking.DeleteLabelValues(node)
	}
}

// Drained counts a drain that took so long.
func (d *Drains) Drained(took time.Duration) {
	if d != nil {
		d.took.Observe(max(took.Seconds(), 0))
	}
}
