package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// listTimeout bounds the reading of pools for one scrape. They come from memory.
const listTimeout = 5 * time.Second

var (
	poolMachines = prometheus.NewDesc("layerwright_pool_machines",
		"Nodes of a MachineConfigPool as its status counts them, by state: all, updated, ready, unavailable, degraded.", []string{"pool", "state"}, nil)
	poolCondition = prometheus.NewDesc("layerwright_pool_condition",
		"1 if the condition of a MachineConfigPool is True, 0 if it is not; the label reason is that of the condition.", []string{"pool", "condition", "reason"}, nil)
)

var poolStream = prometheus.NewDesc("layerwright_pool_os_stream",
	"1 for each stream that a MachineConfigPool uses, by the stream's lifecycle: Supported, Deprecated, EndOfLife, Removed.", []string{"pool", "stream", "lifecycle"}, nil)

// PoolStream is a stream that a pool uses, and how far it is in its life.
type PoolStream struct {
	// Pool and Stream are names.
	Pool, Stream string
	// Lifecycle is that of the stream, or Removed.
	Lifecycle string
}

// NewPoolStreams makes the gauge layerwright_pool_os_stream, which is computed when it is scraped:
// a lifecycle may change with the day.
func NewPoolStreams(list func(ctx context.Context) ([]PoolStream, error)) prometheus.Collector {
	return poolStreams{list}
}

type poolStreams struct {
	list func(ctx context.Context) ([]PoolStream, error)
}

// Describe implements prometheus.Collector.
func (p poolStreams) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- poolStream }

// Collect implements prometheus.Collector.
func (p poolStreams) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout) //nolint:forbidigo // a collector is given none
	defer cancel()
	all, err := p.list(ctx)
	if err != nil {
		metrics <- prometheus.NewInvalidMetric(poolStream, err)
		return
	}
	for _, s := range all {
		metrics <- prometheus.MustNewConstMetric(poolStream, prometheus.GaugeValue, 1, s.Pool, s.Stream, s.Lifecycle)
	}
}

// PoolLister lists pools.
type PoolLister func(ctx context.Context) ([]mcfgv1.MachineConfigPool, error)

// NewPools makes the gauges layerwright_pool_machines and layerwright_pool_condition. They are read
// from the pools' status when they are scraped: there is nothing to keep up to date, and nothing is
// left of a pool that is gone.
func NewPools(list PoolLister) prometheus.Collector { return pools{list} }

type pools struct{ list PoolLister }

// Describe implements prometheus.Collector.
func (p pools) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- poolMachines
	descriptions <- poolCondition
}

// Collect implements prometheus.Collector.
func (p pools) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout) //nolint:forbidigo // a collector is given none
	defer cancel()
	all, err := p.list(ctx)
	if err != nil {
		metrics <- prometheus.NewInvalidMetric(poolMachines, err)
		return
	}
	gauge := func(of *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	for i := range all {
		name, s := all[i].Name, &all[i].Status
		for state, n := range map[string]int32{
			"all": s.MachineCount, "updated": s.UpdatedMachineCount, "ready": s.ReadyMachineCount,
			"unavailable": s.UnavailableMachineCount, "degraded": s.DegradedMachineCount,
		} {
			gauge(poolMachines, float64(n), name, state)
		}
		for _, c := range s.Conditions {
			value := 0.0
			if c.Status == corev1.ConditionTrue {
				value = 1
			}
			gauge(poolCondition, value, name, string(c.Type), c.Reason)
		}
	}
}
