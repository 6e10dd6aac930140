package plan_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/layerwright/layerwright/rollout/plan"
)

// budgetPlanning is what a plan for every pool of a cluster with 5,000 nodes may take.
const budgetPlanning = 50 * time.Millisecond

// BenchmarkDecide plans for as many pools of 50 nodes, half of which hold the image: with twice the
// nodes it should take twice the time.
func BenchmarkDecide(b *testing.B) {
	for _, pools := range []int{50, 100} {
		b.Run(fmt.Sprintf("%dNodes", 50*pools), func(b *testing.B) { benchmarkDecide(b, pools, 50) })
	}
	b.Run("5000NodesInOnePool", func(b *testing.B) { benchmarkDecide(b, 1, 5000) })
}

func benchmarkDecide(b *testing.B, pools, size int) {
	b.Helper()
	in := plan.Input{Pool: pool("worker"), Target: to(), Image: to().Image, Now: t0, OwnNode: "n-1"}
	in.Pool.Spec.MaxUnavailable = ptr.To(intstr.FromString("10%"))
	for i := range size {
		n := node(fmt.Sprint("n-", i))
		n.Zone = fmt.Sprint("zone-", i%3)
		if i%2 == 0 {
			staged(&n)
		}
		in.Nodes = append(in.Nodes, n)
	}
	for b.Loop() {
		for range pools {
			if p := plan.Decide(in); len(p.Moves) == 0 {
				b.Fatal("the plan moves no node")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(budgetPlanning), "of-budget")
}
