package prometheus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/layerwright/layerwright/internal/fault"
)

const (
	// timeout is how long one query may take, and the server is told so.
	timeout = 10 * time.Second
	// maxBody is how long an answer may be, in bytes: 800 for each of 5,000 nodes.
	maxBody = 4 << 20
	// maxSamples is how many samples it may have. Each is some hundred bytes in memory.
	maxSamples = 20_000
	maxHeader  = 64 << 10
)

// Address is where queries go.
type Address struct {
	// URL is http or https, and goes before /api/v1/query.
	URL string
	// Token is sent as a bearer token; empty for none.
	Token string
	// CA are the certificates in PEM that the server is trusted by; empty for those of the system.
	CA []byte
}

// Sample is one sample of an answer.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// String is the sample as people know it of Prometheus: {device="sda", node="a"} 0.5.
func (s *Sample) String() string {
	var labels []string
	for name, value := range s.Labels {
		labels = append(labels, name+"="+strconv.Quote(value))
	}
	slices.Sort(labels)
	return "{" + strings.Join(labels, ", ") + "} " + strconv.FormatFloat(s.Value, 'g', -1, 64)
}

// envelope is the body of every answer of the API.
type envelope struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// ask asks a query. The secret is named in errors instead of what it holds.
func ask(ctx context.Context, a Address, secret, query string) ([]Sample, error) {
	to, err := url.Parse(a.URL)
	if err != nil || !slices.Contains([]string{"http", "https"}, to.Scheme) || to.Host == "" {
		return nil, fmt.Errorf("the url in Secret %q is no http or https address", secret)
	}
	to = to.JoinPath("api", "v1", "query")
	// Thanos would otherwise answer with what it has when a part of it does not answer.
	to.RawQuery = url.Values{"query": {query}, "timeout": {timeout.String()}, "partial_response": {"false"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("the url in Secret %q is no http or https address", secret)
	}
	if a.Token != "" {
		request.Header.Set("Authorization", "Bearer "+a.Token)
	}
	client, err := newClient(a.CA, secret)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("prometheus can't be reached: %w", fault.WithoutURL(err))
	}
	defer func() { _ = response.Body.Close() }() // nothing of it is needed
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer of Prometheus: %w", fault.WithoutURL(err))
	case len(body) > maxBody:
		return nil, fmt.Errorf("the answer of Prometheus has more than %d MiB: aggregate in the query", maxBody>>20)
	}
	return parse(response.StatusCode, body, a.Token)
}

// newClient makes a client for one request.
func newClient(ca []byte, secret string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("ca.crt in Secret %q has no certificate in PEM", secret)
		}
	}
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the token is for this address alone
		},
	}, nil
}

// parse reads the body of an answer. What a server says about an error is told without the token,
// which it knows.
func parse(code int, body []byte, token string) ([]Sample, error) {
	var e envelope
	err := json.Unmarshal(body, &e)
	switch {
	case err == nil && e.Status == "error":
		text := e.ErrorType + ": " + e.Error
		if token != "" {
			text = strings.ReplaceAll(text, token, "REDACTED")
		}
		return nil, fmt.Errorf("prometheus answered %d: %s", code, fault.Clean(text))
	case code != http.StatusOK:
		return nil, fmt.Errorf("prometheus answered %d", code)
	case err != nil || e.Status != "success":
		return nil, fmt.Errorf("prometheus answered %d, and what is no answer of its API", code)
	}
	switch e.Data.ResultType {
	case "vector":
		return vector(e.Data.Result)
	case "scalar":
		value, err := number(e.Data.Result)
		return []Sample{{Value: value}}, err
	default:
		return nil, fmt.Errorf("the query gives a %q: write one that gives an instant vector or a scalar", fault.Clean(e.Data.ResultType))
	}
}

func vector(result json.RawMessage) ([]Sample, error) {
	var list []struct {
		Metric map[string]string `json:"metric"`
		Value  json.RawMessage   `json:"value"`
	}
	if err := json.Unmarshal(result, &list); err != nil {
		return nil, fmt.Errorf("reading the answer of Prometheus: %w", err)
	}
	if len(list) > maxSamples {
		return nil, fmt.Errorf("the answer of Prometheus has %d samples, and may have %d: aggregate in the query", len(list), maxSamples)
	}
	samples := make([]Sample, len(list))
	for i := range list {
		value, err := number(list[i].Value)
		if err != nil {
			return nil, err
		}
		samples[i] = Sample{Labels: list[i].Metric, Value: value}
	}
	return samples, nil
}

// number reads a time and a value in quotes, which may be NaN or infinite.
func number(pair json.RawMessage) (float64, error) {
	var (
		at   float64
		text string
	)
	err := json.Unmarshal(pair, &[]any{&at, &text})
	if err != nil || text == "" {
		return 0, errors.New("the answer of Prometheus has a sample that is no number, such as a histogram")
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("reading a value of the answer of Prometheus: %w", err)
	}
	return value, nil
}
