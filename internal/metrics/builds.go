package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Builds are the metrics of image builds. They have the names of openshift/machine-config-operator,
// which dashboards and alerts use.
//
// They follow transitions that have been written, so that a restart counts nothing twice. A
// nil *Builds counts nothing.
type Builds struct {
	jobState                    *prometheus.GaugeVec
	total, pushes, rebuilds     *prometheus.CounterVec
	changes                     *prometheus.CounterVec
	signatures, attestations    *prometheus.CounterVec
	deletions                   *prometheus.CounterVec
	duration, queued, pushedFor *prometheus.HistogramVec
	signedFor, attestedFor      *prometheus.HistogramVec
}

// The states of a build by its stage, in lower case as the published metrics have them.
var buildStates = []string{"pending", "prepared", "building", "failed", "interrupted", "succeeded"}

// The states of what builds content.
var jobStates = []string{JobPending, JobBuilding, JobSucceeded, JobFailed, JobInterrupted}

// States of a Job, with the words of the published metric.
const (
	JobPending     = "pending"
	JobBuilding    = "building"
	JobSucceeded   = "succeeded"
	JobFailed      = "failed"
	JobInterrupted = "interrupted"
)

// NewBuilds makes the metrics.
func NewBuilds() *Builds {
	pool, poolState := []string{"pool"}, []string{"pool", "state"}
	gauge := func(name, help string, labels []string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels []string) *prometheus.HistogramVec {
		// The published ones begin at a minute: appending takes a second.
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: []float64{0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1200, 1800, 2700, 3600},
		}, labels)
	}
	b := &Builds{
		jobState:   gauge("ocl_build_job_state", "1 for the state that the pool's newest build of content in a Job is in, 0 for the others.", poolState),
		total:      counter("ocl_build_total", "Builds that ended, by result.", poolState),
		pushes:     counter("ocl_image_push_total", "Pushes of images after the configuration was appended, by result.", poolState),
		changes:    counter("ocl_config_change_total", "Builds that were asked for because an input of the pool's image changed.", pool),
		rebuilds:   counter("ocl_build_retries_total", "Build attempts that failed for an external reason and were repeated.", pool),
		duration:   histogram("ocl_build_duration_seconds", "Duration of builds from start to end, by result.", poolState),
		queued:     histogram("ocl_build_queue_duration_seconds", "Time from the creation of builds to their start.", pool),
		pushedFor:  histogram("ocl_image_push_duration_seconds", "How long pushing images took.", poolState),
		signatures: counter("layerwright_image_signatures_total", "Signings of images, by result. Images that are signed already are not counted.", poolState),
		signedFor: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "layerwright_image_signing_duration_seconds", Help: "How long signing images took, with the registry's time.",
			Buckets: []float64{0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30},
		}, poolState),
		attestations: counter("layerwright_image_attestations_total", "Attestings of images, by result. Images that are attested already are not counted.", poolState),
		attestedFor: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "layerwright_image_attesting_duration_seconds", Help: "How long attesting images took, with what they were read for and the registry's time.",
			Buckets: []float64{0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 120},
		}, poolState),
		deletions: counter("layerwright_image_deletions_total", "Images that were to be deleted from their registry, by result: deleted, failed.", []string{"result"}),
	}
	for _, result := range []string{deleted, notDeleted} {
		b.deletions.WithLabelValues(result) // the first one counts as an increase
	}
	return b
}

// The results of a deletion.
const (
	deleted    = "deleted"
	notDeleted = "failed"
)

func (b *Builds) all() []prometheus.Collector {
	return []prometheus.Collector{
		b.jobState, b.total, b.pushes, b.rebuilds, b.changes, b.duration, b.queued, b.pushedFor,
		b.signatures, b.signedFor, b.attestations, b.attestedFor, b.deletions,
	}
}

// Describe describes them all.
func (b *Builds) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range b.all() {
		c.Describe(descriptions)
	}
}

// Collect collects them all.
func (b *Builds) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range b.all() {
		c.Collect(metrics)
	}
}

// Job says which state the pool's newest build of content is in, as what builds it says. A pool
// whose configuration is only appended has none.
func (b *Builds) Job(pool, state string) {
	if b == nil {
		return
	}
	for _, s := range jobStates {
		value := 0.0
		if s == state {
			value = 1
		}
		b.jobState.WithLabelValues(pool, s).Set(value)
	}
}

// Started counts a build that has begun, at the given time, and was asked for before that.
func (b *Builds) Started(pool string, created, now time.Time) {
	if b == nil {
		return
	}
	b.queued.WithLabelValues(pool).Observe(max(now.Sub(created).Seconds(), 0))
}

// Ended counts a build that has ended, after it took so long.
func (b *Builds) Ended(pool, state string, took time.Duration) {
	if b == nil {
		return
	}
	b.total.WithLabelValues(pool, state).Inc()
	b.duration.WithLabelValues(pool, state).Observe(took.Seconds())
}

// Pushed counts an image that was pushed, or could not be.
func (b *Builds) Pushed(pool, state string, took time.Duration) {
	if b == nil {
		return
	}
	b.pushes.WithLabelValues(pool, state).Inc()
	b.pushedFor.WithLabelValues(pool, state).Observe(took.Seconds())
}

// Signed counts an image that was signed, or could not be.
func (b *Builds) Signed(pool, state string, took time.Duration) {
	if b == nil {
		return
	}
	b.signatures.WithLabelValues(pool, state).Inc()
	b.signedFor.WithLabelValues(pool, state).Observe(took.Seconds())
}

// Attested counts an image that was attested, or could not be.
func (b *Builds) Attested(pool, state string, took time.Duration) {
	if b == nil {
		return
	}
	b.attestations.WithLabelValues(pool, state).Inc()
	b.attestedFor.WithLabelValues(pool, state).Observe(took.Seconds())
}

// Deleted counts an image that was deleted from its registry, or that stays there.
func (b *Builds) Deleted(isGone bool) {
	switch {
	case b == nil:
	case isGone:
		b.deletions.WithLabelValues(deleted).Inc()
	default:
		b.deletions.WithLabelValues(notDeleted).Inc()
	}
}

// Changed counts a build that was asked for because an input changed.
func (b *Builds) Changed(pool string) {
	if b != nil {
		b.changes.WithLabelValues(pool).Inc()
	}
}

// Retried counts an attempt that failed and is repeated.
func (b *Builds) Retried(pool string) {
	if b != nil {
		b.rebuilds.WithLabelValues(pool).Inc()
	}
}

// Forget drops a pool that has no MachineOSConfig any more.
func (b *Builds) Forget(pool string) {
	if b == nil {
		return
	}
	b.jobState.DeletePartialMatch(prometheus.Labels{"pool": pool})
}
