package metrics

import "github.com/prometheus/client_golang/prometheus"

// BootImageState is what became of the boot image of a machine resource.
type BootImageState string

// The states.
const (
	// BootImageUpToDate means that the resource has the boot image of its stream, or the one that
	// it is pinned to.
	BootImageUpToDate BootImageState = "UpToDate"
	// BootImageWaiting means that it is to get another one, later.
	BootImageWaiting BootImageState = "Waiting"
	// BootImageSkipped means that it is left alone, although it should be managed.
	BootImageSkipped BootImageState = "Skipped"
	// BootImageUnmanaged means that no one expects it to be managed.
	BootImageUnmanaged BootImageState = "Unmanaged"
	// BootImageFailed means that it could not be given the one that it should have.
	BootImageFailed BootImageState = "Failed"
)

// BootImage is a machine resource and what became of its boot image.
type BootImage struct {
	Kind, Namespace, Name, Platform string
	State                           BootImageState
	Reason                          string
}

// BootImages are the metrics of boot images. A nil *BootImages counts nothing.
type BootImages struct {
	scrape    func() []BootImage
	resources *prometheus.Desc
	failing   *prometheus.Desc
	skipped   *prometheus.Desc
	updates   *prometheus.CounterVec
	noSkew    prometheus.Gauge
}

// NewBootImages makes the metrics. The one that begins with mcc has the name of
// openshift/machine-config-operator, whose alerts read it.
func NewBootImages() *BootImages {
	return &BootImages{
		scrape: func() []BootImage { return nil },
		resources: prometheus.NewDesc("layerwright_boot_image_resources",
			"Machine resources by kind, platform, state (UpToDate, Waiting, Skipped, Unmanaged, Failed) and reason.", []string{"kind", "platform", "state", "reason"}, nil),
		failing: prometheus.NewDesc("layerwright_boot_image_failing",
			"1 for each machine resource whose boot image can't be updated; it goes when the resource recovers.", []string{"kind", "namespace", "name", "reason"}, nil),
		skipped: prometheus.NewDesc("layerwright_boot_image_skipped",
			"1 for each machine resource whose boot image is left alone, although it should be managed.", []string{"kind", "namespace", "name", "reason"}, nil),
		updates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "layerwright_boot_image_updates_total", Help: "Boot images that were written, by kind and platform.",
		}, []string{"kind", "platform"}),
		noSkew: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mcc_boot_image_skew_enforcement_none", Help: "1 while old boot images do not block upgrades, because the mode is None.",
		}),
	}
}

// From says where the resources are found.
func (b *BootImages) From(scrape func() []BootImage) {
	if b != nil {
		b.scrape = scrape
	}
}

// Describe describes them.
func (b *BootImages) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- b.resources
	descriptions <- b.failing
	descriptions <- b.skipped
	b.updates.Describe(descriptions)
	b.noSkew.Describe(descriptions)
}

// Collect counts the resources as they are now.
func (b *BootImages) Collect(metrics chan<- prometheus.Metric) {
	type labels struct{ kind, platform, state, reason string }
	counts := map[labels]int{}
	for _, r := range b.scrape() {
		counts[labels{r.Kind, r.Platform, string(r.State), r.Reason}]++
		switch r.State { //nolint:exhaustive // the others are only counted
		case BootImageFailed:
			metrics <- prometheus.MustNewConstMetric(b.failing, prometheus.GaugeValue, 1, r.Kind, r.Namespace, r.Name, r.Reason)
		case BootImageSkipped:
			metrics <- prometheus.MustNewConstMetric(b.skipped, prometheus.GaugeValue, 1, r.Kind, r.Namespace, r.Name, r.Reason)
		}
	}
	for l, n := range counts {
		metrics <- prometheus.MustNewConstMetric(b.resources, prometheus.GaugeValue, float64(n), l.kind, l.platform, l.state, l.reason)
	}
	b.updates.Collect(metrics)
	b.noSkew.Collect(metrics)
}

// Updated counts a boot image that was written.
func (b *BootImages) Updated(kind, platform string) {
	if b != nil {
		b.updates.WithLabelValues(kind, platform).Inc()
	}
}

// SkewEnforced records whether old boot images block upgrades.
func (b *BootImages) SkewEnforced(isEnforced bool) {
	if b == nil {
		return
	}
	b.noSkew.Set(1)
	if isEnforced {
		b.noSkew.Set(0)
	}
}
