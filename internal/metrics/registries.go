package metrics

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Registries are the metrics of requests to registries.
type Registries struct {
	requests *prometheus.CounterVec
	expiry   *prometheus.GaugeVec
}

// The results of a request. A registry that refuses one has answered.
const (
	requestAnswered    = "answered"
	requestFailed      = "failed"
	requestUnreachable = "unreachable"
)

// NewRegistries makes the metrics.
func NewRegistries() *Registries {
	return &Registries{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "layerwright_registry_requests_total",
			Help: "Requests to registries, by host and result: answered, failed (an error of the server), unreachable.",
		}, []string{"registry", "result"}),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "layerwright_registry_certificate_expiry_timestamp_seconds",
			Help: "When the certificate expires that a registry served last, in seconds since 1970.",
		}, []string{"registry"}),
	}
}

// Describe implements prometheus.Collector.
func (r *Registries) Describe(descriptions chan<- *prometheus.Desc) {
	r.requests.Describe(descriptions)
	r.expiry.Describe(descriptions)
}

// Collect implements prometheus.Collector.
func (r *Registries) Collect(metrics chan<- prometheus.Metric) {
	r.requests.Collect(metrics)
	r.expiry.Collect(metrics)
}

// Wrap counts what a transport asks registries. Where they send it on to, such as a storage with
// addresses of its own, is not counted.
func (r *Registries) Wrap(next http.RoundTripper) http.RoundTripper { return &counted{r, next} }

type counted struct {
	registries *Registries
	next       http.RoundTripper
}

// RoundTrip makes the request.
func (c *counted) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	isSentOn := request.Response != nil // to a host that the registry has made up, perhaps a new one each time
	if strings.HasPrefix(request.URL.Path, "/v2/") && !isSentOn && !errors.Is(err, context.Canceled) {
		c.registries.count(request.URL.Host, response, err)
	}
	return response, err
}

func (r *Registries) count(host string, response *http.Response, err error) {
	result := requestAnswered
	switch {
	case err != nil:
		result = requestUnreachable
	case response.StatusCode >= http.StatusInternalServerError:
		result = requestFailed
	}
	r.requests.WithLabelValues(host, result).Inc()
	if err == nil && response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		r.expiry.WithLabelValues(host).Set(float64(response.TLS.PeerCertificates[0].NotAfter.Unix()))
	}
}
