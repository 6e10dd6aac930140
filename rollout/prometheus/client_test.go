package prometheus

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/rollout/endpoint"
)

// standIn answers as Prometheus documents of its HTTP API. It is none: what it is asked is not
// evaluated.
func standIn(t *testing.T, code int, body string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(answering(t, code, body))
	t.Cleanup(server.Close)
	return server
}

// at is a client of one address.
func at(address endpoint.Address) *endpoint.Client {
	return endpoint.New("Prometheus server", func(context.Context, string) (endpoint.Address, error) { return address, nil })
}

// answerOf asks and reads the answer.
func answerOf(t *testing.T, server *endpoint.Client, secret, query string) ([]Sample, error) {
	t.Helper()
	answer, err := ask(t.Context(), server, secret, query)
	if err != nil {
		return nil, err
	}
	return parse(answer)
}

func answering(t *testing.T, code int, body string) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, http.MethodGet, r.Method)
		assert.Equal(t, "/prefix/api/v1/query", r.URL.Path)
		assert.Equal(t, `up{job="a"} > 0`, r.URL.Query().Get("query"), "it is asked as it is")
		assert.Equal(t, "Bearer s3cret", r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "http://169.254.169.254/latest/meta-data")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func vectorOf(samples ...string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(samples, ",") + `]}}`
}

func TestAsk(t *testing.T) {
	t.Parallel()
	const one = `{"metric":{"__name__":"up","node":"a"},"value":[1435781451.781,"1"]}`
	up := Sample{Labels: map[string]string{"__name__": "up", "node": "a"}, Value: 1}
	tests := map[string]struct {
		code int
		body string
		want []Sample
		err  string
	}{
		"a vector": {200, vectorOf(one, `{"metric":{},"value":[1435781451,"-Inf"]}`), []Sample{up, {Labels: map[string]string{}, Value: math.Inf(-1)}}, ""},
		"nothing":  {200, vectorOf(), []Sample{}, ""},
		"a sample of many labels": {
			200, vectorOf(`{"metric":{` + strings.TrimSuffix(strings.Repeat(`"a":"",`, maxValues), ",") + `},"value":[1,"1"]}`), nil,
			"the Prometheus server answered with more than 200000 values",
		},
		"lists in lists": {200, strings.Repeat("[", maxBody), nil, "the Prometheus server answered with more than 200000 values"},
		"with warnings":  {200, `{"warnings":["slow"],` + vectorOf(one)[1:], []Sample{up}, ""},
		"a scalar":       {200, `{"status":"success","data":{"resultType":"scalar","result":[1435781451.781,"0.5"]}}`, []Sample{{Value: 0.5}}, ""},
		"a range": {
			200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, nil,
			`the query gives a "matrix": write one that gives an instant vector or a scalar`,
		},
		"a string":    {200, `{"status":"success","data":{"resultType":"string","result":[1,"x"]}}`, nil, `the query gives a "string"`},
		"a histogram": {200, vectorOf(`{"metric":{},"histogram":[1,{"count":"2"}]}`), nil, "a sample that is no number, such as a histogram"},
		"no number":   {200, vectorOf(`{"metric":{},"value":[1,"seven"]}`), nil, `parsing "seven": invalid syntax`},
		"a query that is wrong": {
			400, `{"status":"error","errorType":"bad_data","error":"1:3: parse error: unexpected end of input"}`, nil,
			"prometheus answered 400: bad_data: 1:3: parse error: unexpected end of input",
		},
		"a query that takes too long": {503, `{"status":"error","errorType":"timeout","error":"query timed out"}`, nil, "prometheus answered 503: timeout: query timed out"},
		"an error that repeats the token": {
			422, `{"status":"error","errorType":"execution","error":"no \"s3cret\"\u001b[31m"}`, nil, `prometheus answered 422: execution: no "REDACTED"[31m`,
		},
		"a redirect to where clouds have credentials": {302, "", nil, `the Prometheus server answered 302: redirects are not followed, so correct the key url of Secret "prometheus"`},
		"no access":            {401, "<html>log in</html>", nil, `the Prometheus server answered 401: see the key token of Secret "prometheus"`},
		"the page of a proxy":  {200, "<html>log in</html>", nil, "prometheus answered 200 with a body that is not from its API"},
		"another kind of JSON": {200, `{"kind":"Status"}`, nil, "prometheus answered 200 with a body that is not from its API"},
		"too many samples": {
			200, vectorOf(strings.Repeat(`{"metric":{},"value":[1,"1"]},`, maxSamples) + one), nil,
			"the answer of Prometheus has 20001 samples; the limit is 20000: aggregate in the query",
		},
		"a million series": {
			200, vectorOf(strings.Repeat(`{"metric":{"node":"a"},"value":[1,"1"]},`, 1_000_000) + one), nil,
			"the answer of Prometheus has more than 4 MiB: aggregate in the query",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := standIn(t, tt.code, tt.body)
			got, err := answerOf(t, at(endpoint.Address{URL: server.URL + "/prefix/", Token: "s3cret"}), "prometheus", `up{job="a"} > 0`)
			if tt.err == "" {
				require.NoError(t, err)
				assert.Equal(t, tt.want, got)
				return
			}
			require.ErrorContains(t, err, tt.err)
			assert.NotContains(t, err.Error(), "s3cret")
			assert.NotContains(t, err.Error(), server.URL)
		})
	}
}

func TestNaNIsAValue(t *testing.T) {
	t.Parallel()
	samples, err := parse(&endpoint.Answer{Code: 200, Body: []byte(vectorOf(`{"metric":{},"value":[1,"NaN"]}`))})
	require.NoError(t, err)
	assert.True(t, math.IsNaN(samples[0].Value))
}

// TestABodyWithoutEnd is about a server that never stops, and is told more than it can hold.
func TestABodyWithoutEnd(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(w, strings.Repeat(" ", 1<<16))
		}
	}))
	t.Cleanup(server.Close)
	_, err := answerOf(t, at(endpoint.Address{URL: server.URL}), "prometheus", "up")
	require.ErrorContains(t, err, "more than 4 MiB")
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "prometheus:9090", "file:///etc/passwd", "http://", "http://a b", "ftp://s3cret@example.com"} {
		_, err := answerOf(t, at(endpoint.Address{URL: text}), "prometheus", "up")
		require.EqualError(t, err, `the url in Secret "prometheus": it is no http or https address`)
	}
	_, err := answerOf(t, at(endpoint.Address{URL: "http://u:s3cret@127.0.0.1:1/s3cret"}), "prometheus", "up") //nolint:gosec // a test's
	require.EqualError(t, err, "the Prometheus server can't be reached: dial tcp 127.0.0.1:1: connect: connection refused")
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(answering(t, 200, vectorOf()))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	address := endpoint.Address{URL: server.URL + "/prefix", Token: "s3cret", CA: ca}
	_, err := answerOf(t, at(address), "prometheus", `up{job="a"} > 0`)
	require.NoError(t, err)
	address.CA = nil
	_, err = answerOf(t, at(address), "prometheus", "up")
	require.ErrorContains(t, err, "the Prometheus server can't be reached: tls: failed to verify certificate")
	address.CA = []byte("none")
	_, err = answerOf(t, at(address), "prometheus", "up")
	require.EqualError(t, err, `ca.crt in Secret "prometheus": it has no certificate in PEM`)
}

func TestSamplesInWords(t *testing.T) {
	t.Parallel()
	one := Sample{Labels: map[string]string{"node": "a", "device": `s"da`}, Value: 0.5}
	assert.Equal(t, "no sample", Text(nil))
	assert.Equal(t, `{device="s\"da", node="a"} 0.5`, Text([]Sample{one}))
	assert.Equal(t, "{} 1, {} 2, {} NaN, 2 more", Text([]Sample{{Value: 1}, {Value: 2}, {Value: math.NaN()}, one, one}))
}

func FuzzParse(f *testing.F) {
	f.Add(200, vectorOf(`{"metric":{"a":"b"},"value":[1,"NaN"]}`))
	f.Add(400, `{"status":"error","errorType":"bad_data","error":"x"}`)
	f.Add(200, `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`)
	f.Add(200, `{"status":"success","data":{"resultType":"scalar","result":[1,""]}}`)
	f.Fuzz(func(t *testing.T, code int, body string) {
		samples, err := parse(&endpoint.Answer{Code: code, Body: []byte(body)})
		if err != nil {
			require.Empty(t, samples)
			return
		}
		require.Equal(t, 200, code)
		require.NotEmpty(t, Text(samples), fmt.Sprint(samples))
	})
}
