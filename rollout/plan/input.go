package plan

import (
	"slices"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/words"
)

// Node is a node of the pool as a rollout sees it.
type Node struct {
	nodes.Node
	// Created is when the Node joined.
	Created time.Time
	// Zone is its topology.kubernetes.io/zone; empty where it has none.
	Zone string
	// Deleting reports whether the Node is being deleted.
	Deleting bool
	// Stages reports whether the node's agent can stage in the background. That of an earlier
	// version, and OpenShift's, pull when the node has been drained.
	Stages bool
	// StageImage is the image that the node was asked to stage, StagedImage the one that it holds.
	StageImage, StagedImage string
	// StagedChange is what the image that the node holds will do to it: one of
	// mcfgv1.NodeChange..., or empty where that is not known.
	StagedChange string
	// RunsImage is the image that the node runs, also where that is the OS image of its
	// configuration; empty where that is not known.
	RunsImage mcfgv1.ImageDigestFormat
	// SameArguments reports whether the configuration that the node has and that of the target have
	// the same kernel arguments, so that it need not reboot where the image stays.
	SameArguments bool
	// StageError is why the node could not stage; empty where it did, or is still at it.
	StageError string
	// HostError is what the node's host can't do, or what it waits for, in words; empty where it
	// can do what it is asked for. It is the StageError and the StepError then.
	HostError string
	// HostWaits reports whether the host waits for something that others bring.
	HostWaits bool
	// BootsStaged reports whether any reboot of the node boots the image that it holds.
	BootsStaged bool
	// StepError is why the node's agent can't do what ReportedDesired takes, and tries again; empty
	// where it can.
	StepError string
	// AgentDown is why the node's agent does not run, in words; empty where it does, or that is not
	// known.
	AgentDown string
	// DesiredDrain and LastAppliedDrain are the published annotations of those names.
	DesiredDrain, LastAppliedDrain string
	// DrainBlocked is what keeps the drain from ending, such as "pod ns/x blocked by budget y".
	DrainBlocked string
	// Previous is what the node had before it was told to change; empty where that is not known.
	Previous nodes.Target
	// FailedTarget is what the node was rolled back from, and FailedReason why.
	FailedTarget nodes.Target
	FailedReason string
	// RolloutStarted is the start of the rollout that changed the node last; zero where that is not
	// known.
	RolloutStarted time.Time
	// Arrived is when the node last reported that it has what it should have, by its own clock.
	Arrived time.Time
	// Seen is since when the node has the target, as far as this process knows; zero where it has
	// not.
	Seen time.Time
	// Unready is since when the node has the target and is not Ready, as far as this process knows;
	// zero where that is not known.
	Unready time.Time
	// ReportedDesired is the target that the node had when its agent last reported; empty where
	// that is not known. A node that is Degraded with another one has not answered yet.
	ReportedDesired nodes.Target
	// Rebooting is since when the node is away for a reboot, as far as this process knows; zero
	// where it is not.
	Rebooting time.Time
	// Health are the results of the pool's health checks on the node.
	Health []HealthResult
}

// HealthResult is what a health check of the pool says about a node.
type HealthResult struct {
	// Name is that of the check.
	Name string
	// Holds reports whether the node is healthy by the check.
	Holds bool
	// Value is what the expression gave, for people; with Broken it is why there is no value.
	Value string
	// Failed reports whether the node can't become healthy by the check any more, so that it is
	// given no time.
	Failed bool
	// Broken reports whether the check could not be evaluated, which says nothing about the node.
	Broken bool
	// Since is when the check ceased to hold, as far as this process knows; zero where that is not
	// known.
	Since time.Time
	// Timeout is how long the node has to become healthy after its update, or after Since.
	Timeout time.Duration
}

// EtcdMember is an etcd server on a node of the control plane.
type EtcdMember struct {
	// Node is the name of its node.
	Node string
	// Healthy reports whether it answers, and that its node is not about to go away for another
	// pool.
	Healthy bool
}

// Input is everything that a plan follows from.
type Input struct {
	// Pool is the MachineConfigPool.
	Pool *mcfgv1.MachineConfigPool
	// Target is what the pool's nodes should have; empty while that is not known, and Hold says
	// why.
	Target nodes.Target
	// Image is what a node stages for the target: the target's image, or the OS image of the
	// rendered MachineConfig where the target has none.
	Image string
	// Pull is what a node pulls to have Image.
	Pull Pull
	// Hold is why no node may start to change, in words; empty where they may.
	Hold string
	// Wait is why no node may start to change yet. Nodes stage all the same.
	Wait Wait
	// Quarantined reports whether the image is in quarantine, so that no node may even stage it.
	Quarantined bool
	// Nodes are the members of the pool, in any order.
	Nodes []Node
	// FailedAtQuarantine are the nodes that had failed with the target when it was quarantined, and
	// Evidence is what was reported of them. After a restart the controller need not judge them
	// again.
	FailedAtQuarantine []string
	Evidence           string
	// OwnNode is the node that the controller runs on, which goes last. It may be empty.
	OwnNode string
	// Etcd are the members of the cluster's etcd, where they can be seen.
	Etcd []EtcdMember
	// Now is the time of the decision.
	Now time.Time
	// Started is when the first node was told to change to the target; zero where none was. Only
	// nodes that were told in this rollout are judged: others had the target before, and prove
	// nothing about it.
	Started time.Time
	// Superseded is the start of the rollout before, where nothing of it was proven: nodes that
	// were told in it, and have the target, still have to prove that they are healthy. Else it is
	// zero.
	Superseded time.Time
	// SoakEnd is what SoakEnd of the plan before was, for the same target.
	SoakEnd time.Time
}

// Action is what is done to a node.
type Action string

// The actions.
const (
	// Stage asks the node to pull and stage an image while it runs its workload.
	Stage Action = "Stage"
	// Unstage withdraws what the node was asked to stage.
	Unstage Action = "Unstage"
	// Update asks the node to change to the target. It drains and reboots as it needs to.
	Update Action = "Update"
	// Rollback asks the node to go back to what it had before the target, which is still on its
	// disk.
	Rollback Action = "Rollback"
	// Repeat says again what the node should have, which is what it has: it needs no slot.
	Repeat Action = "Repeat"
)

// Move is one action on one node.
type Move struct {
	// Node is the name of the node.
	Node string
	// Action is what is done.
	Action Action
	// Target is what the node should have; of Update, Rollback and Repeat only.
	Target nodes.Target
	// Failed is what the node failed with; of Rollback only.
	Failed nodes.Target
	// Live reports whether the node may only change as it runs; of Update only. It takes no slot.
	Live bool
	// Image is what the node should stage; of Stage only.
	Image string
	// Reason is why, for people.
	Reason string
}

// Plan is what is done now, and why the rest is not.
type Plan struct {
	// Hold is why the target is not known; empty where it is.
	Hold string
	// Moves are in the order in which they are made.
	Moves []Move
	// Holds are in the order in which the nodes will go.
	Holds []words.Hold
	// Updated is the number of nodes that have the target and are healthy, Total that of all.
	Updated, Total int
	// Staged is the number of nodes that hold the image and do not run it.
	Staged int
	// Live is the number of those of them that will neither be drained nor reboot.
	Live int
	// Failed is the number of nodes that failed with the target, RolledBack that of those of them
	// that went back, or are told to now.
	Failed, RolledBack int
	// Failure is how nodes failed with the target, for people; empty where none did.
	Failure string
	// Halt is why no further node gets the target, for people; empty while the rollout goes on.
	Halt string
	// Halted reports whether no further node gets the target, now or since earlier.
	Halted bool
	// FailedNodes are the names of the nodes that failed with the target.
	FailedNodes []string
	// Cost is what happens to the nodes that do not have the target.
	Cost Cost
	// Away are the names of the nodes that are drained, reboot, or have to prove within a bounded
	// time that they are healthy, and have not failed.
	Away []string
	// SoakEnd is when the canaries have been healthy for long enough; zero while they are not.
	SoakEnd time.Time
	// Window is what the maintenance windows say.
	Window Window
	// Next is when the plan changes although nothing in the cluster does; zero where it does not.
	Next time.Time
}

// Updates reports whether a node is asked to change.
func (p *Plan) Updates() bool {
	return slices.ContainsFunc(p.Moves, Move.isChange)
}

// moves reports whether a node is asked to change.
func (p *Plan) moves(node string) bool {
	return slices.ContainsFunc(p.Moves, func(m Move) bool { return m.Node == node && m.isChange() })
}

func (m Move) isChange() bool { return m.Action == Update || m.Action == Rollback }
