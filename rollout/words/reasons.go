package words

import "strings"

// Reasons of a node that does not move, read on after its name. Those that end in a space or colon
// go on with what is particular.
const (
	// NoAgent is of a node whose agent never said anything.
	NoAgent = "no node agent has reported from it"
	// Deleting is of a node that leaves the cluster.
	Deleting = "the node is being deleted"
	// Paused is of all nodes of a paused pool.
	Paused = "the pool is paused"
	// Halted goes on with which nodes failed.
	Halted = "the rollout is halted: "
	// Check goes on with the name of the check that holds an image back.
	Check = "check "
	// Finishes is of a node that is at work for another target.
	Finishes = "finishes the change to "
	// StageFailed goes on with the agent's error.
	StageFailed = "can't stage the image: "
	// HostCannot goes on with what the node's host can't do.
	HostCannot = "its host can't take the update: "
	// HostWaits goes on with what the node's host waits for.
	HostWaits = "its host can't take the update yet: "
	// Stages is of a node that pulls.
	Stages = "stages the image"
	// Unanswered goes on, after what a node was asked for, with why its agent does not run.
	Unanswered = ", but its node agent can't answer: "
	// BootsStaged comes after why a node waits that holds the image.
	BootsStaged = ", and any reboot of it boots the staged image, which its host can't lock"
	// CannotGoOn goes on, after what a node does, with the agent's error.
	CannotGoOn = ", and can't go on: "
	// Told is of a node whose agent has not taken up what it was told.
	Told = "was told to change, and its agent has not answered yet"
	// Changing is of a node whose agent is at work.
	Changing = "is changing"
	// Draining may go on with what the drain waits for.
	Draining = "is draining"
	// Rebooting is of a node that is away for a reboot.
	Rebooting = "is rebooting"
	// Degraded goes on with the agent's reason, of a node that had arrived.
	Degraded = "is degraded: "
	// UpdateFailed goes on with the agent's reason, or with why the node does not go back.
	UpdateFailed = "its update failed"
	// Failed is of a node that failed, and can't go back now.
	Failed = "failed, and "
	// GoesBack goes on with how the node failed.
	GoesBack = "goes back, because it failed: "
	// WentBack goes on with how the node failed.
	WentBack = "went back, because it failed: "
	// StuckBack goes on with why the node can't go back.
	StuckBack = "could not go back: "
	// NotReady is of a node that its kubelet does not report as Ready.
	NotReady = "is not Ready"
	// DiskPressure is of a node that takes no pods for lack of space.
	DiskPressure = "is short of disk space"
	// Cordoned is of a node that a person took out of scheduling.
	Cordoned = "was cordoned"
	// NotReadyYet is of a node that has the image.
	NotReadyYet = "has the image, and is not Ready"
	// NotHealthyYet goes on with the name of a health check, and what it read.
	NotHealthyYet = "is not healthy yet: check "
	// NotJudged goes on with the name of a health check, and why it can't be evaluated.
	NotJudged = "can't be judged: health check "
	// EtcdMajority goes on with the member that is missing.
	EtcdMajority = "etcd would lose its majority: "
	// OneAtATime goes on with the other node of the control plane.
	OneAtATime = "control plane nodes update one at a time, and "
)

// Reasons that say more about others than about the node.
const (
	// waits begins all of them.
	waits = "waits "
	// WaitsForSlot goes on with who has the slots.
	WaitsForSlot = waits + "for a slot: "
	// WaitsToStage is of a node that does not pull yet.
	WaitsToStage = waits + "to stage the image: "
	// WaitsForWindow goes on with the name of the window.
	WaitsForWindow = waits + "for maintenance window "
	// NoWindow goes on with why none can open.
	NoWindow = waits + "for a maintenance window, and none can open: "
	// WaitsForCanaries goes on with which, or until when.
	WaitsForCanaries = waits + "for the canaries"
	// NoCanaries goes on with why the pool has none.
	NoCanaries = waits + "for canaries: "
	// WaitsForBatch goes on with the name.
	WaitsForBatch = waits + "for batch "
	// WaitsForPool goes on with the name.
	WaitsForPool = waits + "for pool "
	// WaitsForHealthCheck goes on with the name.
	WaitsForHealthCheck = waits + "for health check "
	// WaitsForProof is of a node that others have to be healthy for.
	WaitsForProof = waits + "until others are healthy: "
	// WaitsForImage goes on with the rendered MachineConfig that there is no image of.
	WaitsForImage = waits + "for the image of "
)

// What a drain waits for, in the middle of the text that says so.
const (
	// BlockedBy comes between a pod and what keeps it.
	BlockedBy = " blocked by "
	// ByBudget goes on, after BlockedBy, with the name of a PodDisruptionBudget.
	ByBudget = "budget "
	// EndsUntil comes between a pod and when it has to end.
	EndsUntil = " has until "
	// KubeletAway goes on with since when.
	KubeletAway = "the node is not Ready since "
)

// HasText reports whether a reason has one of these texts: at its beginning, or, for texts that go
// on after others, anywhere.
func HasText(reason string, texts ...string) bool {
	for _, text := range texts {
		if strings.HasPrefix(reason, text) || strings.HasPrefix(text, ", ") && strings.Contains(reason, text) {
			return true
		}
	}
	return false
}
