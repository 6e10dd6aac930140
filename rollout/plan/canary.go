package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/words"
)

// defaultSoakTime is how long canaries have to stay healthy (RolloutCanary).
const defaultSoakTime = 10 * time.Minute

// canary is what the pool says of canaries; nil where it asks for none.
func (d *decision) canary() *mcfgv1.RolloutCanary {
	if d.Pool.Spec.Rollout == nil {
		return nil
	}
	return d.Pool.Spec.Rollout.Canary
}

// canaries are the names of the nodes that go first. Those that have proven the target come before
// others that have begun: who asks for canaries later has them. Then come those that could change
// now.
func (d *decision) canaries() []string {
	canary := d.canary()
	if canary == nil {
		return nil
	}
	selector := labels.Everything()
	if s := canary.NodeSelector; s != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(s); err != nil {
			return nil
		}
	}
	var proven, begun, able, rest []string
	for i, n := range d.Nodes {
		switch v := d.verdicts[i]; {
		case !selector.Matches(labels.Set(n.Labels)):
		case n.IsAt(d.Target) && v.failed == "" && v.pending == "":
			proven = append(proven, n.Name)
		case d.hasBegun(n):
			begun = append(begun, n.Name)
		case n.isAble():
			able = append(able, n.Name)
		default:
			rest = append(rest, n.Name)
		}
	}
	count := 1
	if c := canary.MachineCount; c != nil {
		count = int(*c)
	}
	all := slices.Concat(proven, begun, able, rest)
	return all[:min(count, len(all))]
}

// isAble reports whether a node could change now, and be healthy then: one that is broken would
// keep the others waiting. A file that was edited on a node stays as it is, so that the node stays
// degraded.
func (n *Node) isAble() bool {
	canStage := n.StageError == "" && n.AgentDown == ""
	return n.HasAgent() && !n.Deleting && n.IsHealthy() && !n.IsDegraded() && canStage
}

// hasBegun reports whether a node was ever told to take the target.
func (d *decision) hasBegun(n *Node) bool {
	return !n.isUntouched(d.Target) || n.FailedTarget == d.Target
}

// soak says why nodes that are no canaries have to wait; empty where they may go. Once the canaries
// have been healthy for long enough, they are not waited for again.
func (d *decision) soak() string {
	canary := d.canary()
	if canary == nil {
		return ""
	}
	if len(d.first) == 0 {
		return words.NoCanaries + "spec.rollout.canary.nodeSelector matches no node of the pool"
	}
	if !d.SoakEnd.IsZero() && !d.Now.Before(d.SoakEnd) {
		d.plan.SoakEnd = d.SoakEnd
		return ""
	}
	waits := ""
	for i, n := range d.Nodes {
		if !slices.Contains(d.first, n.Name) {
			continue
		}
		if v := d.verdicts[i]; !n.IsAt(d.Target) || v.failed != "" || v.pending != "" {
			waits = words.WaitsForCanaries + ": " + words.List(d.first)
		}
		if n.FailedTarget == d.Target { // the others would wait for ever, and no one be told
			d.lost = "canary " + n.Name + " failed: "
		}
	}
	if waits != "" {
		return waits
	}
	latest := d.Now.Add(Duration(canary.SoakTime, defaultSoakTime)).Truncate(time.Second)
	d.plan.SoakEnd = d.SoakEnd
	if d.SoakEnd.IsZero() || d.SoakEnd.After(latest) { // or the clock was set back
		d.plan.SoakEnd = latest
	}
	if !d.Now.Before(d.plan.SoakEnd) {
		return ""
	}
	d.wake(d.plan.SoakEnd)
	return words.WaitsForCanaries + " to stay healthy until " + d.plan.SoakEnd.UTC().Format(time.RFC3339)
}

// threshold is how many failed nodes stop the rollout (RolloutSpec.HaltThreshold). Where the pool
// does not say it, one failed canary does too.
func (d *decision) threshold() int {
	const leastFailed, percent = 2, 10
	if r := d.Pool.Spec.Rollout; r != nil && r.HaltThreshold != nil {
		value, err := intstr.GetScaledValueFromIntOrPercent(r.HaltThreshold, len(d.Nodes), false)
		if err == nil {
			return max(value, 1)
		}
	}
	return max(len(d.Nodes)*percent/100, leastFailed)
}

// halt says why no further node gets the target: as many have failed as the threshold says, a
// canary has failed, or a batch can't succeed. It is empty where none of it is.
func (d *decision) halt() string {
	const named = 10
	var failed, evidence []string
	hasFailedCanary := false
	for i, n := range d.Nodes {
		v := d.verdicts[i]
		if v.failed == "" {
			continue
		}
		hasFailedCanary = hasFailedCanary || slices.Contains(d.first, n.Name)
		failed = append(failed, n.Name)
		if len(failed) <= named {
			evidence = append(evidence, n.Name+": "+v.failed)
		}
	}
	d.plan.Failed, d.plan.FailedNodes = len(failed), failed
	if more := len(failed) - named; more > 0 {
		evidence = append(evidence, fmt.Sprintf("and %d more", more))
	}
	if len(failed) > 0 {
		d.plan.Failure = fmt.Sprintf("%d of %d nodes failed with %s: %s", len(failed), len(d.Nodes), describe(d.Target), strings.Join(evidence, "; "))
	}
	isTrial := d.soaking != "" && hasFailedCanary && d.Pool.Spec.Rollout.HaltThreshold == nil
	if len(failed) < d.most && d.lost == "" && !isTrial {
		return ""
	}
	return d.lost + d.plan.Failure
}

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
			wait = fmt.Sprintf(words.WaitsForBatch+"%s: nodeSelector: %s", b.Name, err)
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
	return fmt.Sprintf(words.WaitsForBatch+"%s: %d of %d nodes are healthy, and %d have to be", b.Name, healthy, len(members), needed)
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
