package view

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// held are the reasons of what waits for an object that someone has to make.
var held = []string{
	mcfgv1.ReasonWaitingForSecret, mcfgv1.ReasonWaitingForConfigMap, mcfgv1.ReasonWaitingForRemoteFile, mcfgv1.ReasonWaitingForPool,
}

// waiting are the reasons of what waits for other work.
var waiting = []string{mcfgv1.ReasonWaiting, mcfgv1.ReasonWaitingForTurn, mcfgv1.ReasonWaitingForSignature, mcfgv1.ReasonPending}

// fromConditions is the item of an object that has Ready, Reconciling and Stalled. The command is
// for who has to act.
func fromConditions(kind string, of metav1.Object, conditions []metav1.Condition, command string) Item {
	item := Item{Kind: kind, Names: []string{of.GetName()}}
	ready := meta.FindStatusCondition(conditions, mcfgv1.ConditionReady)
	stalled := meta.FindStatusCondition(conditions, mcfgv1.ConditionStalled)
	reconciling := meta.FindStatusCondition(conditions, mcfgv1.ConditionReconciling)
	says := ready
	switch {
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		item.Assessment, item.Next, item.Command, says = Degraded, You, command, stalled
	case ready == nil:
		item.Assessment, item.Next, item.WaitsFor = Waiting, Controller, []string{"no controller has looked at it yet"}
		return item
	case ready.ObservedGeneration > 0 && ready.ObservedGeneration < of.GetGeneration():
		item.Assessment, item.Next, item.WaitsFor = Waiting, Controller, []string{changedSince}
		return item
	case ready.Status == metav1.ConditionTrue:
		item.Assessment = Done
	default:
		if reconciling != nil && reconciling.Status == metav1.ConditionTrue {
			says = reconciling
		}
		item.Assessment, item.Next = underWay(says.Reason)
		if item.Next == You {
			item.Command = command
		}
	}
	item.Step, item.Since = says.Reason, says.LastTransitionTime.Time
	if item.Assessment != Done {
		item.WaitsFor = texts(says.Message)
	}
	return item
}

// changedSince is of an object that says how it was with an earlier spec.
const changedSince = "it was changed, and no controller has looked at it since"

// underWay is how an object is that a controller works on, by the reason that it gives.
func underWay(reason string) (Assessment, Actor) {
	switch {
	case slices.Contains(held, reason):
		return Held, You
	case slices.Contains(waiting, reason):
		return Waiting, Controller
	default:
		return Progressing, Controller
	}
}

// texts are those of some texts that say something.
func texts(all ...string) []string {
	return slices.DeleteFunc(all, func(text string) bool { return text == "" })
}

// told are the conditions of a pool that other items say more about.
var told = []mcfgv1.MachineConfigPoolConditionType{mcfgv1.PoolDegraded, mcfgv1.PoolRolloutDegraded, mcfgv1.PoolImageBuildDegraded}

// conditionItems are the conditions of a pool that tell of trouble.
func (p *poolView) conditionItems() []Item {
	var items []Item
	for i := range p.pool.Status.Conditions {
		c := &p.pool.Status.Conditions[i]
		isTrouble := strings.HasSuffix(string(c.Type), "Degraded") || slices.Contains([]mcfgv1.MachineConfigPoolConditionType{
			mcfgv1.PoolOSStreamDeprecated, mcfgv1.PoolOSStreamsMixed, mcfgv1.PoolPoliciesMissing,
		}, c.Type)
		if c.Status != "True" || !isTrouble || slices.Contains(told, c.Type) {
			continue
		}
		item := Item{
			Kind: KindCondition, Names: []string{p.pool.Name + " " + string(c.Type)}, Assessment: Held, Step: c.Reason, Since: c.LastTransitionTime.Time,
			WaitsFor: texts(c.Message), Next: You, Command: safe(cmp.Or(helps[c.Reason], "kubectl describe mcp %s"), p.pool.Name),
		}
		if strings.HasSuffix(string(c.Type), "Degraded") {
			item.Assessment = Degraded
		}
		items = append(items, item)
	}
	return items
}

// helps are the commands for reasons of a pool, with its name.
var helps = map[string]string{
	mcfgv1.ReasonStreamNotFound: `kubectl patch machineconfigpool %s --type=merge -p '{"spec":{"osImageStream":{"name":"STREAM"}}}'`,
}
