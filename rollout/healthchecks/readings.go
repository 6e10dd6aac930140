package healthchecks

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/health"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/prometheus"
)

// errBefore is why an answer says nothing of a node: it may be about what the node had before.
var errBefore = errors.New("prometheus has not been asked since the node was updated")

// queries are those of the checks.
func (of *compiled) queries() (queries []prometheus.Query) {
	for i := range of.spec {
		if of.spec[i].Prometheus != nil {
			queries = append(queries, queryOf(&of.spec[i]))
		}
	}
	return queries
}

func queryOf(check *mcfgv1.RolloutHealthCheck) prometheus.Query {
	return prometheus.Query{Secret: check.Prometheus.SecretName, Text: check.Prometheus.Query, NodeLabel: check.Prometheus.NodeLabel}
}

// read gives what the expression of a check reads beside a Node.
func (c *Checker) read(pool string, of *compiled, check int, m *plan.Node) health.Reading {
	switch {
	case of.spec[check].Prometheus != nil:
		return c.answer(pool, &of.spec[check], m)
	case of.spec[check].Object != nil:
		o, err := c.Objects.Object(of.keys[check])
		if err != nil {
			return health.Reading{Err: err}
		}
		return health.Reading{Version: version(o), Value: func() any { return o.Object }}
	default:
		return c.pods(of, check, m)
	}
}

func (c *Checker) pods(of *compiled, check int, m *plan.Node) health.Reading {
	pods, err := c.Objects.OnNode(of.keys[check], m.Name)
	if err != nil {
		return health.Reading{Err: err}
	}
	var versions strings.Builder
	for _, pod := range pods {
		versions.WriteString(version(pod) + " ")
	}
	return health.Reading{Version: versions.String(), Value: func() any {
		list := make([]any, len(pods))
		for i := range pods {
			list[i] = pods[i].Object
		}
		return list
	}}
}

// answer gives the samples of a node. Those that were asked for before it was updated say nothing.
func (c *Checker) answer(pool string, check *mcfgv1.RolloutHealthCheck, m *plan.Node) health.Reading {
	answer, err := c.Queries.Answer(pool, queryOf(check))
	if err == nil && answer.At.Before(m.Seen) {
		err = errBefore
	}
	if err != nil {
		return health.Reading{Err: err}
	}
	samples := answer.Of(m.Name)
	return health.Reading{
		Version: answer.ID,
		Value: func() any {
			list := make([]any, len(samples))
			for i := range samples {
				list[i] = map[string]any{"labels": samples[i].Labels, "value": samples[i].Value}
			}
			return list
		},
		Text: func() string { return prometheus.Text(samples) },
	}
}

// version differs for each state of each object.
func version(o *unstructured.Unstructured) string {
	return string(o.GetUID()) + "/" + o.GetResourceVersion()
}
