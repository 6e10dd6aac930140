package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Rollouts are the metrics of nodes on their way to an image. A nil *Rollouts counts nothing.
type Rollouts struct {
	moves          *prometheus.CounterVec
	updated, total *prometheus.GaugeVec
	took           *prometheus.HistogramVec
}

// NewRollouts makes the metrics. Those that begin with ocl have the names of
// openshift/machine-config-operator, whose dashboards read them.
func NewRollouts() *Rollouts {
	pool := []string{"pool"}
	return &Rollouts{
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "layerwright_rollout_moves_total", Help: "What nodes were told to do, by action: Stage, Unstage, Update, Rollback.",
		}, []string{"pool", "action"}),
		updated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ocl_rollout_updated_nodes", Help: "Nodes of a pool that have the configuration and image that they should have.",
		}, pool),
		total: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ocl_rollout_total_nodes", Help: "Nodes of a pool.",
		}, pool),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "layerwright_rollout_node_duration_seconds", Help: "From telling a node to change until it has reported that it did: drain, reboot and start.",
			Buckets: []float64{5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200},
		}, pool),
	}
}

// Describe describes them.
func (r *Rollouts) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range r.collectors() {
		c.Describe(descriptions)
	}
}

// Collect collects them.
func (r *Rollouts) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range r.collectors() {
		c.Collect(metrics)
	}
}

func (r *Rollouts) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.moves, r.updated, r.total, r.took}
}

// Moved counts that a node was told to do something.
func (r *Rollouts) Moved(pool, action string) {
	if r != nil {
		r.moves.WithLabelValues(pool, action).Inc()
	}
}

// Pool says how many nodes of a pool are updated, and how many it has.
func (r *Rollouts) Pool(pool string, updated, total int) {
	if r != nil {
		r.updated.WithLabelValues(pool).Set(float64(updated))
		r.total.WithLabelValues(pool).Set(float64(total))
	}
}

// Took counts a node's update that took so long.
func (r *Rollouts) Took(pool string, took time.Duration) {
	if r != nil {
		r.took.WithLabelValues(pool).Observe(max(took.Seconds(), 0))
	}
}

// Forget drops what there is of a pool that is gone.
func (r *Rollouts) Forget(pool string) {
	if r != nil {
		r.updated.DeleteLabelValues(pool)
		r.total.DeleteLabelValues(pool)
	}
}
