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

// isAble reports whether a node could change now, and be healthy then: one that is broken would keep
// the others waiting. A file that was edited on a node stays as it is, so that the node stays
// degraded.
func (n *Node) isAble() bool {
	return n.HasAgent() && !n.Deleting && n.IsHealthy() && !n.IsDegraded()
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
		return "waits for canaries: spec.rollout.canary.nodeSelector matches no node of the pool"
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
			waits = "waits for the canaries: " + list(d.first)
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
	return fmt.Sprintf("waits for the canaries to stay healthy until %s", d.plan.SoakEnd.UTC().Format(time.RFC3339))
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
