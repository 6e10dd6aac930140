package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/plan"
)

// batch has a size and a threshold; empty ones are omitted.
func batch(name, size, success string) mcfgv1.RolloutBatch {
	b := mcfgv1.RolloutBatch{Name: name}
	if size != "" {
		b.MachineCount = ptr.To(intstr.Parse(size))
	}
	if success != "" {
		b.SuccessThreshold = ptr.To(intstr.Parse(success))
	}
	return b
}

// zone is a batch of the nodes in a zone.
func zone(name string) mcfgv1.RolloutBatch {
	return mcfgv1.RolloutBatch{Name: name, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": name}}}
}

func inZone(name string) func(*plan.Node) {
	return func(n *plan.Node) { n.Labels = map[string]string{"zone": name} }
}

func TestDecideInBatches(t *testing.T) {
	t.Parallel()
	const turn = ": it has a slot"
	healthy, ill := since(0), since(0, check(false, "false"))
	tests := map[string]struct {
		rollout mcfgv1.RolloutSpec
		nodes   []plan.Node
		want    []string
	}{
		"a batch goes at once and the next one waits": {
			rollout: mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{batch("one", "1", ""), batch("half", "50%", "")}},
			nodes:   many(4, staged),
			want: []string{
				"Update n0" + turn, "n1: waits for batch one: 0 of 1 nodes are healthy, and 1 have to be",
				"n2: waits for batch one: 0 of 1 nodes are healthy, and 1 have to be", "n3: waits for batch one: 0 of 1 nodes are healthy, and 1 have to be",
			},
		},
		"the next batch goes and nodes of none go last": {
			rollout: mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{batch("one", "1", ""), batch("half", "50%", "")}},
			nodes:   append(many(1, healthy), node("x", staged), node("y", staged), node("z", staged)),
			want:    []string{"Update x" + turn, "Update y" + turn, "z: waits for batch half: 0 of 2 nodes are healthy, and 2 have to be"},
		},
		"a percentage is at least one node": {
			rollout: mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{batch("one", "10%", "")}}, nodes: many(2, staged),
			want: []string{"Update n0" + turn, "n1: waits for batch one: 0 of 1 nodes are healthy, and 1 have to be"},
		},
		"batches follow labels in the order of the pool": {
			rollout: mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{zone("z"), zone("none"), zone("y")}},
			nodes:   []plan.Node{node("a", staged), node("b", staged, inZone("y")), node("c", healthy, inZone("z"))},
			want:    []string{"Update b" + turn, "a: waits for batch y: 0 of 1 nodes are healthy, and 1 have to be"},
		},
		"a node that is ill keeps its batch from being done": {
			rollout: mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{batch("one", "1", "")}},
			nodes:   append(many(1, ill), node("z", staged)),
			want:    []string{"n0: is not healthy yet: check disk is false", "z: waits for batch one: 0 of 1 nodes are healthy, and 1 have to be"},
		},
		"a threshold lets the next batch begin early": {
			rollout: mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{batch("two", "2", "50%"), batch("one", "1", "")}},
			nodes:   append(many(1, healthy), node("x", ill), node("y", staged)),
			want:    []string{"Update y" + turn, "x: is not healthy yet: check disk is false"},
		},
		"without a threshold a failed node is not waited for": {
			rollout: mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{batch("two", "2", "")}},
			nodes:   append(many(1, healthy), node("x", wentBack), node("y", staged)),
			want:    []string{"Update y" + turn, "x: went back, because it failed: no disk"},
		},
		"a batch that can't succeed halts the rollout": {
			rollout: mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{batch("two", "2", "2")}},
			nodes:   append(many(1, healthy), node("x", wentBack), node("y", staged)),
			want: []string{
				"Unstage y: no node may get the image", "x: went back, because it failed: no disk",
				"y: the rollout is halted: batch two can't have 2 healthy nodes any more: 1 of 3 nodes failed with b and image 222222222222: x: no disk",
			},
		},
		"nodes that have begun stay in their batch": {
			rollout: mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{batch("one", "1", "")}},
			nodes:   []plan.Node{node("a", staged), node("z", asked)},
			want:    []string{"a: waits for batch one: 0 of 1 nodes are healthy, and 1 have to be", "z: is changing"},
		},
		"canaries and nodes that are deleted are in no batch": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1), Batches: []mcfgv1.RolloutBatch{batch("one", "1", "")}},
			nodes: append(many(1, healthy), node("x", staged, func(n *plan.Node) { n.Deleting = true }),
				node("y", staged), node("z", staged)),
			want: []string{
				"Update y" + turn, "x: the node is being deleted", "z: waits for batch one: 0 of 1 nodes are healthy, and 1 have to be",
			},
		},
		"a selector that can't be read holds what follows": {
			rollout: mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{
				batch("one", "1", ""),
				{Name: "bad", NodeSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}},
			}},
			nodes: append(many(1, healthy), node("z", staged)),
			want:  []string{`z: waits for batch bad: nodeSelector: "Like" is not a valid label selector operator`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan.Decide(plan.Input{
				Pool: rolling(tt.rollout), Target: to(), Image: to().Image, Nodes: tt.nodes, Now: t0, Started: t0.Add(-time.Hour), SoakEnd: t0,
			})
			assert.Equal(t, tt.want, said(p))
		})
	}
}
