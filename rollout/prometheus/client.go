package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/endpoint"
)

const (
	// timeout is how long one query may take, and the server is told so.
	timeout = 10 * time.Second
	// maxBody is how long an answer may be, in bytes: 800 for each of 5,000 nodes.
	maxBody = 4 << 20
	// maxSamples is how many samples it may have, and maxValues how many values, of which each
	// label is one: 10 for each sample.
	maxSamples = 20_000
	maxValues  = 10 * maxSamples
	// sampleBytes and labelBytes are about what each takes in memory beside its text.
	sampleBytes = 160
	labelBytes  = 64
)

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

// bytes is about how much memory the sample takes.
func (s *Sample) bytes() int {
	bytes := sampleBytes
	for name, value := range s.Labels {
		bytes += labelBytes + len(name) + len(value)
	}
	return bytes
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

// ask asks a query.
func ask(ctx context.Context, server *endpoint.Client, secret, query string) (*endpoint.Answer, error) {
	answer, err := server.Do(ctx, &endpoint.Request{
		Secret: secret, Method: http.MethodGet, Path: "api/v1/query", Most: maxBody, MostValues: maxValues,
		// Thanos would otherwise answer with what it has when a part of it does not answer.
		Query: url.Values{"query": {query}, "timeout": {timeout.String()}, "partial_response": {"false"}},
	})
	switch {
	case err != nil:
		return nil, err
	case !answer.IsWhole:
		return nil, fmt.Errorf("the answer of Prometheus has more than %d MiB: aggregate in the query", maxBody>>20)
	}
	return answer, nil
}

// parse reads the body of an answer. What a server says about an error is told without the token,
// which it knows.
func parse(answer *endpoint.Answer) ([]Sample, error) {
	var e envelope
	code, err := answer.Code, json.Unmarshal(answer.Body, &e)
	switch {
	case err == nil && e.Status == "error":
		return nil, fmt.Errorf("prometheus answered %d: %s", code, fault.Clean(answer.Redact(e.ErrorType+": "+e.Error)))
	case code != http.StatusOK:
		return nil, answer.Refusal()
	case err != nil || e.Status != "success":
		return nil, fmt.Errorf("prometheus answered %d with a body that is not from its API", code)
	}
	switch e.Data.ResultType {
	case "vector":
		return vector(e.Data.Result)
	case "scalar":
		value, err := number(e.Data.Result)
		if err != nil {
			return nil, err
		}
		return []Sample{{Value: value}}, nil
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
		return nil, fmt.Errorf("the answer of Prometheus has %d samples; the limit is %d: aggregate in the query", len(list), maxSamples)
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
