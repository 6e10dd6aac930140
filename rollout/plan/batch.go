package plan

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// batches says of each node why it has to wait for the batch before its own, in the order of Nodes;
// empty where it may go. Nodes that have begun take the first places of a batch, so that they stay
// in it, and those that could change now the next.
func (d *decision) batches() []string {
	waits := make([]string, len(d.Nodes))
	r := d.Pool.Spec.Rollout
	if r == nil || len(r.Batches) == 0 {
		return waits
	}
	var begun, able, left []int
	for i, n := range d.Nodes {
		switch {
		case n.Deleting || slices.Contains(d.first, n.Name):
		case d.hasBegun(n):
			begun = append(begun, i)
		case n.isAble():
			able = append(able, i)
		default:
			left = append(left, i)
		}
	}
	left = slices.Concat(begun, able, left)
	wait := ""
	for i := range r.Batches {
		b := &r.Batches[i]
		var members []int
		var err error
		if members, left, err = d.take(left, b); err != nil {
			wait = fmt.Sprintf("waits for batch %s: nodeSelector: %s", b.Name, err)
			break
		}
		for _, m := range members {
			waits[m] = wait
		}
		if wait == "" {
			wait = d.unfinished(b, members)
		}
	}
	for _, i := range left {
		waits[i] = wait
	}
	return waits
}

// take takes the nodes of a batch out of those that are left.
func (d *decision) take(left []int, b *mcfgv1.RolloutBatch) (members, rest []int, err error) {
	selector := labels.Everything()
	if b.NodeSelector != nil {
		if selector, err = metav1.LabelSelectorAsSelector(b.NodeSelector); err != nil {
			return nil, left, err
		}
	}
	most := scaled(b.MachineCount, len(d.Nodes), false)
	for _, i := range left {
		if len(members) < most && selector.Matches(labels.Set(d.Nodes[i].Labels)) {
			members = append(members, i)
		} else {
			rest = append(rest, i)
		}
	}
	return members, rest, nil
}

// unfinished says why the next batch may not begin; empty where it may.
func (d *decision) unfinished(b *mcfgv1.RolloutBatch, members []int) string {
	healthy, failed := 0, 0
	for _, i := range members {
		switch v := d.verdicts[i]; {
		case v.failed != "":
			failed++
		case v.pending == "" && d.Nodes[i].IsAt(d.Target):
			healthy++
		}
	}
	needed := scaled(b.SuccessThreshold, len(members), true)
	if b.SuccessThreshold == nil {
		needed -= failed // haltThreshold says how many may fail
	}
	if healthy >= needed {
		return ""
	}
	if len(members)-failed < needed {
		d.lost = fmt.Sprintf("batch %s can't have %d healthy nodes any more: ", b.Name, needed)
	}
	return fmt.Sprintf("waits for batch %s: %d of %d nodes are healthy, and %d have to be", b.Name, healthy, len(members), needed)
}

// scaled is how many of a total a number or percentage says: at least 1 where there is one, and all
// where it says nothing.
func scaled(value *intstr.IntOrString, total int, roundUp bool) int {
	if value == nil {
		return total
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, total, roundUp)
	if err != nil { // the API does not let it through
		return total
	}
	return min(max(n, 1), total)
}
