package health_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/health"
	"github.com/layerwright/layerwright/rollout/plan"
)

// t0 is when the tests take place.
var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// of evaluates checks that read nothing beside the Node.
func of(c *health.Checks, n *corev1.Node) []plan.HealthResult {
	return c.Of(context.Background(), n, nil, nil, t0)
}

func checks(expressions ...string) []mcfgv1.RolloutHealthCheck {
	var out []mcfgv1.RolloutHealthCheck
	for i, e := range expressions {
		out = append(out, mcfgv1.RolloutHealthCheck{Name: fmt.Sprintf("c%d", i), Expression: e})
	}
	return out
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", ResourceVersion: "5", Labels: map[string]string{"disk": "ok"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: "KernelDeadlock", Status: corev1.ConditionFalse},
		}},
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		expression string
		want       plan.HealthResult
	}{
		"a condition that holds":     {`node.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`, plan.HealthResult{Holds: true, Value: "true"}},
		"a condition that does not":  {`node.status.conditions.exists(c, c.type == "KernelDeadlock" && c.status == "True")`, plan.HealthResult{Value: "false", Since: t0}},
		"a label":                    {`node.metadata.labels["disk"] == "ok"`, plan.HealthResult{Holds: true, Value: "true"}},
		"a field that may be absent": {`node.metadata.?annotations["x"].orValue("") == ""`, plan.HealthResult{Holds: true, Value: "true"}},
		"a field that is absent":     {`node.metadata.annotations["x"] == ""`, plan.HealthResult{Broken: true, Value: "no such key: annotations"}},
		"a text that says what is wrong": {
			`node.status.conditions.filter(c, c.status == "False").map(c, string(c.type)).join(", ")`, plan.HealthResult{Value: "KernelDeadlock", Since: t0},
		},
		"a text that says that nothing is wrong": {`node.status.conditions.filter(c, c.status == "Unknown").map(c, string(c.type)).join(", ")`, plan.HealthResult{Holds: true}},
		"neither true nor false":                 {`node.metadata.name`, plan.HealthResult{Broken: true, Value: "it gives a, which is neither true nor false"}},
		"an expression without end": {
			`node.metadata.name.split("").all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, f > 0))))))`,
			plan.HealthResult{Broken: true, Value: "operation cancelled: actual cost limit exceeded"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := health.Compile(checks(tt.expression))
			require.NoError(t, err)
			n := node()
			if strings.Contains(name, "without end") {
				n.Name = strings.Repeat("a", 200)
			}
			tt.want.Name, tt.want.Timeout = "c0", 10*time.Minute
			assert.Equal(t, []plan.HealthResult{tt.want}, of(c, n))
		})
	}
}

// TestTextsStaySmall is about calls that make much of little, which CEL counts when they are over.
func TestTextsStaySmall(t *testing.T) {
	t.Parallel()
	const tooLong = "a text would be longer than 1048576 bytes"
	tests := map[string]struct {
		name       int // how long that of the Node is
		expression string
		want       string
	}{
		"replace":                {1100, `node.metadata.name.replace("a", node.metadata.name) == ""`, tooLong},
		"replace, some of them":  {1100, `node.metadata.name.replace("a", node.metadata.name, 2).size() == 3298`, "true"},
		"join":                   {1100, `node.metadata.name.split("").map(i, string(node.metadata.name)).join() == ""`, tooLong},
		"join, with a separator": {1100, `[node.metadata.name, "b"].join(node.metadata.name).size() == 2201`, "true"},
		"split":                  {1<<20 + 1, `node.metadata.name.split("") == []`, tooLong},
		"split, the first":       {3, `node.metadata.name.split("a", 2) == ["", "aa"]`, "true"},
		"replace and split":      {3, `node.metadata.name.replace("a", "b,").split(",") == ["b", "b", "b", ""]`, "true"},
		"no texts":               {3, `[node.metadata.labels].join() == ""`, "no such overload: join(list)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := health.Compile(checks(tt.expression))
			require.NoError(t, err)
			n := node()
			n.Name = strings.Repeat("a", tt.name)
			got := of(c, n)[0]
			assert.Equal(t, tt.want, got.Value)
			assert.Equal(t, tt.want != "true", got.Broken)
		})
	}
	_, err := health.Compile(checks(`"%s".format([node.metadata.name]) == ""`))
	require.ErrorContains(t, err, "undeclared reference to 'format'")
}

func TestChecksThatDoNotCompileAreNamed(t *testing.T) {
	t.Parallel()
	_, err := health.Compile(checks("node.x ==", "true", `1 + 1`, "pod.x"))
	require.ErrorContains(t, err, `health check "c0"`)
	require.ErrorContains(t, err, `health check "c2": the expression gives a int: write one that is true or false`)
	require.ErrorContains(t, err, "undeclared reference to 'pod'")
	require.NotContains(t, err.Error(), `"c1"`)
}

func TestNodeChangeEvaluatesChecks(t *testing.T) {
	t.Parallel()
	c, err := health.Compile([]mcfgv1.RolloutHealthCheck{{Name: "disk", Expression: `node.metadata.labels["disk"] == "ok"`, Timeout: "30s"}})
	require.NoError(t, err)
	n := node()
	assert.Equal(t, []plan.HealthResult{{Name: "disk", Holds: true, Value: "true", Timeout: 30 * time.Second}}, of(c, n))
	n.Labels["disk"] = "full"
	assert.True(t, of(c, n)[0].Holds, "the same version is the same Node")
	n.ResourceVersion = "6"
	assert.False(t, of(c, n)[0].Holds)
	n.Labels["disk"] = "ok"
	c.Keep(func(types.UID) bool { return false })
	assert.True(t, of(c, n)[0].Holds, "a Node that was forgotten")
}

// read is a Reader that gives one value, and counts how often it is asked for.
func read(version string, value any, asked *int) health.Reader {
	return func(int, string) health.Reading {
		return health.Reading{Version: version, Value: func() any {
			*asked++
			return value
		}}
	}
}

func TestChecksThatReadMoreThanTheNode(t *testing.T) {
	t.Parallel()
	pods := []any{map[string]any{"phase": "Running"}, map[string]any{"phase": "Failed"}}
	c, err := health.Compile([]mcfgv1.RolloutHealthCheck{
		{Name: "plain", Expression: "true"},
		{Name: "pods", Expression: `pods.filter(p, p.phase != "Running").map(p, string(p.phase)).join(", ")`, Pods: &mcfgv1.RolloutHealthPods{Namespace: "shop"}},
	})
	require.NoError(t, err)
	n, asked := node(), 0
	ill := plan.HealthResult{Name: "pods", Value: "Failed", Since: t0, Timeout: 10 * time.Minute}
	assert.Equal(t, ill, c.Of(t.Context(), n, read("1", pods, &asked), nil, t0)[1])
	assert.Equal(t, ill, c.Of(t.Context(), n, read("1", pods[:1], &asked), nil, t0.Add(time.Minute))[1], "the same version is the same value")
	assert.Equal(t, 1, asked)
	assert.Equal(t, ill, c.Of(t.Context(), n, read("2", pods, &asked), nil, t0.Add(time.Minute))[1], "it does not hold since it ceased to")
	assert.True(t, c.Of(t.Context(), n, read("3", pods[:1], &asked), nil, t0.Add(time.Minute))[1].Holds)
	ill.Since = t0.Add(2 * time.Minute)
	assert.Equal(t, ill, c.Of(t.Context(), n, read("4", pods, &asked), nil, t0.Add(2*time.Minute))[1])

	broken := func(int, string) health.Reading { return health.Reading{Err: errors.New("pods is forbidden")} }
	want := plan.HealthResult{Name: "pods", Broken: true, Value: "pods is forbidden", Timeout: 10 * time.Minute}
	assert.Equal(t, want, c.Of(t.Context(), n, broken, nil, t0)[1])
	assert.False(t, c.Of(t.Context(), n, read("4", pods, &asked), nil, t0)[1].Broken, "what can be read again is read again")
}

func TestSamplesOfANodeSayWhetherItIsHealthy(t *testing.T) {
	t.Parallel()
	sample := func(device string, value float64) any {
		return map[string]any{"labels": map[string]string{"device": device}, "value": value}
	}
	tests := map[string]struct {
		expression string
		samples    []any
		want       plan.HealthResult
	}{
		"all are low":          {`size(result) > 0 && result.all(s, s.value < 0.9)`, []any{sample("sda", 0.5)}, plan.HealthResult{Holds: true, Value: "true"}},
		"one is high":          {`result.all(s, s.value < 1)`, []any{sample("sda", 7)}, plan.HealthResult{Value: "false, with 7", Since: t0}},
		"there is none":        {`size(result) > 0 && result.all(s, s.value < 0.9)`, nil, plan.HealthResult{Value: "false, with 7", Since: t0}},
		"NaN says nothing":     {`result.all(s, s.value < 0.9)`, []any{sample("sda", math.NaN())}, plan.HealthResult{Broken: true, Value: "NaN values cannot be ordered"}},
		"one that is infinite": {`result.all(s, s.value < 0.9)`, []any{sample("sda", math.Inf(1))}, plan.HealthResult{Value: "false, with 7", Since: t0}},
		"a text names them": {
			`result.filter(s, s.value > 5.0).map(s, s.labels.device + " has " + string(s.value)).join(", ")`,
			[]any{sample("sda", 7.5), sample("sdb", 1)},
			plan.HealthResult{Value: "sda has 7.5", Since: t0},
		},
		"what servers write is made printable": {
			`result.map(s, string(s.labels.device)).join("")`, []any{sample("\x1b[31msda\x07", 1)}, plan.HealthResult{Value: "[31msda", Since: t0},
		},
		"a label that is absent": {`result.all(s, s.labels.node == "a")`, []any{sample("sda", 1)}, plan.HealthResult{Broken: true, Value: "no such key: node"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := health.Compile([]mcfgv1.RolloutHealthCheck{{Name: "disk", Expression: tt.expression, Prometheus: &mcfgv1.RolloutHealthPrometheus{}}})
			require.NoError(t, err)
			tt.want.Name, tt.want.Timeout = "disk", 10*time.Minute
			assert.Equal(t, []plan.HealthResult{tt.want}, c.Of(t.Context(), node(), func(int, string) health.Reading {
				return health.Reading{Version: "1", Value: func() any { return tt.samples }, Text: func() string { return "7" }}
			}, nil, t0))
		})
	}
}

func TestWithAJobThereIsNoExpression(t *testing.T) {
	t.Parallel()
	c, err := health.Compile([]mcfgv1.RolloutHealthCheck{
		{Name: "node", Expression: "true"}, {Name: "net", Job: &mcfgv1.ConfigMapKeyReference{Name: "net"}, Timeout: "1m"},
	})
	require.NoError(t, err)
	got := c.Of(t.Context(), node(), func(check int, _ string) health.Reading {
		assert.Equal(t, 1, check)
		return health.Reading{Result: &plan.HealthResult{Failed: true, Value: strings.Repeat("x", 300) + "exit code 3"}}
	}, nil, t0)[1]
	assert.Equal(t, "net", got.Name)
	assert.Equal(t, time.Minute, got.Timeout)
	assert.True(t, got.Failed)
	assert.LessOrEqual(t, len(got.Value), 200)
	assert.Contains(t, got.Value, "exit code 3")
}

func TestVariablesAreThoseOfTheCheck(t *testing.T) {
	t.Parallel()
	_, err := health.Compile([]mcfgv1.RolloutHealthCheck{
		{Name: "object", Expression: "object.status.ready && size(pods) > 0", Object: &mcfgv1.RolloutHealthObject{Name: "x"}},
		{Name: "node", Expression: "object.status.ready"},
	})
	require.ErrorContains(t, err, `health check "object"`)
	require.ErrorContains(t, err, "undeclared reference to 'pods'")
	require.ErrorContains(t, err, `health check "node"`)
	require.ErrorContains(t, err, "undeclared reference to 'object'")
}

// BenchmarkPool evaluates the checks of a pool of 5,000 nodes, as a reconcile does: the Nodes have
// not changed, an object that a check reads has. budgetPool is what it may take.
func BenchmarkPool(b *testing.B) {
	const nodes, budgetPool = 5000, 200 * time.Millisecond
	c, err := health.Compile([]mcfgv1.RolloutHealthCheck{
		{Name: "ready", Expression: `node.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`},
		{Name: "pods", Expression: `pods.all(p, p.phase == "Running")`, Pods: &mcfgv1.RolloutHealthPods{Namespace: "shop"}},
		{Name: "object", Expression: `int(object.ready) >= 2`, Object: &mcfgv1.RolloutHealthObject{Name: "web"}},
	})
	require.NoError(b, err)
	all := make([]*corev1.Node, nodes)
	for i := range all {
		all[i] = node()
		all[i].Name, all[i].UID = fmt.Sprintf("n%d", i), types.UID(fmt.Sprint(i))
	}
	values := []any{nil, []any{map[string]any{"phase": "Running"}}, map[string]any{"ready": int64(2)}}
	for i := 0; b.Loop(); i++ {
		reader := func(check int, _ string) health.Reading {
			return health.Reading{Version: fmt.Sprint(check * i), Value: func() any { return values[check] }}
		}
		for _, n := range all {
			c.Of(b.Context(), n, reader, nil, t0)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(budgetPool), "of-budget")
}

// BenchmarkChecks evaluates a check on Nodes that have changed.
func BenchmarkChecks(b *testing.B) {
	c, err := health.Compile(checks(`node.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`))
	require.NoError(b, err)
	n := node()
	for i := 0; b.Loop(); i++ {
		n.ResourceVersion = fmt.Sprint(i)
		of(c, n)
	}
}
