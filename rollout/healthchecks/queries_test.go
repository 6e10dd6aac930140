package healthchecks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/prometheus"
)

// latency wants the answer to a query to be low.
func latency() mcfgv1.RolloutHealthCheck {
	return mcfgv1.RolloutHealthCheck{
		Name: "latency", Expression: "size(result) > 0 && result.all(s, s.value < 0.9)",
		Prometheus: &mcfgv1.RolloutHealthPrometheus{SecretName: "prometheus", Query: "latency", NodeLabel: "node"},
	}
}

func TestQueryRunsDuringARollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, latency())
	w.unanswered = errors.New("prometheus answered 400: bad_data: x")
	want := []prometheus.Query{{Secret: "prometheus", Text: "latency", NodeLabel: "node"}}
	w.node("a")
	w.started = time.Time{}
	w.judge("a")
	assert.Equal(t, want, w.asked["worker"], "a mistake is seen before a node is moved")
	assert.False(t, w.isFollowed)
	assert.Equal(t, "waits for health check latency: prometheus answered 400: bad_data: x", w.found.Unread)
	assert.Equal(t, prometheus.Interval, w.found.After)

	w.started = t0.Add(-time.Minute)
	w.node("b", arrived)
	assert.Equal(t, plan.HealthResult{Name: "latency", Broken: true, Value: "prometheus answered 400: bad_data: x", Timeout: 10 * time.Minute}, w.judge("b"))
	assert.True(t, w.isFollowed, "a node has to prove something")

	delete(w.nodes, "a")
	w.judge("b")
	assert.Equal(t, want, w.asked["worker"])
	assert.Empty(t, w.found.Unread, "no node waits for it")
	w.started = time.Time{} // the rollout is over
	w.judge("b")
	assert.Empty(t, w.asked["worker"])
	assert.Zero(t, w.found.After)
}

func TestAnswerBeforeTheUpdateIsIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, latency())
	w.node("a", arrived, func(m *plan.Node) { m.Arrived = t0.Add(time.Hour) }) // by its own clock, which is ahead
	w.answers = map[prometheus.Query]*prometheus.Answer{queryOf(&w.checks[0]): prometheus.NewAnswer(t0.Add(-time.Second), "1", "node", nil)}
	got := w.judge("a")
	assert.True(t, got.Broken)
	assert.Equal(t, "prometheus has not been asked since the node was updated", got.Value)
	w.answers[queryOf(&w.checks[0])] = prometheus.NewAnswer(t0, "2", "node", []prometheus.Sample{{Labels: map[string]string{"node": "b"}, Value: 0.1}})
	assert.Equal(t, plan.HealthResult{Name: "latency", Value: "false, with no sample", Since: t0, Timeout: 10 * time.Minute}, w.judge("a"))
	w.answers[queryOf(&w.checks[0])] = prometheus.NewAnswer(t0, "3", "node", []prometheus.Sample{{Labels: map[string]string{"node": "a"}, Value: 0.1}})
	assert.True(t, w.judge("a").Holds)
}

// BenchmarkAnswers judges a pool of 5,000 nodes by a new answer with two samples of each.
func BenchmarkAnswers(b *testing.B) {
	const count, budgetPool = 5000, 200 * time.Millisecond
	w := newWorld(b, latency())
	var samples []prometheus.Sample
	for i := range count {
		name := fmt.Sprintf("n%d", i)
		w.node(name, arrived)
		for _, device := range []string{"sda", "sdb"} {
			samples = append(samples, prometheus.Sample{Labels: map[string]string{"node": name, "device": device}, Value: 0.5})
		}
	}
	p := w.scope()
	for i := 0; b.Loop(); i++ {
		w.answers = map[prometheus.Query]*prometheus.Answer{queryOf(&w.checks[0]): prometheus.NewAnswer(t0, fmt.Sprint(i), "node", samples)}
		_, err := w.Judge(b.Context(), p)
		require.NoError(b, err)
	}
	require.True(b, p.Members[0].Health[0].Holds)
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(budgetPool), "of-budget")
}

func TestCheckThatKilledTheControllerIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, mcfgv1.RolloutHealthCheck{Name: "large", Expression: "true"})
	var begun []string
	w.Begin = func(_ context.Context, object, version, retry string) (func(), error) {
		begun = append(begun, object, retry)
		assert.Len(t, version, 64)
		return nil, errors.New("the controller was killed 2 times")
	}
	w.node("a", arrived)
	w.node("b", arrived)
	for _, node := range []string{"a", "b"} {
		got := w.judge(node)
		assert.True(t, got.Broken)
		assert.Equal(t, "the controller was killed 2 times", got.Value)
		assert.Equal(t, rereadInterval, w.found.After)
	}
	assert.Equal(t, []string{`health check "large" of MachineConfigPool "worker"`, "change the check"}, begun[:2])
	assert.Len(t, begun, 4, "once in each pass, however many nodes there are")
}
