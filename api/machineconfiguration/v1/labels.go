package v1

// Labels that people write, and controllers read.
const (
	// LabelRole is the role that a MachineConfig is for, such as worker. People and controllers
	// write it on MachineConfigs; a pool's machineConfigSelector selects by it.
	LabelRole = "machineconfiguration.openshift.io/role"
	// LabelOSStream is the stream that an object is for. On a MachineSet it is the one that
	// machines start with: people and the installer write it, and the boot image controller reads
	// it to choose the boot image. On a MachineConfig, people write it; pools on another stream
	// leave the MachineConfig out, and those on this one join it after all that have no such label.
	LabelOSStream = "machineconfiguration.openshift.io/osstream"
	// LabelNodeOSID is ID of /etc/os-release of the stream that a Node is on, as the stream's
	// nodeLabels say. The node label controller writes it where no one else has; people select
	// nodes by it.
	LabelNodeOSID = "node.openshift.io/ID"
	// LabelNodeOSVersionID is VERSION_ID, in the same way.
	LabelNodeOSVersionID = "node.openshift.io/version_ID"
	// LabelLayeringEnabled turned a pool into a layered one before there were MachineOSConfigs.
	// People may still write it; Layerwright ignores it, also where it would make the
	// machine-config-operator ignore other pools.
	LabelLayeringEnabled = "machineconfiguration.openshift.io/layering-enabled"
)

// Labels of a MachineOSBuild, and of the objects that exist for one. The build controller writes
// all of them; it finds its objects by them, and so do people and tools.
const (
	// LabelOnClusterLayering marks everything that belongs to image builds.
	LabelOnClusterLayering = "machineconfiguration.openshift.io/on-cluster-layering"
	// LabelEphemeralBuildObject marks objects that are removed after their build.
	LabelEphemeralBuildObject = "machineconfiguration.openshift.io/ephemeral-build-object"
	// LabelRenderedMachineConfig is the rendered MachineConfig that goes into the image.
	LabelRenderedMachineConfig = "machineconfiguration.openshift.io/rendered-machine-config"
	// LabelTargetMachineConfigPool is the pool that the image is for; `kubectl get machineosbuild`
	// shows it.
	LabelTargetMachineConfigPool = "machineconfiguration.openshift.io/target-machine-config-pool"
	// LabelMachineOSBuild is the MachineOSBuild that an object exists for.
	LabelMachineOSBuild = "machineconfiguration.openshift.io/machine-os-build"
	// LabelMachineOSConfig is the MachineOSConfig that asked for the build.
	LabelMachineOSConfig = "machineconfiguration.openshift.io/machine-os-config"
	// LabelRenderedImagePushSecret is the secret that the image is pushed with.
	LabelRenderedImagePushSecret = "machineconfiguration.openshift.io/rendered-image-push-secret"
	// LabelBuildImageTag is the tag of the image that a PipelineRun builds. The controller writes
	// it, for people.
	LabelBuildImageTag = "machineconfiguration.openshift.io/build-image-tag"
	// LabelJobUID is the UID of the Job that builds.
	LabelJobUID = "machineconfiguration.openshift.io/job-uid"
	// LabelPreBuiltImage marks the build that stands for an image which the installer has built.
	LabelPreBuiltImage = "machineconfiguration.openshift.io/pre-built-image"
)

// Labels of the optional inputs that a build was given. The build controller writes them on the
// build's objects; people read them.
const (
	// LabelHasEntitlement means that the build had the Secret etc-pki-entitlement-<pool>.
	LabelHasEntitlement = "machineconfiguration.openshift.io/has-etc-pki-entitlement"
	// LabelHasYumRepos means that the build had the ConfigMap etc-yum-repos-d.
	LabelHasYumRepos = "machineconfiguration.openshift.io/has-etc-yum-repos-d"
	// LabelHasRPMGPGKeys means that the build had the Secret etc-pki-rpm-gpg.
	LabelHasRPMGPGKeys = "machineconfiguration.openshift.io/has-etc-pki-rpm-gpg"
)

// Labels of images, not of Kubernetes objects. Whoever builds the OS image writes them; the stream
// controller reads them.
const (
	// ImageLabelStream is the name of the stream that an OS image or extensions image belongs to.
	ImageLabelStream = "io.openshift.os.streamclass"
	// ImageLabelExtensions with the value "true" marks an extensions image.
	ImageLabelExtensions = "io.openshift.os.extensions"
	// ImageLabelBootc with the value "1" or "true" marks a bootable OS image.
	ImageLabelBootc = "containers.bootc"
	// ImageLabelRelease is the release that the image is part of.
	ImageLabelRelease = "io.openshift.release"
)

// Labels, and annotations, of the images that Layerwright makes: what is in them and where it is
// from. The builder writes them; it reads ImageLabelBuildKey, people and other tools the rest.
const (
	// ImageLabelBuildKey identifies everything in the image. An image is taken for the one that a
	// build wants only if it says so itself.
	ImageLabelBuildKey = "layerwright.io/build-key"
	// ImageLabelTrial is the stream that the image was made for to try it. No node gets such an
	// image.
	ImageLabelTrial = "layerwright.io/trial"
	// ImageLabelContentKey identifies everything in the image but its configuration.
	ImageLabelContentKey = "layerwright.io/content-key"
	// ImageLabelContainerfileHash is the SHA-256 over the administrator's Containerfiles; left out
	// where there are none.
	ImageLabelContainerfileHash = "layerwright.io/containerfile-hash"
	// ImageLabelBaseDigest is the digest of the OS image.
	ImageLabelBaseDigest = "layerwright.io/base-digest"
	// ImageLabelMachineConfig is the rendered MachineConfig in the image. This and the next two are
	// openshift/machine-config-operator's.
	ImageLabelMachineConfig = "machineconfig"
	// ImageLabelMachineConfigPool is the pool that the image was made for.
	ImageLabelMachineConfigPool = "machineconfigpool"
	// ImageLabelBaseImage is the OS image by digest.
	ImageLabelBaseImage = "baseOSContainerImage"
)

// The annotation of layers in OCI manifests. The builder writes it, for people and tools that look
// at manifests only.
const (
	// ImageAnnotationLayer says what a layer is, where it is one of Layerwright's.
	ImageAnnotationLayer = "layerwright.io/layer"
	// ImageLayerConfiguration is its value on the layer that has a pool's configuration.
	ImageLayerConfiguration = "configuration"
)

// TaintUpdateInProgress is the taint, with the effect PreferNoSchedule, on nodes that are still to
// be updated. The rollout controller writes and removes it, so that pods move to updated nodes
// where they can.
const TaintUpdateInProgress = "UpdateInProgress"

// Names of objects of which there is one.
const (
	// OSImageStreamName is the name of the OSImageStream.
	OSImageStreamName = "cluster"
	// PoolMaster is the pool of the control plane.
	PoolMaster = "master"
	// PoolWorker is the pool of all other nodes, whose configuration custom pools join.
	PoolWorker = "worker"
	// PoolArbiter is the pool of arbiter nodes.
	PoolArbiter = "arbiter"
)

// IsCustomPool reports whether a pool of the given name is one that an administrator adds, as
// opposed to master, worker and arbiter.
func IsCustomPool(name string) bool {
	return name != PoolMaster && name != PoolWorker && name != PoolArbiter
}
