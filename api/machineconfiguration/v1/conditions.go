package v1

import openshiftv1 "github.com/openshift/api/machineconfiguration/v1"

// Condition types that every kind has, as kstatus (sigs.k8s.io/cli-utils) reads them; tools that
// wait for an object wait for these.
const (
	// ConditionReady is True when the object's status is what its spec asks for, with
	// observedGeneration the newest generation. Its reason and message sum up the others.
	ConditionReady = "Ready"
	// ConditionReconciling is True while a controller works on it.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when no controller can go on without a person. The reason says why,
	// the message what to do.
	ConditionStalled = "Stalled"
)

// Reasons that conditions of every kind can have.
const (
	// ReasonNotYetObserved means that no controller has looked at the object yet.
	ReasonNotYetObserved = "NotYetObserved"
	// ReasonRetrying means that something outside keeps failing and is tried again.
	ReasonRetrying = "Retrying"
	// ReasonSucceeded means that all is as asked for.
	ReasonSucceeded = "Succeeded"
	// ReasonAsExpected means that a condition which tells of trouble has none to tell of.
	ReasonAsExpected = "AsExpected"
	// ReasonProgressing means that a controller works on it.
	ReasonProgressing = "Progressing"
	// ReasonWaiting means that someone else is expected to act; the message says who and what.
	ReasonWaiting = "Waiting"
	// ReasonWaitingForTurn means that other work goes first; the message says which.
	ReasonWaitingForTurn = "WaitingForTurn"
	// ReasonUnspecified stands in for a reason that was left out, which is a mistake in the
	// program: the API requires one.
	ReasonUnspecified = "Unspecified"
	// ReasonInvalid means that spec asks for something that cannot be; the message says which field
	// and why.
	ReasonInvalid = "Invalid"
	// ReasonControllerKilled means that the controller was killed twice while it worked on nothing
	// but the object or what it names, as a rule because that takes more memory than the controller
	// has.
	ReasonControllerKilled = "ControllerKilled"
	// ReasonKindNotInstalled means that the cluster lacks a kind that spec needs, such as Tekton's
	// PipelineRun.
	ReasonKindNotInstalled = "KindNotInstalled"
)

// Condition types of a MachineOSBuild. They only go forward: Prepared, then Building, then one of
// the last three, which end the build.
const (
	// BuildPrepared is True when the inputs are complete and valid. Reasons: Prepared, Preparing,
	// WaitingForSecret, WaitingForPool, InvalidContainerfile.
	BuildPrepared = string(openshiftv1.MachineOSBuildPrepared)
	// BuildBuilding is True while the builder runs. Reasons: Building, RetryingBuild.
	BuildBuilding = string(openshiftv1.MachineOSBuilding)
	// BuildFailed is True when the build has failed for good. Reasons: InvalidContainerfile,
	// BuildFailed, PushDenied, ImageNotFound, RetryLimitReached, TimedOut.
	BuildFailed = string(openshiftv1.MachineOSBuildFailed)
	// BuildInterrupted is True when the build was ended from outside. Reasons: Superseded,
	// BuilderDeleted, Interrupted, MachineOSConfigDeleted.
	BuildInterrupted = string(openshiftv1.MachineOSBuildInterrupted)
	// BuildSucceeded is True when the image has been pushed. Reasons: Built, Reused,
	// ConfigAppended.
	BuildSucceeded = string(openshiftv1.MachineOSBuildSucceeded)
)

// BuildStage is how far a build has come, as its conditions say together. A build never goes back,
// and its last stage is final.
type BuildStage int

// The stages, each shown by the condition of the same name; BuildStagePending by none.
const (
	BuildStagePending BuildStage = iota
	BuildStagePrepared
	BuildStageBuilding
	BuildStageFailed
	BuildStageInterrupted
	BuildStageSucceeded
)

// IsFinal reports whether nothing follows the stage.
func (s BuildStage) IsFinal() bool { return s >= BuildStageFailed }

// Reasons of a MachineOSBuild's conditions. The reason of its condition Ready is shown as its
// state: one of Pending, Prepared, Building, Succeeded, Failed and Interrupted.
const (
	// ReasonPending means that the build waits for its inputs or a slot.
	ReasonPending = "Pending"
	// ReasonPreparing means that the inputs are being gathered.
	ReasonPreparing = "Preparing"
	// ReasonPrepared means that the inputs are complete and valid.
	ReasonPrepared = "Prepared"
	// ReasonBuilding means that the builder runs.
	ReasonBuilding = "Building"
	// ReasonRetryingBuild means that an attempt failed for a reason outside of the Containerfile,
	// and another one runs.
	ReasonRetryingBuild = "RetryingBuild"
	// ReasonBuilt means that the image was built from its Containerfile.
	ReasonBuilt = "Built"
	// ReasonReused means that the registry had the image already.
	ReasonReused = "Reused"
	// ReasonConfigAppended means that only the configuration changed, and one layer was appended.
	ReasonConfigAppended = "ConfigAppended"
	// ReasonInvalidContainerfile means that the Containerfile cannot be built; the message has the
	// line.
	ReasonInvalidContainerfile = "InvalidContainerfile"
	// ReasonBuildFailed means that a line of the Containerfile failed; the message has the line and
	// the last lines of its output.
	ReasonBuildFailed = "BuildFailed"
	// ReasonFailed is the state of a build that failed.
	ReasonFailed = "Failed"
	// ReasonInterrupted is the state of a build that was ended from outside. As the reason of the
	// condition Interrupted it means that a person cancelled the builder's object.
	ReasonInterrupted = "Interrupted"
	// ReasonPushDenied means that the push secret may not write to the repository.
	ReasonPushDenied = "PushDenied"
	// ReasonImageNotFound means that an image which the build needs does not exist, or may not be
	// pulled.
	ReasonImageNotFound = "ImageNotFound"
	// ReasonRetryLimitReached means that the last allowed attempt failed.
	ReasonRetryLimitReached = "RetryLimitReached"
	// ReasonTimedOut means that an attempt took longer than buildTimeout.
	ReasonTimedOut = "TimedOut"
	// ReasonSuperseded means that a newer build took this one's place.
	ReasonSuperseded = "Superseded"
	// ReasonMachineOSConfigDeleted means that the MachineOSConfig which asked for the build is
	// gone.
	ReasonMachineOSConfigDeleted = "MachineOSConfigDeleted"
	// ReasonInputsChanged means that a step of the build found other files than the controller made
	// for it.
	ReasonInputsChanged = "InputsChanged"
	// ReasonBuilderDeleted means that someone deleted the builder's object.
	ReasonBuilderDeleted = "BuilderDeleted"
)

// Condition types of a MachineOSConfig, beside Ready, Reconciling and Stalled.
const (
	// ConfigSeeded is True when the current image is one that the installer had built. Reason:
	// PreBuiltImageSeeded.
	ConfigSeeded = "Seeded"
	// ConfigSignaturesEnforced is there with --enforce-signatures. It is False while the pool's
	// nodes can't be made to insist on signatures; the message says why, and what to do. The
	// MachineOSConfig is Stalled then, and its images are made all the same.
	ConfigSignaturesEnforced = "SignaturesEnforced"
)

// Reasons of a MachineOSConfig's conditions.
const (
	// ReasonPreBuiltImageSeeded means that the current image is one that the installer had built.
	ReasonPreBuiltImageSeeded = "PreBuiltImageSeeded"
	// ReasonWaitingForSecret means that a secret is missing or of another type; the message has its
	// name.
	ReasonWaitingForSecret = "WaitingForSecret"
	// ReasonWaitingForConfigMap means that a ConfigMap, or a key in one, is missing; the message
	// has its name.
	ReasonWaitingForConfigMap = "WaitingForConfigMap"
	// ReasonWaitingForRemoteFile means that a file which a MachineConfig names by URL cannot be
	// had; the message has the URL and the answer.
	ReasonWaitingForRemoteFile = "WaitingForRemoteFile"
	// ReasonWaitingForPool means that the pool does not exist, has no rendered MachineConfig, or is
	// degraded.
	ReasonWaitingForPool = "WaitingForPool"
	// ReasonBuilderNotAvailable means that the image has content which has to be built, and this
	// installation has no builder of the type that imageBuilder names. Images of configuration
	// alone need none.
	ReasonBuilderNotAvailable = "BuilderNotAvailable"
	// ReasonUnsuitableBaseImage means that the base image is no bootable OS image; the message says
	// what it lacks.
	ReasonUnsuitableBaseImage = "UnsuitableBaseImage"
	// ReasonWaitingForSignature means that the image has been pushed and not been signed yet.
	ReasonWaitingForSignature = "WaitingForSignature"
)

// Condition types of a MachineConfigPool.
const (
	// PoolUpdated is True when all nodes have the pool's configuration and image.
	PoolUpdated = openshiftv1.MachineConfigPoolUpdated
	// PoolUpdating is True while a node is still to be updated.
	PoolUpdating = openshiftv1.MachineConfigPoolUpdating
	// PoolDegraded is True when one of the conditions whose name ends in Degraded is.
	PoolDegraded = openshiftv1.MachineConfigPoolDegraded
	// PoolNodeDegraded is True when a node's update failed, or no one updates it. Reasons:
	// NodesDegraded, NodesInSeveralPools.
	PoolNodeDegraded = openshiftv1.MachineConfigPoolNodeDegraded
	// PoolRenderDegraded is True when the pool's MachineConfigs cannot be joined or stored, and
	// Unknown while it waits for the streams of its release. Reasons: InvalidMachineConfig,
	// StreamNotFound, StreamDowngrade, OSImageURLConflict, RenderedConfigTooLarge,
	// WaitingForOSImageStream.
	PoolRenderDegraded = openshiftv1.MachineConfigPoolRenderDegraded
	// PoolImageBuildDegraded is True when the pool's image could not be built. Reasons:
	// BuildFailed, Building, BuildSuccess, BuildPending, NoLayeredObjects.
	PoolImageBuildDegraded = openshiftv1.MachineConfigPoolImageBuildDegraded
	// PoolPinnedImageSetsDegraded is True when pinned images could not be pulled. OpenShift's node
	// agent causes it; elsewhere a pool that names some has it. Reason: KindNotInstalled.
	PoolPinnedImageSetsDegraded = openshiftv1.MachineConfigPoolPinnedImageSetsDegraded
	// PoolSynchronizerDegraded is True when a synchronizer of the pool fails. OpenShift's node
	// agent causes it.
	PoolSynchronizerDegraded = openshiftv1.MachineConfigPoolSynchronizerDegraded
	// PoolBuildPending is True when the pool's image waits to be built.
	PoolBuildPending = openshiftv1.MachineConfigPoolBuildPending
	// PoolBuilding is True while the pool's image is being built.
	PoolBuilding = openshiftv1.MachineConfigPoolBuilding
	// PoolBuildSuccess is True when the pool's image has been built.
	PoolBuildSuccess = openshiftv1.MachineConfigPoolBuildSuccess
	// PoolBuildFailed is True when the pool's image could not be built.
	PoolBuildFailed = openshiftv1.MachineConfigPoolBuildFailed
	// PoolBuildInterrupted is True when the build of the pool's image was ended from outside.
	PoolBuildInterrupted = openshiftv1.MachineConfigPoolBuildInterrupted
	// PoolOSStreamDeprecated is True when the pool follows a stream that it should leave, or its
	// nodes are still on one. Reasons: StreamEndOfLife, StreamRemoved.
	PoolOSStreamDeprecated MachineConfigPoolConditionType = "OSStreamDeprecated"
	// PoolRolloutDegraded is True when nodes do not get what the pool should have until a person
	// acts. Reasons: RolloutHalted, NodesFailed, InvalidRollout.
	PoolRolloutDegraded MachineConfigPoolConditionType = "RolloutDegraded"
	// PoolOSStreamsMixed is True when the pool takes a compact cluster to a second stream. Reason:
	// CompactCluster.
	PoolOSStreamsMixed MachineConfigPoolConditionType = "OSStreamsMixed"
	// PoolPoliciesMissing is there and True while admission policies of Layerwright, or bindings of
	// them, are missing from the cluster; the message names them. Reason: PoliciesMissing.
	PoolPoliciesMissing MachineConfigPoolConditionType = "PoliciesMissing"
)

// Reasons of a MachineConfigPool's conditions. Those of PoolImageBuildDegraded are
// openshift/machine-config-operator's.
const (
	// ReasonNodesDegraded means that nodes failed; the message names them.
	ReasonNodesDegraded = "NodesDegraded"
	// ReasonInvalidMachineConfig means that a MachineConfig cannot be read or joined; the message
	// names it.
	ReasonInvalidMachineConfig = "InvalidMachineConfig"
	// ReasonStreamNotFound means that the stream which the pool should go to is not among the
	// available ones; the pool keeps its image.
	ReasonStreamNotFound = "StreamNotFound"
	// ReasonStreamDowngrade means that the pool's stream is of an older major version than the one
	// that the pool is on.
	ReasonStreamDowngrade = "StreamDowngrade"
	// ReasonBlockedOnStream means that the configuration has something that can't work on the
	// pool's stream.
	ReasonBlockedOnStream = "BlockedOnStream"
	// ReasonOSImageURLConflict means that the pool names a stream and a MachineConfig sets
	// osImageURL.
	ReasonOSImageURLConflict = "OSImageURLConflict"
	// ReasonWaitingForOSImageStream means that the OSImageStream is still that of another release;
	// RenderDegraded is Unknown meanwhile.
	ReasonWaitingForOSImageStream = "WaitingForOSImageStream"
	// ReasonRenderedConfigTooLarge means that the API server does not store a rendered
	// MachineConfig of that size.
	ReasonRenderedConfigTooLarge = "RenderedConfigTooLarge"
	// ReasonNodesInSeveralPools means that several custom pools select the same nodes; the message
	// names them.
	ReasonNodesInSeveralPools = "NodesInSeveralPools"
	// ReasonPoliciesMissing means that the API server accepts what admission policies should
	// refuse, since they are missing.
	ReasonPoliciesMissing = "PoliciesMissing"
	// ReasonNoNodes means that the pool has no nodes: it is neither updated nor updating.
	ReasonNoNodes = "NoNodes"
	// ReasonNoNodeAgent means that the nodes which are left have no node agent, so that no one
	// updates them.
	ReasonNoNodeAgent = "NoNodeAgent"
	// ReasonNotRendered means that the pool has no configuration yet.
	ReasonNotRendered = "NotRendered"
	// ReasonBuildSuccess means that the pool's image has been built.
	ReasonBuildSuccess = "BuildSuccess"
	// ReasonBuildPending means that the pool's image waits to be built.
	ReasonBuildPending = "BuildPending"
	// ReasonNoLayeredObjects means that the pool has no MachineOSConfig.
	ReasonNoLayeredObjects = "NoLayeredObjects"
	// ReasonStreamEndOfLife means that the pool's stream is deprecated, and will end.
	ReasonStreamEndOfLife = "StreamEndOfLife"
	// ReasonStreamRemoved means that the pool's stream is no longer among the available ones: the
	// pool keeps the stream's last images, and goes on otherwise.
	ReasonStreamRemoved = "StreamRemoved"
	// ReasonCompactCluster means that the control plane's nodes run everything, which should be of
	// one stream.
	ReasonCompactCluster = "CompactCluster"
	// ReasonDeprecatedOSStreamInUse is the reason of Upgradeable=False, on the OSImageStream and on
	// Layerwright's ClusterOperator on OpenShift, while a pool follows a stream whose life has
	// ended, or that was removed.
	ReasonDeprecatedOSStreamInUse = "DeprecatedOSStreamInUse"
	// ReasonRolloutHalted means that as many nodes failed with an image as haltThreshold says.
	ReasonRolloutHalted = "RolloutHalted"
	// ReasonNodesFailed means that nodes failed with an image, and fewer than haltThreshold says:
	// others get it.
	ReasonNodesFailed = "NodesFailed"
	// ReasonInvalidRollout means that spec.rollout can't be followed, such as for a health check
	// that does not compile; the message says why.
	ReasonInvalidRollout = "InvalidRollout"
	// ReasonPaused means that the pool is paused.
	ReasonPaused = "Paused"
)

// Condition types of the OSImageStream, beside Ready, Reconciling and Stalled.
const (
	// StreamsUpgradeable is False while pools keep the cluster from being upgraded. Reason:
	// DeprecatedOSStreamInUse. The pool controller writes it.
	StreamsUpgradeable = "Upgradeable"
)

// Reasons of the OSImageStream's conditions.
const (
	// ReasonNoOSImageStreamAvailable means that no source gives a complete stream.
	ReasonNoOSImageStreamAvailable = "NoOSImageStreamAvailable"
	// ReasonDefaultStreamNotAvailable means that spec.defaultStream is none of the available
	// streams; the default stays what it was.
	ReasonDefaultStreamNotAvailable = "DefaultStreamNotAvailable"
	// ReasonSourceFailed means that a source could not be read; the streams of the others are
	// there.
	ReasonSourceFailed = "SourceFailed"
)

// Reasons of the condition Drained that the drain controller writes.
const (
	// ReasonDraining means that pods have been told to end. The message says until when they have
	// to.
	ReasonDraining = "Draining"
	// ReasonDrainBlocked means that a PodDisruptionBudget, or another refusal, keeps pods on the
	// node.
	ReasonDrainBlocked = "DrainBlocked"
	// ReasonDrainOverdue means that it has kept them there for longer than a drain should take.
	ReasonDrainOverdue = "DrainOverdue"
	// ReasonDrained means that what kept them there is gone, and so are they.
	ReasonDrained = "Drained"
	// ReasonDrainCancelled means that the drain was no longer wanted.
	ReasonDrainCancelled = "DrainCancelled"
)

// ReasonStagingFailed is why the condition ImagePulledFromRegistry is False: the node could not
// pull or stage the image, and tries again. The message has the error. The node agent writes it.
const ReasonStagingFailed = "StagingFailed"

// Reasons of the conditions of a MachineConfigNode that the node agent writes.
const (
	// ReasonStaged means that the image is on the node's disk.
	ReasonStaged = "Staged"
	// ReasonUpdating means that the node changes to what it should have.
	ReasonUpdating = "Updating"
	// ReasonRebooting means that the node is told to reboot.
	ReasonRebooting = "Rebooting"
	// ReasonRebootOverdue means that it was told so long ago, and still runs.
	ReasonRebootOverdue = "RebootOverdue"
	// ReasonUpdated means that the node has what it should have.
	ReasonUpdated = "Updated"
	// ReasonUpdateFailed means that the node did not get there, or that its host can't be managed.
	ReasonUpdateFailed = "UpdateFailed"
	// ReasonPreparingFailed means that the node could not be made ready for its reboot, and tries
	// again.
	ReasonPreparingFailed = "PreparingFailed"
	// ReasonApplyingFailed means that the node could not be given what no image carries, and tries
	// again.
	ReasonApplyingFailed = "ApplyingFailed"
	// ReasonWithdrawn means that the image is no longer asked for, and was removed.
	ReasonWithdrawn = "Withdrawn"
	// ReasonUnstagingFailed means that such an image could not be removed, and the node tries
	// again.
	ReasonUnstagingFailed = "UnstagingFailed"
	// ReasonLockUnsupported means that the host has nothing to keep a staged image from booting.
	ReasonLockUnsupported = "LockUnsupported"
	// ReasonLockingFailed means that it has, and that this failed. The node tries again.
	ReasonLockingFailed = "LockingFailed"
	// ReasonUnsuitableHost means that nothing on the host changes what it boots, or too old a
	// program.
	ReasonUnsuitableHost = "UnsuitableHost"
	// ReasonKernelArgumentsUnsupported means that the host can't set the kernel arguments.
	ReasonKernelArgumentsUnsupported = "KernelArgumentsUnsupported"
	// ReasonUnstagingUnsupported means that the host can't remove what is staged.
	ReasonUnstagingUnsupported = "UnstagingUnsupported"
	// ReasonLocalPackages means that someone has installed packages over the host's image.
	ReasonLocalPackages = "LocalPackages"
	// ReasonReadOnlyHost means that the host's disk, or its /etc, can't be written.
	ReasonReadOnlyHost = "ReadOnlyHost"
	// ReasonHostBusy means that the host's programs do something for someone else.
	ReasonHostBusy = "HostBusy"
	// ReasonWaitingForSignaturePolicy means that the host would refuse the image until its policy
	// asks for a signature of it.
	ReasonWaitingForSignaturePolicy = "WaitingForSignaturePolicy"
	// ReasonUsrUnlocked means that someone has made /usr writable: what they changed there is lost
	// at the next reboot.
	ReasonUsrUnlocked = "UsrUnlocked"
	// ReasonConfigDrift means that files of the node are not as its image and its configuration
	// have them.
	ReasonConfigDrift = "ConfigDrift"
)

// ConfigNotYetSet is spec.configVersion.desired of a MachineConfigNode that has not been told yet
// what it should have, as in openshift/machine-config-operator.
const ConfigNotYetSet = "not-yet-set"

// Condition types of a MachineConfigNode: the steps of an update in their order, then what can go
// wrong. The node agent writes them.
const (
	// NodeUpdatePrepared is True when the node has checked that it can get to its desired
	// configuration.
	NodeUpdatePrepared = string(openshiftv1.MachineConfigNodeUpdatePrepared)
	// NodeImagePulledFromRegistry is True when the desired image is on the node's disk. Reason of
	// False, while the node can't stage the image that it was asked to: StagingFailed; and of one
	// that is no longer asked for: Withdrawn, UnstagingFailed.
	NodeImagePulledFromRegistry = string(openshiftv1.MachineConfigNodeImagePulledFromRegistry)
	// NodeHostSuitable is True when the host can do what its node is asked for. It is False before
	// anything is staged: no image and no configuration is to blame, and none is held back from
	// other nodes. The message says what to do. Reasons of False: UnsuitableHost,
	// KernelArgumentsUnsupported, UnstagingUnsupported, LocalPackages, ReadOnlyHost, HostBusy,
	// WaitingForSignaturePolicy; of True with a message: UsrUnlocked.
	NodeHostSuitable = "HostSuitable"
	// NodeStagedImageLocked is True when a reboot outside of the node's turn boots what ran, and
	// not the image that is staged. Reasons of False: LockUnsupported, LockingFailed.
	NodeStagedImageLocked = "StagedImageLocked"
	// NodeCordoned is True when no new pod is scheduled to the node.
	NodeCordoned = string(openshiftv1.MachineConfigNodeUpdateCordoned)
	// NodeDrained is True when the node's pods have been evicted. While pods are still there, the
	// drain controller writes it: False, with the reason Draining, DrainBlocked or DrainOverdue.
	NodeDrained = string(openshiftv1.MachineConfigNodeUpdateDrained)
	// NodeAppliedFiles is True when files and units have been written.
	NodeAppliedFiles = string(openshiftv1.MachineConfigNodeUpdateFiles)
	// NodeAppliedOSImage is True when the desired image is staged.
	NodeAppliedOSImage = string(openshiftv1.MachineConfigNodeUpdateOS)
	// NodeAppliedFilesAndOS is True when both are done.
	NodeAppliedFilesAndOS = string(openshiftv1.MachineConfigNodeUpdateFilesAndOS)
	// NodeUpdateExecuted is True when everything before the reboot is done.
	NodeUpdateExecuted = string(openshiftv1.MachineConfigNodeUpdateExecuted)
	// NodeRebootedNode is True when the node has booted its new deployment.
	NodeRebootedNode = string(openshiftv1.MachineConfigNodeUpdateRebooted)
	// NodeUpdatePostActionComplete is True when a reboot or what stands for it is done.
	NodeUpdatePostActionComplete = string(openshiftv1.MachineConfigNodeUpdatePostActionComplete)
	// NodeUncordoned is True when pods are scheduled to the node again.
	NodeUncordoned = string(openshiftv1.MachineConfigNodeUpdateUncordoned)
	// NodeUpdateComplete is True when every step is done.
	NodeUpdateComplete = string(openshiftv1.MachineConfigNodeUpdateComplete)
	// NodeResumed is True when the node is back at its usual work.
	NodeResumed = string(openshiftv1.MachineConfigNodeResumed)
	// NodeUpdated is True when the node has what it should have.
	NodeUpdated = string(openshiftv1.MachineConfigNodeUpdated)
	// NodeNodeDegraded is True when the update failed.
	NodeNodeDegraded = string(openshiftv1.MachineConfigNodeNodeDegraded)
	// NodePinnedImageSetsProgressing is True while pinned images are being pulled. OpenShift's node
	// agent writes it.
	NodePinnedImageSetsProgressing = string(openshiftv1.MachineConfigNodePinnedImageSetsProgressing)
	// NodePinnedImageSetsDegraded is True when pinned images could not be pulled. OpenShift's node
	// agent writes it.
	NodePinnedImageSetsDegraded = string(openshiftv1.MachineConfigNodePinnedImageSetsDegraded)
	// NodeInternalReleaseImageDegraded is True when the node's own registry of release images
	// fails. OpenShift's node agent writes it.
	NodeInternalReleaseImageDegraded = string(openshiftv1.MachineConfigNodeInternalReleaseImageDegraded)
)
