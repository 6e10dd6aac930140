package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineOSBuild is one build of a MachineOSConfig's image. Layerwright creates it, and what it was
// asked to build never changes. What becomes known after its end (signed, rolled out, removed) is
// said by the MachineOSImage and the MachineOSConfig.
//
// Published in github.com/openshift/api machineconfiguration/v1. Added are the builder Pipeline,
// decision in spec, and in status architectures, changedInputs, why, contentKey, buildKey and
// duration.
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineosbuilds,scope=Cluster,shortName=mosb
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=openshift.io/operator-managed=
// +kubebuilder:printcolumn:name=Prepared,JSONPath=.status.conditions[?(@.type=="Prepared")].status,type=string
// +kubebuilder:printcolumn:name=Building,JSONPath=.status.conditions[?(@.type=="Building")].status,type=string
// +kubebuilder:printcolumn:name=Succeeded,JSONPath=.status.conditions[?(@.type=="Succeeded")].status,type=string
// +kubebuilder:printcolumn:name=Interrupted,JSONPath=.status.conditions[?(@.type=="Interrupted")].status,type=string
// +kubebuilder:printcolumn:name=Failed,JSONPath=.status.conditions[?(@.type=="Failed")].status,type=string
// +kubebuilder:printcolumn:name=Age,JSONPath=.metadata.creationTimestamp,type=date
// +kubebuilder:printcolumn:name=Duration,JSONPath=.status.duration,type=string,description="Time from start to end"
// +kubebuilder:printcolumn:name=Pool,JSONPath=.metadata.labels.machineconfiguration\.openshift\.io/target-machine-config-pool,type=string,priority=1
// +kubebuilder:printcolumn:name=State,JSONPath=.status.conditions[?(@.type=="Ready")].reason,type=string,priority=1,description="How far the build is"
// +kubebuilder:printcolumn:name=Why,JSONPath=.status.why,type=string,priority=1,description="What changed since the build before"
type MachineOSBuild struct {
	metav1.TypeMeta `json:",inline"`

	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is to be built. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="machineOSBuildSpec is immutable once set"
	// +required
	Spec MachineOSBuildSpec `json:"spec"`

	// status is how far the build is.
	// +optional
	Status MachineOSBuildStatus `json:"status,omitempty"`
}

// MachineOSBuildSpec is what is to be built.
type MachineOSBuildSpec struct {
	// machineConfig is the rendered MachineConfig that goes into the image.
	// +required
	MachineConfig MachineConfigReference `json:"machineConfig"`

	// machineOSConfig is the MachineOSConfig whose image this is.
	// +required
	MachineOSConfig MachineOSConfigReference `json:"machineOSConfig"`

	// renderedImagePushSpec is where the image is pushed to, as host[:port][/path ...]/name:tag
	// with the tag of this build. At most 447 characters.
	// +required
	RenderedImagePushSpec ImageTagFormat `json:"renderedImagePushSpec"`

	// decision is what Layerwright decided to make, and of what. The build makes exactly that.
	// Layerwright leaves a build alone that has none, since someone else requested it. Builds of
	// earlier versions say it in annotations.
	// +optional
	Decision *BuildDecision `json:"decision,omitempty"`
}

// BuildAction is how an image is made: Reuse, Append or Build.
// +kubebuilder:validation:Enum=Reuse;Append;Build
type BuildAction string

const (
	// BuildActionReuse takes an image that is in the registry already.
	BuildActionReuse BuildAction = "Reuse"
	// BuildActionAppend puts the configuration on an image that is in a registry.
	BuildActionAppend BuildAction = "Append"
	// BuildActionBuild builds the content in pods first.
	BuildActionBuild BuildAction = "Build"
)

// BuildDecision is what a build is to make, and with what.
type BuildDecision struct {
	// action is how the image is made: Reuse takes one that is in the registry, Append puts the
	// configuration on an image, and Build builds the content in pods first.
	// +optional
	Action BuildAction `json:"action,omitempty"`

	// cause is why there is a build though no input differs: RebuildRequested or ImageMissing.
	// +optional
	Cause BuildInput `json:"cause,omitempty"`

	// buildKey identifies everything in the image. The build ends where its inputs give another.
	// +required
	// +kubebuilder:validation:MaxLength=128
	BuildKey string `json:"buildKey"`

	// contentKey identifies everything in the image but its configuration.
	// +required
	// +kubebuilder:validation:MaxLength=128
	ContentKey string `json:"contentKey"`

	// baseImage is the OS image, by digest: what the name in the stream or the MachineOSConfig
	// stood for. For several architectures, it is the index.
	// +required
	BaseImage ImageDigestFormat `json:"baseImage"`

	// osImageStream is the stream of the base image. It is omitted where that is of none.
	// +optional
	OSImageStream string `json:"osImageStream,omitempty"`

	// extensionsImage is the image that extensions and kernels come from, by digest. It is omitted
	// where there is none.
	// +optional
	ExtensionsImage ImageDigestFormat `json:"extensionsImage,omitempty"`

	// contentImage is the tag of the image that the configuration is put onto, where that has to be
	// built. Builds with the same one share it.
	// +optional
	ContentImage string `json:"contentImage,omitempty"`

	// registryAccess identifies the versions of the secrets that the build was requested with. A
	// build that a registry denied something is made again when they have changed.
	// +optional
	RegistryAccess string `json:"registryAccess,omitempty"`

	// baseImagePullSecret is the secret that the base image is pulled with. It is omitted where
	// there is none.
	// +optional
	BaseImagePullSecret string `json:"baseImagePullSecret,omitempty"`

	// renderedImagePushSecret is the secret that the image is pushed with. The image is removed
	// with it when the MachineOSConfig is gone.
	// +optional
	RenderedImagePushSecret string `json:"renderedImagePushSecret,omitempty"`

	// imageDeletion is spec.retention.imageDeletion of the MachineOSConfig. It counts when that is
	// gone.
	// +optional
	ImageDeletion Switch `json:"imageDeletion,omitempty"`

	// inputsLevel is how much was left out of inputs, so that they fit: 0 is nothing, 1 has a hash
	// in place of each Containerfile, and 2 has one hash for all of the configuration too.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2
	InputsLevel int32 `json:"inputsLevel,omitempty"`

	// inputs are everything that the image is made of. The next build is compared with them.
	// +required
	Inputs ImageInputs `json:"inputs"`
}

// ImageInputs are everything that decides what an image holds, by content: no names of secrets,
// rendered MachineConfigs or pools are among them, so that renaming one of those changes no key.
type ImageInputs struct {
	// base is the digest of the OS image: of the index where there is one.
	// +required
	// +kubebuilder:validation:MaxLength=128
	Base string `json:"base"`

	// architectures are those that the image is for, in any order, where the OS image is for
	// several; else there are none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	Architectures []Architecture `json:"architectures,omitempty"`

	// extensions is the digest of the extensions image. It is omitted where nothing is taken from
	// one.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Extensions string `json:"extensions,omitempty"`

	// extensionNames are the package sets that are installed from it, in any order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	ExtensionNames []string `json:"extensionNames,omitempty"`

	// kernelType is the kernel to run; when omitted, it is default.
	// +optional
	KernelType string `json:"kernelType,omitempty"`

	// containerfiles are the administrator's, one for each architecture that has one; that of all
	// others is for NoArch.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Containerfiles []InputContainerfile `json:"containerfiles,omitempty"`

	// buildInputs are what RUN lines can see beside images: entitlements, package repositories,
	// keys, files of the build context.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	BuildInputs []InputItem `json:"buildInputs,omitempty"`

	// config is what the rendered MachineConfig puts into the image.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	Config []InputItem `json:"config,omitempty"`

	// configVersion is the version of the way in which a layer is made of config.
	// +optional
	ConfigVersion int `json:"configVersion,omitempty"`
}

// InputContainerfile is the administrator's text for one architecture.
type InputContainerfile struct {
	// arch is the architecture, or NoArch.
	// +required
	Arch ContainerfileArch `json:"arch"`

	// text is the Containerfile, or a hash of it.
	// +required
	Text string `json:"text"`
}

// InputItem is one thing among the inputs.
type InputItem struct {
	// name says what it is in words, such as "file /etc/chrony.conf".
	// +required
	Name string `json:"name"`

	// hash is over its content and everything else that gets into the image with it, such as mode
	// and owner.
	// +required
	Hash string `json:"hash"`
}

// MachineOSBuildStatus is how far a build is.
// +kubebuilder:validation:XValidation:rule="has(self.buildEnd) ? has(self.buildStart) && timestamp(self.buildStart) < timestamp(self.buildEnd) : true",message="buildEnd must be after buildStart"
type MachineOSBuildStatus struct {
	// conditions are Prepared, Building, Failed, Interrupted and Succeeded, and Ready, Reconciling
	// and Stalled; the reason of Ready is the build's state. At most 8. Once Failed, Interrupted or
	// Succeeded is True, none can be changed.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="oldSelf.exists(x, x.type=='Failed' && x.status=='True') ? self==oldSelf : true",message="once a Failed condition is set, conditions are immutable"
	// +kubebuilder:validation:XValidation:rule="oldSelf.exists(x, x.type=='Interrupted' && x.status=='True') ? self==oldSelf : true",message="once an Interrupted condition is set, conditions are immutable"
	// +kubebuilder:validation:XValidation:rule="oldSelf.exists(x, x.type=='Succeeded' && x.status=='True') ? self==oldSelf : true",message="once an Succeeded condition is set, conditions are immutable"
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// builder is the object that does the building.
	// +optional
	Builder *MachineOSBuilderReference `json:"builder,omitempty"`

	// relatedObjects are ConfigMaps and Secrets that exist for this build. They are removed after
	// success, and with the MachineOSBuild; after a failure they stay, for someone to look at. At
	// most 10.
	// +kubebuilder:validation:MaxItems=10
	// +listType=map
	// +listMapKey=name
	// +listMapKey=resource
	// +optional
	RelatedObjects []RelatedObject `json:"relatedObjects,omitempty"`

	// buildStart is when the builder was started. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="buildStart is immutable once set"
	// +optional
	BuildStart *metav1.Time `json:"buildStart,omitempty"`

	// buildEnd is when the build succeeded, failed or was interrupted, at least one second after
	// buildStart. It cannot be changed. While it is omitted, the build has not ended.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="buildEnd is immutable once set"
	// +optional
	BuildEnd *metav1.Time `json:"buildEnd,omitempty"`

	// digestedImagePushSpec is the image that was built and pushed, by digest; for several
	// architectures, the index of all.
	// +optional
	DigestedImagePushSpec ImageDigestFormat `json:"digestedImagePushSpec,omitempty"`

	// architectures are the results of each architecture. They are omitted for a build of one.
	// +optional
	// +listType=map
	// +listMapKey=architecture
	// +kubebuilder:validation:MaxItems=4
	Architectures []ArchitectureBuild `json:"architectures,omitempty"`

	// pulledImages are the images that the content was built with, beside the base image and the
	// extensions image, by digest: what the names in the Containerfile stood for. Content that was
	// built before keeps those that it was built with. At most 128; pulledImagesMissing counts
	// those that are not listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	PulledImages []PulledImage `json:"pulledImages,omitempty"`

	// pulledImagesMissing is how many more images were pulled that pulledImages has no room for, or
	// that the build pod did not name by digest. Its report has room for some 14. The provenance
	// says the same number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PulledImagesMissing int32 `json:"pulledImagesMissing,omitempty"`

	// changedInputs are the inputs that differ from the build before: FirstBuild, BaseImage,
	// ExtensionsImage, Extensions, KernelType, Containerfile, BuildInputs, MachineConfig,
	// ImageMissing or RebuildRequested.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	ChangedInputs []BuildInput `json:"changedInputs,omitempty"`

	// why is changedInputs in a few words, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Why string `json:"why,omitempty"`

	// removal says why a build that is being deleted is still there: its image is being removed
	// from the registry, or what is in the way, and until when it is tried again.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Removal string `json:"removal,omitempty"`

	// contentKey identifies everything in the image but its configuration. Two builds with the same
	// one share their layers.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ContentKey string `json:"contentKey,omitempty"`

	// buildKey identifies everything in the image, its configuration included. A build is only
	// needed where no image has it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	BuildKey string `json:"buildKey,omitempty"`

	// poolTag is WhenReady where the build has left the tag with the pool's name to the image
	// before, since images are signed or verified: the tag moves when the image is ready to be
	// rolled out. When it is omitted, the build has moved it.
	// +optional
	PoolTag PoolTagPolicy `json:"poolTag,omitempty"`

	// duration is the time from buildStart to buildEnd, such as "3m12s", for people.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Duration string `json:"duration,omitempty"`
}

// PoolTagPolicy is when the tag of a pool moves to an image.
// +kubebuilder:validation:Enum=WhenReady
type PoolTagPolicy string

// PoolTagWhenReady means that it moves when the image is ready to be rolled out.
const PoolTagWhenReady PoolTagPolicy = "WhenReady"

// BuildInput is something that an image is built from, or another cause of a build.
// +kubebuilder:validation:Enum=FirstBuild;BaseImage;ExtensionsImage;Extensions;KernelType;Containerfile;BuildInputs;MachineConfig;ImageMissing;RebuildRequested
type BuildInput string

const (
	// BuildInputFirstBuild means that the pool has had no build.
	BuildInputFirstBuild BuildInput = "FirstBuild"
	// BuildInputBaseImage is the digest of the base image.
	BuildInputBaseImage BuildInput = "BaseImage"
	// BuildInputExtensionsImage is the digest of the extensions image.
	BuildInputExtensionsImage BuildInput = "ExtensionsImage"
	// BuildInputExtensions is the list of extensions.
	BuildInputExtensions BuildInput = "Extensions"
	// BuildInputKernelType is the kernel.
	BuildInputKernelType BuildInput = "KernelType"
	// BuildInputContainerfile is the administrator's Containerfile.
	BuildInputContainerfile BuildInput = "Containerfile"
	// BuildInputBuildInputs are the optional secrets and ConfigMaps that a build reads, such as
	// repositories and entitlements.
	BuildInputBuildInputs BuildInput = "BuildInputs"
	// BuildInputMachineConfig is the content of the rendered MachineConfig; alone it costs one
	// appended layer.
	BuildInputMachineConfig BuildInput = "MachineConfig"
	// BuildInputImageMissing means that the registry no longer has the image.
	BuildInputImageMissing BuildInput = "ImageMissing"
	// BuildInputRebuildRequested means that someone asked, with an annotation.
	BuildInputRebuildRequested BuildInput = "RebuildRequested"
)

// PulledImage is an image that a build pulled for one architecture.
type PulledImage struct {
	// name is the image as the Containerfile names it, with variables expanded.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name"`

	// image is what that stood for, by digest: the index where there was one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image"`

	// architecture that it was pulled for: AMD64, ARM64, PPC64LE or S390X.
	// +required
	Architecture Architecture `json:"architecture"`

	// manifestDigest is the digest of the image for the architecture, which is that in image where
	// there was no index. It is omitted where it is not known.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	ManifestDigest string `json:"manifestDigest,omitempty"`
}

// ArchitectureBuild is the result of one architecture of a build.
type ArchitectureBuild struct {
	// architecture that was built for: AMD64, ARM64, PPC64LE or S390X.
	// +required
	Architecture Architecture `json:"architecture"`

	// state is how far this architecture is.
	// +required
	State ArchitectureBuildState `json:"state"`

	// digestedImagePushSpec is the image of this architecture, by digest. It is omitted until it
	// has been pushed.
	// +optional
	DigestedImagePushSpec ImageDigestFormat `json:"digestedImagePushSpec,omitempty"`

	// message is what went wrong, with file, line and the last lines of output. It is empty when
	// all is well. At most 4096 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}

// ArchitectureBuildState is how far the build of one architecture is: Pending, Building, Succeeded
// or Failed.
// +kubebuilder:validation:Enum=Pending;Building;Succeeded;Failed
type ArchitectureBuildState string

const (
	// ArchitecturePending has not started.
	ArchitecturePending ArchitectureBuildState = "Pending"
	// ArchitectureBuilding is under way.
	ArchitectureBuilding ArchitectureBuildState = "Building"
	// ArchitectureSucceeded has been pushed.
	ArchitectureSucceeded ArchitectureBuildState = "Succeeded"
	// ArchitectureFailed has failed, and with it the build.
	ArchitectureFailed ArchitectureBuildState = "Failed"
)

// MachineOSBuilderReference names the object that does the building.
// +kubebuilder:validation:XValidation:rule="has(self.imageBuilderType) && self.imageBuilderType == 'Job' ?  has(self.job) : !has(self.job)",message="job is required when imageBuilderType is Job, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="!has(self.pipelineRun) || self.imageBuilderType == 'Pipeline'",message="pipelineRun is forbidden unless imageBuilderType is Pipeline"
type MachineOSBuilderReference struct {
	// imageBuilderType is Job or Pipeline, as the MachineOSConfig said.
	// +required
	ImageBuilderType MachineOSImageBuilderType `json:"imageBuilderType"`

	// job is the Job that builds. Required when imageBuilderType is Job, forbidden otherwise.
	// +optional
	Job *ObjectReference `json:"job,omitempty"`

	// pipelineRun is the Tekton PipelineRun that builds. Forbidden unless imageBuilderType is
	// Pipeline.
	// +optional
	PipelineRun *ObjectReference `json:"pipelineRun,omitempty"`
}

// MachineOSBuildList is a list of MachineOSBuilds.
// +kubebuilder:object:root=true
type MachineOSBuildList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata of the list.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the MachineOSBuilds.
	// +optional
	Items []MachineOSBuild `json:"items,omitempty"`
}

// RelatedObject names an object that exists for a build. It is the published ObjectReference, whose
// rules refuse the group of ConfigMaps.
type RelatedObject struct {
	// group is the API group, such as "batch"; empty for ConfigMaps and Secrets.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || !format.dns1123Subdomain().validate(self).hasValue()",message="a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	// +required
	Group string `json:"group"`
	// resource is the plural name of the kind, such as "configmaps": at most 63 lowercase letters,
	// digits and hyphens, starting with a letter.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1035Label().validate(self).hasValue()",message="a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character"
	// +required
	Resource string `json:"resource"`
	// namespace is that of the object; omitted for objects without one.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="the value must consist of only lowercase alphanumeric characters and hyphens"
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name is that of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	// +required
	Name string `json:"name"`
}
