package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/layerwright/layerwright/internal/version"
)

// NewBuildInfo makes the gauge layerwright_build_info: always 1, and its labels say which build
// runs. Joined with any other metric it answers "since which version?".
func NewBuildInfo(info version.Info) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "layerwright_build_info",
		Help: "Always 1; the labels describe the running build: version, git revision and Go version.",
		ConstLabels: prometheus.Labels{
			"version":   info.Version,
			"revision":  info.Revision,
			"goversion": info.GoVersion,
		},
	}, func() float64 { return 1 })
}
