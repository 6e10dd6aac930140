package v1

// Annotations of a MachineOSConfig.
const (
	// AnnotationRebuild asks for a build although nothing has changed. People write it, with any
	// value; the build controller reads it, starts the build and removes it. It is the spelling of
	// openshift/machine-config-operator. The build that answers it carries it too, until it has
	// gone from the MachineOSConfig, so that one request is never answered twice.
	AnnotationRebuild = "machineconfiguration.openshift.io/rebuild"
	// AnnotationRebuildImage is AnnotationRebuild as the design document spells it. People write
	// it; the build controller treats both alike.
	AnnotationRebuildImage = "machineconfiguration.openshift.io/rebuildImage"
	// AnnotationCheckImages asks for the registries to be asked now whether tags have moved and
	// images are still there, which is done by itself every ten minutes. People write it, with any
	// value; the build controller does so and removes it. On the OSImageStream it is about the tags
	// of streams, and the stream controller does.
	AnnotationCheckImages = "machineconfiguration.openshift.io/check-images"
	// AnnotationNoRollout keeps built images from being rolled out, like postBuildStrategy
	// ImagePushOnly, for as long as it is there. People write it, with any value; the build
	// controller reads it.
	AnnotationNoRollout = "machineconfiguration.openshift.io/noRollout"
	// AnnotationCurrentMachineOSBuild is the name of the newest MachineOSBuild. The build
	// controller writes it; tools of OpenShift read it, Layerwright reads status.machineOSBuild.
	AnnotationCurrentMachineOSBuild = "machineconfiguration.openshift.io/current-machine-os-build"
	// AnnotationPreBuiltImage is an image, by digest, that the installer has built before there was
	// a cluster. The installer writes it; the build controller takes the image as if it had built
	// it, and removes the annotation.
	AnnotationPreBuiltImage = "machineconfiguration.openshift.io/pre-built-image"
	// AnnotationTryStream is the name of a stream that the pool might move to. People write it; the
	// build controller makes a trial image for it, says in status.streamTrial what the move would
	// change, and takes both back when the annotation goes.
	AnnotationTryStream = "machineconfiguration.openshift.io/try-stream"
)

// Annotations of a MachineOSBuild that an earlier version of Layerwright requested. They say what
// spec.decision says by now, and MachineOSBuild.Asked reads them. None is written any more, but for
// AnnotationOSImageStream and AnnotationBuildArchitectures on other objects.
const (
	// AnnotationBaseImage is baseImage.
	AnnotationBaseImage = "machineconfiguration.openshift.io/base-image"
	// AnnotationExtensionsImage is extensionsImage.
	AnnotationExtensionsImage = "machineconfiguration.openshift.io/extensions-image"
	// AnnotationOSImageStream is osImageStream. Rendered MachineConfigs have it too: the stream
	// whose OS image they have. The renderer writes it there; the pool controller reads it, to know
	// what the nodes with that configuration are on.
	AnnotationOSImageStream = "machineconfiguration.openshift.io/os-image-stream"
	// AnnotationBuildInputs has keys and inputs, compressed.
	AnnotationBuildInputs = "machineconfiguration.openshift.io/build-inputs"
	// AnnotationBuildCause is cause.
	AnnotationBuildCause = "machineconfiguration.openshift.io/build-cause"
	// AnnotationContentImage is contentImage.
	AnnotationContentImage = "machineconfiguration.openshift.io/content-image"
	// AnnotationRegistryAccess is registryAccess.
	AnnotationRegistryAccess = "machineconfiguration.openshift.io/registry-access"
	// AnnotationBaseImagePullSecret is baseImagePullSecret.
	AnnotationBaseImagePullSecret = "machineconfiguration.openshift.io/base-image-pull-secret"
	// AnnotationRenderedImagePushSecret is renderedImagePushSecret.
	AnnotationRenderedImagePushSecret = "machineconfiguration.openshift.io/rendered-image-push-secret"
	// AnnotationImageDeletion is imageDeletion.
	AnnotationImageDeletion = "machineconfiguration.openshift.io/image-deletion"
)

// Annotations that the build controller writes and reads, on a MachineOSBuild if nothing else is
// said.
const (
	// AnnotationFailedAttempts is how many attempts of a build failed for a reason that may pass.
	// The build controller counts them where spec.buildRetryLimit of the MachineOSConfig limits
	// them, and where content was pushed and its digest was lost.
	AnnotationFailedAttempts = "machineconfiguration.openshift.io/failed-attempts"
	// AnnotationBuildRetries is on a MachineOSConfig: the name of the build that failed and was
	// made again without anybody asking, and how often in a row. The build controller writes it,
	// and removes it when the image is there.
	AnnotationBuildRetries = "machineconfiguration.openshift.io/build-retries"
	// AnnotationBuildTimeout is how long an attempt of a build that timed out had. The build
	// controller writes it, and makes the build again when spec.buildTimeout of the MachineOSConfig
	// gives more.
	AnnotationBuildTimeout = "machineconfiguration.openshift.io/build-timeout"
)

// Annotations of the objects that exist for a MachineOSBuild, such as its Jobs and their pods. What
// builds writes and reads them.
const (
	// AnnotationMachineOSBuild is the name of the MachineOSBuild, which is longer than a label may
	// be where its MachineOSConfig's is.
	AnnotationMachineOSBuild = "machineconfiguration.openshift.io/machine-os-build"
	// AnnotationMachineOSBuildUID is its UID: objects of a build that was deleted, and made again
	// under its name, are not the new one's.
	AnnotationMachineOSBuildUID = "machineconfiguration.openshift.io/machine-os-build-uid"
	// AnnotationBuildArchitecture is the architecture that the object builds for.
	AnnotationBuildArchitecture = "machineconfiguration.openshift.io/build-architecture"
	// AnnotationBuildArchitectures are all architectures of the build, with commas: a build of
	// which a Job is missing has been interrupted. A MachineOSBuild that an earlier version of
	// Layerwright requested has it for inputs.architectures.
	AnnotationBuildArchitectures = "machineconfiguration.openshift.io/build-architectures"
	// AnnotationBuildIsolation is how far the build is kept from its node: UserNamespace, or
	// Capabilities and why not more. People read it too.
	AnnotationBuildIsolation = "machineconfiguration.openshift.io/build-isolation"
	// AnnotationBuildSettings is on Jobs of builds: a hash of the resources, placement, retries and
	// timeout that the Job was made with. The controller makes the Job again when spec of the
	// MachineOSConfig says others.
	AnnotationBuildSettings = "machineconfiguration.openshift.io/build-settings"
	// AnnotationBuildAttempt is which attempt a PipelineRun is, and AnnotationBuildAttempts how
	// many there may be. The controller writes and reads both.
	AnnotationBuildAttempt  = "machineconfiguration.openshift.io/build-attempt"
	AnnotationBuildAttempts = "machineconfiguration.openshift.io/build-attempts"
	// AnnotationBuildImage is the image that a PipelineRun builds, by its tag. The controller
	// writes it, for people.
	AnnotationBuildImage = "machineconfiguration.openshift.io/build-image"
	// AnnotationBuildSecrets are the secrets that pods of a PipelineRun may mount, with commas. The
	// controller writes it, and the admission policy layerwright-pipeline-secrets reads it.
	AnnotationBuildSecrets = "machineconfiguration.openshift.io/build-secrets"
)

// Annotations of the Jobs that verify an image, and of their pods. The verification controller
// writes and reads them; the last two are also on the Jobs of health checks.
const (
	// AnnotationMachineOSImage is the name of the MachineOSImage that the Job is about.
	AnnotationMachineOSImage = "machineconfiguration.openshift.io/machine-os-image"
	// AnnotationVerificationTest is the hash of the test that it runs: of an image, also in
	// status.verification.testHash.
	AnnotationVerificationTest = "machineconfiguration.openshift.io/verification-test"
	// AnnotationVerificationAttempt is how many Jobs before it were ended by something else than
	// the test.
	AnnotationVerificationAttempt = "machineconfiguration.openshift.io/verification-attempt"
)

// Annotations of the Jobs of health checks, and of their pods, beside AnnotationVerificationTest
// and AnnotationVerificationAttempt. The rollout controller writes and reads them.
const (
	// AnnotationHealthCheck is what the Job is of: "<pool>/<node>/<health check>".
	AnnotationHealthCheck = "machineconfiguration.openshift.io/health-check"
	// AnnotationHealthCheckTarget identifies the Node, its pool, what it was updated to, and the
	// health check.
	AnnotationHealthCheckTarget = "machineconfiguration.openshift.io/health-check-target"
)

// FinalizerBuildImage keeps a deleted MachineOSBuild until its image has been removed from the
// registry, or it is clear that it can't be. The build controller writes and removes it.
const FinalizerBuildImage = "machineconfiguration.openshift.io/image"

// Annotations of a MachineConfig.
const (
	// AnnotationGeneratedByControllerVersion is the version of the controller that wrote a
	// MachineConfig. Controllers write it on the MachineConfigs that they render; people see it in
	// a column, and a rendered one without it is not built.
	AnnotationGeneratedByControllerVersion = "machineconfiguration.openshift.io/generated-by-controller-version"
	// AnnotationReleaseImageVersion is the version of the release that a MachineConfig or
	// OSImageStream was written from. The controller that writes the object writes it; the renderer
	// reads it, so that images of two releases never mix during an upgrade.
	AnnotationReleaseImageVersion = "machineconfiguration.openshift.io/release-image-version"
	// AnnotationNodeOnly with the value "true" keeps the content of a MachineConfig out of images;
	// the node agent writes it instead. People write it, on MachineConfigs that hold secrets; the
	// renderer and the builder read it.
	AnnotationNodeOnly = "machineconfiguration.openshift.io/nodeOnly"
	// AnnotationNodeOnlyContent lists, as JSON, the files, directories, links, units, users and
	// groups of a rendered MachineConfig that stay out of images, because a MachineConfig with
	// AnnotationNodeOnly has a part in them. The renderer writes it; the builder and the node agent
	// read it.
	AnnotationNodeOnlyContent = "machineconfiguration.openshift.io/nodeOnlyContent"
)

// Annotations of a MachineConfigPool.
const (
	// AnnotationRememberedStream is the stream that the pool's configuration was rendered with
	// last, which a pool that names none stays on. The pool controller writes it together with
	// spec.configuration, and reads it; the admission policy layerwright-pool-stream-downgrade
	// reads it too. It is no status, because a backup does not bring that back. No one else should
	// change it.
	AnnotationRememberedStream = "machineconfiguration.openshift.io/remembered-os-image-stream"
	// AnnotationAcceptBlockers has names of rules, separated by commas, whose findings do not keep
	// the pool from its stream. An administrator who knows better writes it, and the pool
	// controller reads it.
	AnnotationAcceptBlockers = "machineconfiguration.openshift.io/accept-stream-blockers"
	// AnnotationUpdateOrder is which of the nodes of a zone go first: OldestFirst, as without it,
	// or UpdateOrderNewestFirst. People write it; the rollout controller reads it.
	AnnotationUpdateOrder = "machineconfiguration.openshift.io/update-order"
	// AnnotationResumeRollout resumes a halted rollout. People write it, with any value; the
	// rollout controller ends the quarantine of the image, forgets which nodes failed with it, and
	// removes the annotation.
	AnnotationResumeRollout = "machineconfiguration.openshift.io/resume-rollout"
	// AnnotationIgnoreWindows lets nodes change outside of maintenance windows for as long as it is
	// there. People write it, with the reason as its value; the rollout controller reads it, and
	// repeats the reason in an Event for each node that it moves outside of the windows.
	AnnotationIgnoreWindows = "machineconfiguration.openshift.io/ignore-windows"
)

// Annotations of the OSImageStream.
const (
	// AnnotationReleasePayloadImage is the release image that the streams were read from. The
	// stream controller writes and reads it, to know when to look again.
	AnnotationReleasePayloadImage = "machineconfiguration.openshift.io/release-payload-image"
	// AnnotationBootImageSkewLimits are the oldest boot images that the release allows, as JSON.
	// The stream controller writes it, from the annotation or label of this name of the release
	// image; the boot image controller reads it. It is Layerwright's own.
	AnnotationBootImageSkewLimits = "machineconfiguration.openshift.io/boot-image-skew-limits"
)

// Annotations of a Node.
const (
	// AnnotationCurrentConfig is the rendered MachineConfig that a node has. The node agent writes
	// it; the rollout controller reads it.
	AnnotationCurrentConfig = "machineconfiguration.openshift.io/currentConfig"
	// AnnotationDesiredConfig is the rendered MachineConfig that a node should have. The rollout
	// controller writes it; the node agent reads it.
	AnnotationDesiredConfig = "machineconfiguration.openshift.io/desiredConfig"
	// AnnotationCurrentImage is the image, by digest, that a node has booted; after a change
	// without a reboot the one whose files it has, and which it boots next. The node agent writes
	// it; the rollout controller reads it.
	AnnotationCurrentImage = "machineconfiguration.openshift.io/currentImage"
	// AnnotationDesiredImage is the image, by digest, that a node should boot. The rollout
	// controller writes it, together with AnnotationDesiredConfig; the node agent reads it.
	AnnotationDesiredImage = "machineconfiguration.openshift.io/desiredImage"
	// AnnotationState is how far the node agent is: one of the NodeState constants. The node agent
	// writes it; the rollout controller reads it.
	AnnotationState = "machineconfiguration.openshift.io/state"
	// AnnotationReason is why the state is Degraded or Unreconcilable, for people. The node agent
	// writes it; the rollout controller copies it into the pool's conditions.
	AnnotationReason = "machineconfiguration.openshift.io/reason"
	// AnnotationDesiredDrain asks for a drain, a cordon or the end of both: "drain-", "cordon-" or
	// "uncordon-" and a rendered MachineConfig's hash. The node agent writes it; the rollout
	// controller does so.
	AnnotationDesiredDrain = "machineconfiguration.openshift.io/desiredDrain"
	// AnnotationLastAppliedDrain is the last AnnotationDesiredDrain that has been done. The rollout
	// controller writes it; the node agent reads it, and goes on when the two are the same.
	AnnotationLastAppliedDrain = "machineconfiguration.openshift.io/lastAppliedDrain"
	// AnnotationCordonedAt is when the drain controller made a node unschedulable, in RFC 3339. The
	// drain controller writes and reads it: a cordon without it is not its own, and it does not end
	// that one. People who want a node to stay cordoned after its update remove it.
	AnnotationCordonedAt = "machineconfiguration.openshift.io/cordoned-at"
	// AnnotationStageImage is the image, by digest, that a node should pull and stage while it runs
	// its workload. The rollout controller writes it before AnnotationDesiredImage; the node agent
	// reads it. It is Layerwright's own: node agents of OpenShift don't know it, and pull when they
	// are drained.
	AnnotationStageImage = "machineconfiguration.openshift.io/stage-image"
	// AnnotationStagedImage is the image, by digest, that a node holds on its disk for its next
	// boot; empty while it holds none. The node agent writes it; the rollout controller lets a node
	// drain that holds the image, and does not wait for one whose agent has never written it.
	AnnotationStagedImage = "machineconfiguration.openshift.io/staged-image"
	// AnnotationStagedChange is what the image of AnnotationStagedImage will do to the node: one of
	// the NodeChange constants; left out where that is not known. The node agent writes it; the
	// rollout controller reads it.
	AnnotationStagedChange = "machineconfiguration.openshift.io/staged-change"
	// AnnotationLiveOnly with the value "true" lets a node change without a drain and a reboot
	// only, because it does not count against maxUnavailable. The rollout controller writes it
	// together with AnnotationDesiredConfig; the node agent reads it, and corrects
	// AnnotationStagedChange where it can't do so. Then the controller removes it when the node's
	// turn has come.
	AnnotationLiveOnly = "machineconfiguration.openshift.io/live-only"
	// AnnotationBootImageVersion is the version of the boot image that a node was installed from.
	// The node agent writes it, where the host says it; the boot image controller reads it. It is
	// Layerwright's own.
	AnnotationBootImageVersion = "machineconfiguration.openshift.io/boot-image-version"
	// AnnotationPreviousConfig and AnnotationPreviousImage are what a node had before it was told
	// to change. The rollout controller writes them together with AnnotationDesiredConfig, and
	// reads them: a node that fails goes back there. AnnotationPreviousImage is left out where the
	// node had the OS image of its configuration.
	AnnotationPreviousConfig = "machineconfiguration.openshift.io/previous-config"
	AnnotationPreviousImage  = "machineconfiguration.openshift.io/previous-image"
	// AnnotationFailedConfig and AnnotationFailedImage are what a node failed with, and
	// AnnotationFailedReason is how. The rollout controller writes them when it rolls the node
	// back, and reads them: the node does not get the same again until AnnotationResumeRollout asks
	// for it.
	AnnotationFailedConfig = "machineconfiguration.openshift.io/failed-config"
	AnnotationFailedImage  = "machineconfiguration.openshift.io/failed-image"
	AnnotationFailedReason = "machineconfiguration.openshift.io/failed-reason"
	// AnnotationRolloutStarted is status.rollout.startTime of the pool as it was when the node was
	// told to change. The rollout controller writes and reads it: nodes that were told in the
	// present rollout are judged, whatever their clocks say.
	AnnotationRolloutStarted = "machineconfiguration.openshift.io/rollout-started"
	// AnnotationFirstPivotConfig is the configuration that a node of a custom pool booted with
	// first. The node agent writes and reads it.
	AnnotationFirstPivotConfig = "machineconfiguration.openshift.io/firstPivotConfig"
	// AnnotationCustomPoolLabelsApplied says that a new node has been given its custom pool's
	// labels. The rollout controller writes and reads it.
	AnnotationCustomPoolLabelsApplied = "machineconfiguration.openshift.io/customPoolLabelsApplied"
)

// UpdateOrderNewestFirst is the value of AnnotationUpdateOrder that lets the newest nodes go first,
// such as where an autoscaler removes the oldest.
const UpdateOrderNewestFirst = "NewestFirst"

// Beginnings of the values of AnnotationDesiredDrain; a hash of what the node is to have follows.
const (
	// DrainPrefix asks for the node to be cordoned and drained.
	DrainPrefix = "drain-"
	// CordonPrefix asks for the node to be cordoned, and its pods to stay. OpenShift's agent writes
	// it on clusters of one node.
	CordonPrefix = "cordon-"
	// UncordonPrefix asks for the node to take pods again.
	UncordonPrefix = "uncordon-"
)

// Values of AnnotationStagedChange.
const (
	// NodeChangeLive means that files change and units are reloaded or restarted, while pods run
	// on.
	NodeChangeLive = "Live"
	// NodeChangeDrain means that pods have to leave, and the node does not reboot.
	NodeChangeDrain = "Drain"
	// NodeChangeSoftReboot means that the node is drained and restarts its user space, and not its
	// kernel.
	NodeChangeSoftReboot = "SoftReboot"
	// NodeChangeReboot means that the node is drained and reboots.
	NodeChangeReboot = "Reboot"
)

// Values of AnnotationState.
const (
	// NodeStateDone means that the node has what it should have.
	NodeStateDone = "Done"
	// NodeStateWorking means that the node is on its way.
	NodeStateWorking = "Working"
	// NodeStateRebooting means that the node is about to boot its new deployment.
	NodeStateRebooting = "Rebooting"
	// NodeStateDegraded means that the node's update failed, and is tried again.
	NodeStateDegraded = "Degraded"
	// NodeStateUnreconcilable means that the node cannot get there from where it is.
	NodeStateUnreconcilable = "Unreconcilable"
)

// Annotations of secrets.
const (
	// AnnotationCanonicalizedSecret marks a copy of a registry secret in the one format that builds
	// use. The build controller writes and reads it.
	AnnotationCanonicalizedSecret = "machineconfiguration.openshift.io/canonicalizedSecret"
	// AnnotationOriginalSecretName is the name of the secret that a canonicalized one is a copy of.
	// The build controller writes it; people read it.
	AnnotationOriginalSecretName = "machineconfiguration.openshift.io/originalSecretName"
)

// Annotations of objects that concern boot images.
const (
	// AnnotationBootImageOptedInAt is when boot image updates were turned on, on the
	// MachineConfiguration. The boot image controller writes it; people read it.
	AnnotationBootImageOptedInAt = "machineconfiguration.openshift.io/boot-image-updates-opted-in-at"
	// AnnotationStubIgnitionUpgradedTo is the Ignition version that a user-data secret was
	// converted to. The boot image controller writes and reads it.
	AnnotationStubIgnitionUpgradedTo = "machineconfiguration.openshift.io/stub-ignition-upgraded-to"
	// AnnotationStubIgnitionUpgradedAt is when that was. The boot image controller writes it;
	// people read it.
	AnnotationStubIgnitionUpgradedAt = "machineconfiguration.openshift.io/stub-ignition-upgraded-at"
	// AnnotationBootImagePin keeps a machine resource at an earlier boot image: its value is
	// bootImageVersion or image of an entry of the resource's BootImageHistory. People write it;
	// the boot image controller reads it. Without it the resource follows its stream.
	AnnotationBootImagePin = "machineconfiguration.openshift.io/boot-image-pinned-to"
	// AnnotationBootImageUserData is "managed" on a machine resource whose machines are to start
	// with the user-data secret "<name>-managed" instead of "<name>". People write it; the boot
	// image controller reads it.
	AnnotationBootImageUserData = "machineconfiguration.openshift.io/boot-image-user-data"
)

// Annotations of ConfigMaps that bootc's own tools read. Layerwright reads them where it renders
// configuration from such ConfigMaps; people write them.
const (
	// AnnotationConfigMapPool is the MachineConfigPool that a ConfigMap of files is for.
	AnnotationConfigMapPool = "machineconfiguration.openshift.io/machineConfigPool"
	// AnnotationConfigMapNode is the MachineConfigNode that a ConfigMap of files is for.
	AnnotationConfigMapNode = "machineconfiguration.openshift.io/machineConfigNode"
)
