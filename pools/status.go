package pools

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/nodes"
)

// The types of a pool's conditions as package status has them.
const (
	typeRenderDegraded = string(mcfgv1.PoolRenderDegraded)
	typeNodeDegraded   = string(mcfgv1.PoolNodeDegraded)
	typeDegraded       = string(mcfgv1.PoolDegraded)
	typeUpdated        = string(mcfgv1.PoolUpdated)
	typeUpdating       = string(mcfgv1.PoolUpdating)
	// typeImageBuildDegraded is the builder's.
	typeImageBuildDegraded = string(mcfgv1.PoolImageBuildDegraded)
	// typePinnedImageSetsDegraded is OpenShift's node agent's, where there is one.
	typePinnedImageSetsDegraded = string(mcfgv1.PoolPinnedImageSetsDegraded)
	// typeRolloutDegraded is the rollout's.
	typeRolloutDegraded = string(mcfgv1.PoolRolloutDegraded)
)

// rules are the conditions of a pool that this package writes, in the order in which they explain
// why the pool is not Ready. All others belong to the builder and the rollout; those of them that
// end in Degraded come in through Degraded.
var rules = status.Rules{
	{Type: typeRenderDegraded, Good: metav1.ConditionFalse, Bad: status.StateStalled},
	{Type: typeNodeDegraded, Good: metav1.ConditionFalse},
	{Type: typeDegraded, Good: metav1.ConditionFalse},
	{Type: typeUpdated, Bad: status.StateReconciling},
	{Type: typeUpdating, Good: metav1.ConditionFalse, Bad: status.StateReconciling},
}

// rulesOf are the rules of a pool. One whose image can't be built is stalled as its MachineOSConfig
// is, and so is one whose rollout has stopped. One without nodes is not updated, and waits for
// nothing.
func rulesOf(pool *mcfgv1.MachineConfigPool) status.Rules {
	conditions, out := pool.GetConditions(), slices.Clone(rules)
	if updated := status.Find(conditions, typeUpdated); updated != nil && updated.Reason == mcfgv1.ReasonNoNodes {
		out = slices.DeleteFunc(out, func(r status.Rule) bool { return r.Type == typeUpdated })
	}
	if stopped(pool, conditions) != "" {
		out = append(out, status.Rule{Type: typeRolloutDegraded, Good: metav1.ConditionFalse, Bad: status.StateStalled, Foreign: true})
	}
	if status.Find(conditions, typeImageBuildDegraded) == nil {
		return out
	}
	return append(out, status.Rule{Type: typeImageBuildDegraded, Good: metav1.ConditionFalse, Bad: status.StateStalled, Foreign: true})
}

// stopped is the reason why no further node is updated until a person acts: the rollout is halted,
// or all nodes that are left failed. It is empty while others are updated.
func stopped(pool *mcfgv1.MachineConfigPool, conditions []metav1.Condition) string {
	c, r := status.Find(conditions, typeRolloutDegraded), pool.Status.Rollout
	if c == nil || c.Status != metav1.ConditionTrue || r == nil {
		return ""
	}
	isOver := c.Reason == mcfgv1.ReasonNodesFailed && r.UpdatedMachineCount+r.FailedMachineCount >= pool.Status.MachineCount
	if c.Reason == mcfgv1.ReasonRolloutHalted || isOver {
		return c.Reason
	}
	return ""
}

// facts are what a pool's status is computed from, beside the pool itself.
type facts struct {
	members  []nodes.Node
	disputed []nodes.Dispute
	// want is what the pool's MachineConfigs are rendered to now; nil where that is not known in
	// this reconcile, for a reason that is no fault of theirs.
	want *outcome
	// layer is the MachineOSConfig of the pool; nil where the nodes get the OS image as it is.
	layer *mcfgv1.MachineOSConfig
	// isBuilt reports whether the newest image of layer is that of the pool's configuration.
	isBuilt bool
	// images are all MachineOSImages.
	images []mcfgv1alpha1.MachineOSImage
	// lacksPins reports whether the cluster lacks the kind PinnedImageSet.
	lacksPins bool
	// notices gives the conditions that ask for attention, once the rest of the status is known;
	// nil gives none.
	notices func() []metav1.Condition
}

// setStatus computes everything in the pool's status that this package owns, except for Ready,
// Reconciling and Stalled, which sum it up.
func setStatus(pool *mcfgv1.MachineConfigPool, f facts, now time.Time) {
	t := nodes.TargetOf(pool, f.images)
	c := nodes.Count(f.members, t)
	s := &pool.Status
	s.MachineCount, s.UpdatedMachineCount, s.ReadyMachineCount = c.Machines, c.Updated, c.Ready
	s.UnavailableMachineCount, s.DegradedMachineCount = c.Unavailable, c.Degraded
	hasAll := t.Config != "" && c.Updated == c.Machines
	if hasAll && t.Config == pool.Spec.Configuration.Name {
		s.Configuration = *pool.Spec.Configuration.DeepCopy()
	} else if hasAll { // that of an image which the pool names
		s.Configuration = mcfgv1.MachineConfigPoolStatusConfiguration{ObjectReference: corev1.ObjectReference{Name: t.Config}}
	}

	conditions := pool.GetConditions()
	if f.want != nil {
		status.Set(&conditions, now, renderDegraded(f.want.err))
	}
	status.Set(&conditions, now, nodeDegraded(f.members, f.disputed))
	updated, updating := progress(pool, t, c, imageOf(pool, conditions, f.layer, f.isBuilt), stopped(pool, conditions))
	status.Set(&conditions, now, updated)
	status.Set(&conditions, now, updating)
	setPins(&conditions, now, f.lacksPins && len(pool.Spec.PinnedImageSets) > 0)
	degraded := anyDegraded(conditions)
	status.Set(&conditions, now, degraded)
	pool.SetConditions(conditions)

	isSettled := (updated.Status == metav1.ConditionTrue || updated.Reason == mcfgv1.ReasonNoNodes) && degraded.Status == metav1.ConditionFalse
	if isSettled && f.want != nil && f.want.followsStream() && f.want.name == t.Config {
		s.OSImageStream.Name = f.want.stream.Name
	}
	if f.notices != nil {
		for _, notice := range f.notices() {
			status.Set(&conditions, now, notice)
		}
		pool.SetConditions(conditions)
	}
}

// renderDegraded is the condition RenderDegraded after rendering ended with err. A fault that
// someone is expected to cure without being asked is not known to be one.
func renderDegraded(err error) metav1.Condition {
	c := metav1.Condition{Type: typeRenderDegraded, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonAsExpected}
	if err == nil {
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, fault.Reason(err), fault.Message(err)
	if fault.IsWaiting(err) {
		c.Status = metav1.ConditionUnknown
	}
	return c
}

// setPins says that no one pulls the pinned images that a pool names. Where someone does, the
// condition is theirs.
func setPins(conditions *[]metav1.Condition, now time.Time, areIgnored bool) {
	if areIgnored {
		status.Set(conditions, now, metav1.Condition{
			Type: typePinnedImageSetsDegraded, Status: metav1.ConditionTrue, Reason: mcfgv1.ReasonKindNotInstalled,
			Message: "spec.pinnedImageSets has no effect: the cluster has no kind PinnedImageSet, and no node pulls images in advance; remove the field",
		})
	} else if is := status.Find(*conditions, typePinnedImageSetsDegraded); is != nil && is.Reason == mcfgv1.ReasonKindNotInstalled {
		status.Remove(conditions, typePinnedImageSetsDegraded)
	}
}

// maxNamed is how many nodes a message names.
const maxNamed = 5

// nodeDegraded is the condition NodeDegraded: nodes that failed, and nodes that no one updates
// because they are in several pools.
func nodeDegraded(members []nodes.Node, disputed []nodes.Dispute) metav1.Condition {
	c := metav1.Condition{Type: typeNodeDegraded, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonAsExpected}
	var failed, several []string
	for i := range members {
		if n := &members[i]; n.IsDegraded() {
			failed = append(failed, fmt.Sprintf("Node %s is reporting: %q", n.Name, n.Reason))
		}
	}
	for _, d := range disputed {
		several = append(several, fmt.Sprintf("Node %s is selected by the pools %s, so none of them updates it: let only one custom pool select it",
			d.Node, strings.Join(d.Pools, " and ")))
	}
	if len(several) > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, mcfgv1.ReasonNodesInSeveralPools
	}
	if len(failed) > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, mcfgv1.ReasonNodesDegraded
	}
	c.Message = strings.Join(append(firstOf(failed), firstOf(several)...), "; ")
	return c
}

// firstOf is as many of the given sentences as people read, and how many more there are.
func firstOf(sentences []string) []string {
	if more := len(sentences) - maxNamed; more > 0 {
		return append(sentences[:maxNamed:maxNamed], fmt.Sprintf("and %d more %s", more, plural(more, "node")))
	}
	return sentences
}

// progress are the conditions Updated and Updating. A pool is updated when all nodes have its
// configuration and image, also if one is not Ready for another reason. It is neither updated nor
// updating while it is paused and something is left to do, while it has no nodes, while its rollout
// has stopped, and while no one is there to update those that are left.
func progress(pool *mcfgv1.MachineConfigPool, t nodes.Target, c nodes.Counts, i image, stopped string) (updated, updating metav1.Condition) {
	updated = metav1.Condition{Type: typeUpdated, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonProgressing}
	updating = metav1.Condition{Type: typeUpdating, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonProgressing}
	isReady, howFar := i == image{}, describeCounts(c)
	if !isReady {
		t.Image, howFar = "", i.says // the image that the pool has is not the one that it gets
	}
	switch {
	case t.Config == "":
		updated.Reason, updated.Message = mcfgv1.ReasonNotRendered, "the pool has no configuration yet"
		updating.Reason = updated.Reason
	case isReady && c.Machines == 0:
		updated.Reason, updated.Message = mcfgv1.ReasonNoNodes, "The pool has no nodes; they would get "+describeTarget(t)
		updating.Reason = updated.Reason
	case isReady && c.Updated == c.Machines:
		updated.Status, updated.Reason, updated.Message = metav1.ConditionTrue, mcfgv1.ReasonSucceeded, "All nodes are updated with "+describeTarget(t)
		updating.Reason = mcfgv1.ReasonSucceeded
	case i.stopped != "":
		updated.Reason, updated.Message = i.stopped, fmt.Sprintf("There is no image to update to with %s: %s", describeTarget(t), howFar)
		updating.Reason, updating.Message = updated.Reason, updated.Message
	case pool.Spec.Paused:
		updated.Reason, updated.Message = mcfgv1.ReasonPaused, fmt.Sprintf("Pool is paused; will not update to %s: %s", describeTarget(t), howFar)
		updating.Reason, updating.Message = updated.Reason, updated.Message
	case isReady && stopped != "":
		updated.Reason, updated.Message = stopped, fmt.Sprintf("Will not update further to %s: %s, see %s", describeTarget(t), howFar, typeRolloutDegraded)
		updating.Reason, updating.Message = updated.Reason, updated.Message
	case isReady && c.Updated+c.Silent == c.Machines:
		updated.Reason, updated.Message = mcfgv1.ReasonNoNodeAgent, fmt.Sprintf("Will not update to %s: %s", describeTarget(t), howFar)
		updating.Reason, updating.Message = updated.Reason, updated.Message
	default:
		updated.Message = fmt.Sprintf("All nodes are updating to %s: %s", describeTarget(t), howFar)
		updating.Status, updating.Message = metav1.ConditionTrue, updated.Message
	}
	return updated, updating
}

// describeTarget names the target.
func describeTarget(t nodes.Target) string {
	if short := mcfgv1.ImageDigestFormat(t.Image).Short(); short != "" {
		return t.Config + " and image " + short
	}
	return t.Config
}

// describeCounts says how far the nodes are.
func describeCounts(c nodes.Counts) string {
	text := fmt.Sprintf("%d of %d nodes are updated", c.Updated, c.Machines)
	if c.Silent > 0 {
		text += fmt.Sprintf(", and %d have no node agent that could update them", c.Silent)
	}
	return text
}

// anyDegraded is the condition Degraded, which sums up all others whose name ends so, whoever
// writes them.
func anyDegraded(conditions []metav1.Condition) metav1.Condition {
	out := metav1.Condition{Type: typeDegraded, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonAsExpected}
	var causes []string
	for _, c := range conditions {
		if c.Type == typeDegraded || !strings.HasSuffix(c.Type, typeDegraded) || c.Status != metav1.ConditionTrue {
			continue
		}
		if len(causes) == 0 {
			out.Status, out.Reason = metav1.ConditionTrue, c.Reason
		}
		causes = append(causes, c.Type+": "+c.Message)
	}
	out.Message = strings.Join(causes, "; ")
	return out
}

// plural is a noun for a number of things.
func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
