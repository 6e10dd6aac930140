package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Ends of a verification.
const (
	// VerificationPassed and VerificationFailed are what the test said.
	VerificationPassed = "passed"
	VerificationFailed = "failed"
	// VerificationInterrupted means that something else ended it, such as a node that is gone, and
	// another Job follows.
	VerificationInterrupted = "interrupted"
)

// Verifications are the metrics of administrators' verifications of images. They follow transitions
// that have been written. A nil *Verifications counts nothing.
type Verifications struct {
	ended *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

// NewVerifications makes the metrics.
func NewVerifications() *Verifications {
	labels := []string{"pool", "result"}
	return &Verifications{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "layerwright_image_verifications_total", Help: "Verifications of images by administrators' Jobs, by how they ended: passed, failed, interrupted.",
		}, labels),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "layerwright_image_verification_duration_seconds", Help: "From the begin to the end of verifications that passed or failed.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200},
		}, labels),
	}
}

// Describe describes them.
func (v *Verifications) Describe(descriptions chan<- *prometheus.Desc) {
	v.ended.Describe(descriptions)
	v.took.Describe(descriptions)
}

// Collect collects them.
func (v *Verifications) Collect(metrics chan<- prometheus.Metric) {
	v.ended.Collect(metrics)
	v.took.Collect(metrics)
}

// Ended counts a verification that passed or failed, after it took so long.
func (v *Verifications) Ended(pool, result string, took time.Duration) {
	if v == nil {
		return
	}
	v.ended.WithLabelValues(pool, result).Inc()
	v.took.WithLabelValues(pool, result).Observe(max(took.Seconds(), 0))
}

// Interrupted counts a Job that something else than the test ended.
func (v *Verifications) Interrupted(pool string) {
	if v != nil {
		v.ended.WithLabelValues(pool, VerificationInterrupted).Inc()
	}
}
