package health_test

import (
	"fmt"
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
		"a condition that does not":  {`node.status.conditions.exists(c, c.type == "KernelDeadlock" && c.status == "True")`, plan.HealthResult{Value: "false"}},
		"a label":                    {`node.metadata.labels["disk"] == "ok"`, plan.HealthResult{Holds: true, Value: "true"}},
		"a field that may be absent": {`node.metadata.?annotations["x"].orValue("") == ""`, plan.HealthResult{Holds: true, Value: "true"}},
		"a field that is absent":     {`node.metadata.annotations["x"] == ""`, plan.HealthResult{Broken: true, Value: "no such key: annotations"}},
		"neither true nor false":     {`node.metadata.name`, plan.HealthResult{Broken: true, Value: "it gives a, which is neither true nor false"}},
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
			assert.Equal(t, []plan.HealthResult{tt.want}, c.Of(n))
		})
	}
}

func TestChecksThatDoNotCompileAreNamed(t *testing.T) {
	t.Parallel()
	_, err := health.Compile(checks("node.x ==", "true", `"text"`, "pod.x"))
	require.ErrorContains(t, err, `health check "c0"`)
	require.ErrorContains(t, err, `health check "c2": the expression gives a string: write one that is true or false`)
	require.ErrorContains(t, err, "undeclared reference to 'pod'")
	require.NotContains(t, err.Error(), `"c1"`)
}

func TestChecksAreEvaluatedAgainWhenTheNodeChanges(t *testing.T) {
	t.Parallel()
	c, err := health.Compile([]mcfgv1.RolloutHealthCheck{{Name: "disk", Expression: `node.metadata.labels["disk"] == "ok"`, Timeout: "30s"}})
	require.NoError(t, err)
	n := node()
	assert.Equal(t, []plan.HealthResult{{Name: "disk", Holds: true, Value: "true", Timeout: 30 * time.Second}}, c.Of(n))
	n.Labels["disk"] = "full"
	assert.True(t, c.Of(n)[0].Holds, "the same version is the same Node")
	n.ResourceVersion = "6"
	assert.False(t, c.Of(n)[0].Holds)
	n.Labels["disk"] = "ok"
	c.Keep(func(types.UID) bool { return false })
	assert.True(t, c.Of(n)[0].Holds, "a Node that was forgotten")
}

// BenchmarkChecks evaluates a check on Nodes that have changed.
func BenchmarkChecks(b *testing.B) {
	c, err := health.Compile(checks(`node.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`))
	require.NoError(b, err)
	n := node()
	for i := 0; b.Loop(); i++ {
		n.ResourceVersion = fmt.Sprint(i)
		c.Of(n)
	}
}
