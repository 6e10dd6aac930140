package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineOSConfig asks for an OS image of one pool's own: the pool's stream base image, its
// rendered MachineConfig and the administrator's Containerfile in one image, built in the cluster,
// pushed, signed, and rolled out to the pool's nodes. Deleting it returns the pool to its stream's
// image.
//
// Published in github.com/openshift/api machineconfiguration/v1. Added are the builder Pipeline,
// configMapRef and longer content of Containerfiles, the base and extensions image,
// currentImagePullSecret, postBuildStrategy, the build... fields, verification, retention, and in
// status osImageStream and shortDigest.
//
// One per pool: its name is the pool's, which the schema keeps.
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineosconfigs,scope=Cluster,shortName=mosc
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=openshift.io/operator-managed=
// +kubebuilder:printcolumn:name=Stream,JSONPath=.status.osImageStream.name,type=string,description="Stream of the current image's base"
// +kubebuilder:printcolumn:name=Image,JSONPath=.status.shortDigest,type=string,description="Digest of the current image"
// +kubebuilder:printcolumn:name=Ready,JSONPath=.status.conditions[?(@.type=="Ready")].status,type=string,description="Whether the current image is what spec asks for"
// +kubebuilder:printcolumn:name=Reason,JSONPath=.status.conditions[?(@.type=="Ready")].reason,type=string
// +kubebuilder:printcolumn:name=Age,JSONPath=.metadata.creationTimestamp,type=date
// +kubebuilder:printcolumn:name=Pool,JSONPath=.spec.machineConfigPool.name,type=string,priority=1
// +kubebuilder:printcolumn:name=Build,JSONPath=.status.machineOSBuild.name,type=string,priority=1,description="Newest build"
// +kubebuilder:printcolumn:name=Message,JSONPath=.status.conditions[?(@.type=="Ready")].message,type=string,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.machineConfigPool.name || oldSelf.hasValue() && oldSelf.spec.machineConfigPool.name.value() == self.spec.machineConfigPool.name",optionalOldSelf=true,message="MachineOSConfig name must match the referenced MachineConfigPool name; can only have one MachineOSConfig per MachineConfigPool"
type MachineOSConfig struct {
	metav1.TypeMeta `json:",inline"`

	// metadata of the object; its name is the pool's.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what an administrator asks for.
	// +required
	Spec MachineOSConfigSpec `json:"spec"`

	// status is the current image and what is being done.
	// +optional
	Status MachineOSConfigStatus `json:"status,omitempty"`
}

// MachineOSConfigSpec is what an administrator asks of a pool's image.
type MachineOSConfigSpec struct {
	// machineConfigPool is the pool that the image is for. A pool that does not exist yet is waited
	// for.
	// +required
	MachineConfigPool MachineConfigPoolReference `json:"machineConfigPool"`

	// imageBuilder is what builds the image.
	// +required
	ImageBuilder MachineOSImageBuilder `json:"imageBuilder"`

	// baseImagePullSecret is the secret for pulling the base image, the extensions image and every
	// image that the Containerfile names. When it is omitted, the cluster's global pull secret on
	// OpenShift, and none elsewhere. The build's RUN lines never see it.
	// +optional
	BaseImagePullSecret *ImageSecretObjectReference `json:"baseImagePullSecret,omitempty"`

	// renderedImagePushSecret is the secret for pushing the built image. It needs write access to
	// the repository of renderedImagePushSpec and is used in the cluster only, never on nodes; the
	// build's RUN lines never see it. Before a build starts, the access is tried, and a refusal is
	// reported in the condition Ready.
	// +required
	RenderedImagePushSecret ImageSecretObjectReference `json:"renderedImagePushSecret"`

	// renderedImagePushSpec is the repository that the image is pushed to, with a tag:
	// host[:port][/path ...]/name:tag, or name.namespace.svc:port/repository/name:tag for a
	// registry in the cluster. The tag has to be there and is not used: images are tagged with the
	// pool's name and the build's key, and are rolled out by digest. A host without a dot needs a
	// port. At most 447 characters.
	// +required
	RenderedImagePushSpec ImageTagFormat `json:"renderedImagePushSpec"`

	// containerFile is what the administrator adds to the image, one entry per architecture, at
	// most 4. An entry for a node's own architecture wins over NoArch. When it is omitted, the
	// image is base and configuration alone.
	// +patchMergeKey=containerfileArch
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=containerfileArch
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Containerfile []MachineOSContainerfile `json:"containerFile,omitempty" patchStrategy:"merge" patchMergeKey:"containerfileArch"`

	// baseOSImagePullSpec is the image to build on, by tag or digest, instead of the OS image of
	// the pool's stream. A tag is followed. An image that is no bootable OS image is refused before
	// a build starts. When it is omitted, the pool's OS image.
	// +optional
	BaseOSImagePullSpec ImageReferenceFormat `json:"baseOSImagePullSpec,omitempty"`

	// baseOSExtensionsImagePullSpec is the image to install extensions and kernels from, by tag or
	// digest, instead of the extensions image of the pool's stream. It has to belong to the base
	// image. When it is omitted, the pool's extensions image.
	// +optional
	BaseOSExtensionsImagePullSpec ImageReferenceFormat `json:"baseOSExtensionsImagePullSpec,omitempty"`

	// currentImagePullSecret is the secret that nodes pull the built image with. It should have
	// read access only: it lies on every node of the pool. When it is omitted, nodes use what they
	// are configured with.
	// +optional
	CurrentImagePullSecret *ImageSecretObjectReference `json:"currentImagePullSecret,omitempty"`

	// postBuildStrategy is what follows a successful build: ImagePushAndRollout updates the pool's
	// nodes, ImagePushOnly leaves them alone until a MachineConfigPool names the image or this
	// field changes. When it is omitted, ImagePushAndRollout. The annotation
	// machineconfiguration.openshift.io/noRollout has the effect of ImagePushOnly.
	// +optional
	PostBuildStrategy PostBuildStrategy `json:"postBuildStrategy,omitempty"`

	// buildResources are the CPU, memory and ephemeral storage of the build's containers. When it
	// is omitted, 250m CPU, 512Mi memory and 8Gi ephemeral storage are requested, and 4Gi and 40Gi
	// are the limits of the latter two. Changing it starts no build.
	// +optional
	BuildResources *BuildResources `json:"buildResources,omitempty"`

	// buildPlacement is where builds run. When it is omitted, on any node of the image's
	// architecture.
	// +optional
	BuildPlacement *BuildPlacement `json:"buildPlacement,omitempty"`

	// buildRetryLimit is how often a build that failed for a reason outside of the Containerfile is
	// tried again, 0 to 10: a node that went away, a registry that did not answer. A RUN line that
	// fails is never retried. When it is omitted, a build in a pod is tried again 3 times, and
	// appending configuration in the registry, which is cheap, until it succeeds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	BuildRetryLimit *int32 `json:"buildRetryLimit,omitempty"`

	// buildTimeout is how long one attempt may take, from 1m to 24h, such as "90m"; after that the
	// build has failed. When it is omitted, 2h in a pod; appending configuration in the registry is
	// then begun anew after 10 minutes, with what is uploaded.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="buildTimeout must be from 1m to 24h, as numbers with the units s, m or h, such as 90m or 1h30m"
	BuildTimeout string `json:"buildTimeout,omitempty"`

	// verification is a test of the administrator's own that a built image has to pass before it is
	// rolled out. When it is omitted, there is none.
	// +optional
	Verification *ImageVerification `json:"verification,omitempty"`

	// retention is how many builds and images are kept. When it is omitted, three successful builds
	// and one failed build, beside those that nodes use.
	// +optional
	Retention *Retention `json:"retention,omitempty"`
}

// MachineOSImageBuilder is what builds images.
// +kubebuilder:validation:XValidation:rule="self.imageBuilderType == 'Pipeline' || !has(self.pipeline)",message="pipeline is forbidden unless imageBuilderType is Pipeline"
type MachineOSImageBuilder struct {
	// imageBuilderType is Job, a Kubernetes Job, or Pipeline, a Tekton PipelineRun. Both run the
	// same steps. On a cluster without Tekton, Pipeline waits and says so in the condition Ready.
	// +kubebuilder:validation:Enum:=Job;Pipeline
	// +required
	ImageBuilderType MachineOSImageBuilderType `json:"imageBuilderType"`

	// pipeline is a Tekton Pipeline of your own in the namespace that Layerwright runs in, which
	// keeps the contract of parameters, workspaces and results in docs/pipelines.md. Forbidden
	// unless imageBuilderType is Pipeline. When it is omitted, the one that comes with Layerwright.
	// +optional
	Pipeline *PipelineReference `json:"pipeline,omitempty"`
}

// MachineOSImageBuilderType is a way to build images.
type MachineOSImageBuilderType string

const (
	// JobBuilder builds with a Kubernetes Job.
	JobBuilder MachineOSImageBuilderType = "Job"
	// PipelineBuilder builds with a Tekton PipelineRun.
	PipelineBuilder MachineOSImageBuilderType = "Pipeline"
)

// MachineOSContainerfile is what an administrator adds to the image of one architecture.
// +kubebuilder:validation:XValidation:rule="has(self.content) || has(self.configMapRef)",message="content or configMapRef is required"
// +kubebuilder:validation:XValidation:rule="!(has(self.content) && has(self.configMapRef))",message="content and configMapRef are mutually exclusive: the Containerfile is in one place"
type MachineOSContainerfile struct {
	// containerfileArch is the architecture that the Containerfile is for: ARM64, AMD64, PPC64LE,
	// S390X, or NoArch for all that have no entry of their own. When it is omitted, NoArch.
	// +kubebuilder:validation:Enum:=ARM64;AMD64;PPC64LE;S390X;NoArch
	// +kubebuilder:default:=NoArch
	// +optional
	ContainerfileArch ContainerfileArch `json:"containerfileArch,omitempty"`

	// content is the Containerfile, at most 65536 characters. Its last stage has to start from
	// "os-base-image" (the configuration is added after it, so that a change of configuration costs
	// no build) or from "os-base-image-with-configs", also called "configs" (its RUN lines see the
	// configuration). A file that cannot be built is reported with its line in the condition Ready.
	// Exactly one of content and configMapRef.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	Content *string `json:"content,omitempty"`

	// configMapRef is a ConfigMap that holds the Containerfile, under the key "Containerfile" when
	// none is named, and the files that its COPY and ADD lines take from the build context under
	// their own keys. A change of the ConfigMap is a change of the Containerfile. Exactly one of
	// content and configMapRef.
	// +optional
	ConfigMapRef *ConfigMapKeyReference `json:"configMapRef,omitempty"`
}

// ContainerfileArch is an architecture that a Containerfile is for.
type ContainerfileArch string

const (
	// Arm64 is GOARCH arm64.
	Arm64 ContainerfileArch = "ARM64"
	// Amd64 is GOARCH amd64.
	Amd64 ContainerfileArch = "AMD64"
	// Ppc is GOARCH ppc64le.
	Ppc ContainerfileArch = "PPC64LE"
	// S390 is GOARCH s390x.
	S390 ContainerfileArch = "S390X"
	// NoArch is every architecture without a Containerfile of its own.
	NoArch ContainerfileArch = "NoArch"
)

// PostBuildStrategy is what follows a successful build.
// +kubebuilder:validation:Enum=ImagePushOnly;ImagePushAndRollout
type PostBuildStrategy string

const (
	// ImagePushOnly leaves nodes alone.
	ImagePushOnly PostBuildStrategy = "ImagePushOnly"
	// ImagePushAndRollout updates the pool's nodes.
	ImagePushAndRollout PostBuildStrategy = "ImagePushAndRollout"
)

// BuildResources are what a build's containers ask for and may use.
type BuildResources struct {
	// requests are what the scheduler keeps free for each container: cpu, memory,
	// ephemeral-storage.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// limits are what each container may use at most: cpu, memory, ephemeral-storage. A build over
	// its memory limit is killed and counts as one attempt.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// BuildPlacement is where builds run.
type BuildPlacement struct {
	// nodeSelector are labels that a node has to have. The image's architecture is always added. At
	// most 32.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations are taints that a node may have. At most 32.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// ImageVerification is a test of an administrator's own. It gets the image's pull spec in the
// environment variable, or the Tekton parameter, IMAGE; what it says through its end, success or
// failure, decides whether the image is rolled out.
// +kubebuilder:validation:XValidation:rule="self.type == 'Job' ? has(self.job) : !has(self.job)",message="job is required when type is Job, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="self.type == 'Pipeline' ? has(self.pipeline) : !has(self.pipeline)",message="pipeline is required when type is Pipeline, and forbidden otherwise"
type ImageVerification struct {
	// type is Job or Pipeline.
	// +kubebuilder:validation:Enum=Job;Pipeline
	// +required
	Type MachineOSImageBuilderType `json:"type"`

	// job is a ConfigMap whose key holds the manifest of a Job; when the key is omitted,
	// "job.yaml". The Job runs in the namespace that Layerwright runs in. Required when type is
	// Job.
	// +optional
	Job *ConfigMapKeyReference `json:"job,omitempty"`

	// pipeline is a Tekton Pipeline in the namespace that Layerwright runs in. Required when type
	// is Pipeline.
	// +optional
	Pipeline *PipelineReference `json:"pipeline,omitempty"`

	// timeout is how long the test may take, from 1m to 24h, such as "30m"; after that the image
	// has failed it. When it is omitted, 1h.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="timeout must be from 1m to 24h, as numbers with the units s, m or h, such as 30m"
	Timeout string `json:"timeout,omitempty"`
}

// PipelineReference names a Tekton Pipeline.
type PipelineReference struct {
	// name of the Pipeline. A lowercase RFC 1123 subdomain of at most 253 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	// +required
	Name string `json:"name"`
}

// Retention is how many builds and images are kept. What a node runs, or could roll back to, is
// never removed.
type Retention struct {
	// successfulBuilds is how many successful builds are kept, 1 to 100, newest first. When it is
	// omitted, 3.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SuccessfulBuilds *int32 `json:"successfulBuilds,omitempty"`

	// failedBuilds is how many builds that failed or were interrupted are kept, 0 to 100, newest
	// first. When it is omitted, 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FailedBuilds *int32 `json:"failedBuilds,omitempty"`

	// imageDeletion is whether the image of a removed build is deleted from the registry: Enabled
	// or Disabled. When it is omitted, Enabled. A registry that refuses is asked no more than three
	// times and reported in an event.
	// +optional
	ImageDeletion Switch `json:"imageDeletion,omitempty"`
}

// MachineOSConfigStatus is the current image of a pool and what is being done.
type MachineOSConfigStatus struct {
	// conditions say how far the image is: Ready, Reconciling and Stalled, with the reasons of this
	// package. At most one of each type.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of spec that the status speaks of. It never goes
	// backwards.
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf", message="observedGeneration must not move backwards"
	// +kubebuilder:validation:Minimum=0
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// currentImagePullSpec is the newest image that was built, pushed and signed, by digest. It
	// stays while a newer one is being built.
	// +optional
	CurrentImagePullSpec ImageDigestFormat `json:"currentImagePullSpec,omitempty"`

	// machineOSBuild is the newest MachineOSBuild.
	// +optional
	MachineOSBuild *ObjectReference `json:"machineOSBuild,omitempty"`

	// osImageStream is the stream of the current image's base. When it is omitted, the base is of
	// no stream.
	// +optional
	OSImageStream OSImageStreamReference `json:"osImageStream,omitempty,omitzero"`

	// shortDigest is the first 12 characters of the digest of currentImagePullSpec, for people who
	// compare by eye.
	// +optional
	// +kubebuilder:validation:MaxLength=12
	ShortDigest string `json:"shortDigest,omitempty"`

	// poolTag is where the tag with the pool's name was, beside renderedImagePushSpec, when it was
	// set last. Where images are signed or verified, it is an image that was ready to be rolled
	// out. When it is omitted, no image of the pool had the tag yet.
	// +optional
	PoolTag *PoolTag `json:"poolTag,omitempty"`

	// streamTrial is what the pool's move to the stream of the annotation
	// machineconfiguration.openshift.io/try-stream would change. When it is omitted, no one asked.
	// +optional
	StreamTrial *StreamTrial `json:"streamTrial,omitempty"`
}

// PoolTag is the image that has the tag of its pool.
type PoolTag struct {
	// pullSpec is the image by digest.
	// +required
	PullSpec ImageDigestFormat `json:"pullSpec"`

	// movedTime is when it got the tag.
	// +required
	MovedTime metav1.Time `json:"movedTime"`
}

// MachineOSConfigList is a list of MachineOSConfigs.
// +kubebuilder:object:root=true
type MachineOSConfigList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata of the list.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the MachineOSConfigs.
	// +optional
	Items []MachineOSConfig `json:"items"`
}
