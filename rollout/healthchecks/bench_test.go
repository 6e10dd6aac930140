package healthchecks

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// budgetJudging is what judging 5,000 nodes by what is in caches may take.
const budgetJudging = 200 * time.Millisecond

// BenchmarkJudge judges 5,000 nodes by a check over the Node, one over the 20 pods on it, and one
// over an object: nodes that all have changed, and those of whom one in a hundred has, as between
// two reconciles.
func BenchmarkJudge(b *testing.B) {
	for name, share := range map[string]int{"AllChanged": 1, "OneInAHundredChanged": 100} {
		b.Run(name, func(b *testing.B) { benchmarkJudge(b, share) })
	}
}

func benchmarkJudge(b *testing.B, share int) {
	b.Helper()
	const size, pods = 5000, 20
	w := newWorld(b,
		mcfgv1.RolloutHealthCheck{Name: "ready", Expression: `node.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`},
		mcfgv1.RolloutHealthCheck{Name: "pods", Pods: &mcfgv1.RolloutHealthPods{}, Expression: `pods.filter(p, p.status.phase == "Failed").map(p, p.metadata.name).join(", ")`},
		mcfgv1.RolloutHealthCheck{
			Name: "net", Expression: `object.data["job.yaml"] == "fine"`,
			Object: &mcfgv1.RolloutHealthObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "net"},
		})
	w.write("fine")
	for range pods {
		w.pods = append(w.pods, &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "shop", "uid": "1", "resourceVersion": "1"}, "status": map[string]any{"phase": "Running"},
		}})
	}
	for i := range size {
		name := fmt.Sprint("node-", i)
		w.node(name, arrived)
		w.nodes[name].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	scope, version := w.scope(), 1
	for b.Loop() {
		b.StopTimer()
		version++
		for i := 0; i < size; i += share {
			w.nodes[scope.Members[i].Name].ResourceVersion = strconv.Itoa(version)
		}
		b.StartTimer()
		found, err := w.Judge(b.Context(), scope)
		require.NoError(b, err)
		require.Empty(b, found.Unread)
		require.NoError(b, found.Invalid)
	}
	b.StopTimer()
	for i := range scope.Members {
		for _, result := range scope.Members[i].Health {
			require.True(b, result.Holds, "%s: %s", result.Name, result.Value)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(budgetJudging), "of-budget")
}
