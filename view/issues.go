package view

import (
	"strings"

	"github.com/layerwright/layerwright/rollout/words"
)

// Names of what is in the way of a rollout, or may harm what runs, before the first node is
// drained.
const (
	// IssueAgentMissing is of a node without a node agent that answers.
	IssueAgentMissing = "AgentMissing"
	// IssueAlertFires is of a health check of the pool that does not hold, or can't be evaluated.
	IssueAlertFires = "AlertFires"
	// IssueBudgetBlocksDrain is of a PodDisruptionBudget that lets no pod of it leave.
	IssueBudgetBlocksDrain = "BudgetBlocksDrain"
	// IssueDrainBlocked is of a drain that something else than a budget may keep from its end.
	IssueDrainBlocked = "DrainBlocked"
	// IssueHalted is of a rollout that halted because nodes failed.
	IssueHalted = "Halted"
	// IssueHostUnsuitable is of a node whose host can't do what the update takes.
	IssueHostUnsuitable = "HostUnsuitable"
	// IssueImageNotReady is of a pool without an image that its nodes may get.
	IssueImageNotReady = "ImageNotReady"
	// IssueInvalidRollout is of a spec.rollout that no node can follow.
	IssueInvalidRollout = "InvalidRollout"
	// IssueNodeCordoned is of a node that a person took out of scheduling.
	IssueNodeCordoned = "NodeCordoned"
	// IssueNodeFailed is of a node whose update failed.
	IssueNodeFailed = "NodeFailed"
	// IssueNodeNotReady is of a node that its kubelet does not report as Ready.
	IssueNodeNotReady = "NodeNotReady"
	// IssueNoSpace is of a node that is short of disk space.
	IssueNoSpace = "NoSpace"
	// IssuePaused is of a paused pool.
	IssuePaused = "Paused"
	// IssueQuarantined is of an image that nodes failed with.
	IssueQuarantined = "Quarantined"
	// IssueSingleReplica is of a workload that is away while its only pod moves.
	IssueSingleReplica = "SingleReplica"
	// IssueUnmanagedPod is of a pod that a drain deletes, and nothing makes again.
	IssueUnmanagedPod = "UnmanagedPod"
	// IssueWindowFar is of a pool whose next maintenance window is more than a day away.
	IssueWindowFar = "WindowFar"
)

// Issues are the names of all of them.
func Issues() []string {
	return []string{
		IssueAgentMissing, IssueAlertFires, IssueBudgetBlocksDrain, IssueDrainBlocked, IssueHalted, IssueHostUnsuitable, IssueImageNotReady, IssueInvalidRollout, IssueNodeCordoned,
		IssueNodeFailed, IssueNodeNotReady, IssueNoSpace, IssuePaused, IssueQuarantined, IssueSingleReplica, IssueUnmanagedPod, IssueWindowFar,
	}
}

// Issue is the name of the issue that a reason of a node or pool is, and the command that shows
// more or helps. The name is empty where it goes on by itself.
func Issue(reason, node, pool, namespace string) (name, command string) {
	m := meaningOf(reason)
	name = m.issue
	isFull := words.HasText(reason, words.DiskPressure) || name == IssueNodeFailed && strings.Contains(reason, "no space left")
	if isFull {
		name = IssueNoSpace
	}
	return name, m.commandFor(&subject{node: node, pool: pool, namespace: namespace, reason: reason})
}
