package metrics_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/metrics"
)

func TestRegistries(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/broken") {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	host := strings.TrimPrefix(server.URL, "https://")
	r := metrics.NewRegistries()
	transport := r.Wrap(server.Client().Transport)
	get := func(ctx context.Context, path string) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, http.NoBody)
		require.NoError(t, err)
		response, err := transport.RoundTrip(request)
		if err == nil {
			require.NoError(t, response.Body.Close())
		}
		return err
	}
	requests := func() map[string]float64 {
		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(r))
		families, err := registry.Gather()
		require.NoError(t, err)
		counts := map[string]float64{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				require.Equal(t, host, m.GetLabel()[0].GetValue())
				if len(m.GetLabel()) == 1 {
					require.InDelta(t, float64(server.Certificate().NotAfter.Unix()), m.GetGauge().GetValue(), 0)
					continue
				}
				counts[m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
		return counts
	}

	require.NoError(t, get(t.Context(), "/v2/"))
	require.NoError(t, get(t.Context(), "/v2/os/manifests/broken"))
	require.NoError(t, get(t.Context(), "/storage/blob"))
	require.Equal(t, map[string]float64{"answered": 1, "failed": 1}, requests(), "a storage that it points to is no registry")

	stopped, stop := context.WithCancel(t.Context())
	stop()
	require.Error(t, get(stopped, "/v2/"))
	require.Equal(t, map[string]float64{"answered": 1, "failed": 1}, requests(), "what we gave up says nothing of the registry")

	server.Close()
	require.Error(t, get(t.Context(), "/v2/"))
	require.Equal(t, map[string]float64{"answered": 1, "failed": 1, "unreachable": 1}, requests())
}

func TestRegistriesThatRedirect(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			http.Redirect(w, r, "https://localhost:"+strings.Split(r.Host, ":")[1]+"/v2/elsewhere", http.StatusTemporaryRedirect) //nolint:gosec // is what the test is about
		}
	}))
	defer server.Close()
	r := metrics.NewRegistries()
	client := server.Client()
	transport, is := client.Transport.(*http.Transport)
	require.True(t, is)
	transport.TLSClientConfig.ServerName = "example.com"
	client.Transport = r.Wrap(transport)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v2/", http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 2, asked)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(r))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		require.Len(t, family.GetMetric(), 1, "a host that a registry names is none of ours: %s", family.GetName())
	}
}
