package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// MachineOSImage is an OS image that a pool's nodes can run: what it was made of, whether it is
// signed, and whether it has failed. Layerwright creates one for each image that it builds; an
// administrator may create one for an image that was built elsewhere and name it in a
// MachineConfigPool. Proposed in the design of on-cluster layering.
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineosimages,scope=Cluster,shortName=mosi
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Pool,JSONPath=.spec.machineConfigPool,type=string
// +kubebuilder:printcolumn:name=Image,JSONPath=.status.shortDigest,type=string
// +kubebuilder:printcolumn:name=Signed,JSONPath=.status.conditions[?(@.type=="Signed")].status,type=string
// +kubebuilder:printcolumn:name=Quarantined,JSONPath=.status.quarantine.reason,type=string,description="Why no node gets this image"
// +kubebuilder:printcolumn:name=Ready,JSONPath=.status.conditions[?(@.type=="Ready")].status,type=string
// +kubebuilder:printcolumn:name=Reason,JSONPath=.status.conditions[?(@.type=="Ready")].reason,type=string
// +kubebuilder:printcolumn:name=Age,JSONPath=.metadata.creationTimestamp,type=date
// +kubebuilder:printcolumn:name=Config,JSONPath=.spec.renderedMachineConfig,type=string,priority=1
// +kubebuilder:printcolumn:name=PullSpec,JSONPath=.spec.pullSpec,type=string,priority=1
type MachineOSImage struct {
	metav1.TypeMeta `json:",inline"`

	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the image and what it was made of. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a MachineOSImage is one image: spec is immutable, create another MachineOSImage for another image"
	// +required
	Spec MachineOSImageSpec `json:"spec"`

	// status is what is known about the image.
	// +optional
	Status MachineOSImageStatus `json:"status,omitempty,omitzero"`
}

// MachineOSImageSpec is an image and what it was made of.
type MachineOSImageSpec struct {
	// pullSpec is the image by digest; for several architectures, the index of all.
	// +required
	PullSpec mcfgv1.ImageDigestFormat `json:"pullSpec"`

	// baseOSImagePullSpec is the OS image that it was built on, by digest. When it is omitted,
	// no one knows.
	// +optional
	BaseOSImagePullSpec mcfgv1.ImageDigestFormat `json:"baseOSImagePullSpec,omitempty"`

	// renderedMachineConfig is the name of the rendered MachineConfig in the image. When it is
	// omitted, there is none in it, and the node agent writes the configuration. A lowercase RFC
	// 1123 subdomain of at most 253 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	RenderedMachineConfig string `json:"renderedMachineConfig,omitempty"`

	// machineConfigPool is the name of the pool that the image is for. Another pool that names it
	// is told so in its condition Ready. A lowercase RFC 1123 subdomain of at most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	MachineConfigPool string `json:"machineConfigPool"`
}

// MachineOSImageStatus is what is known about an image.
type MachineOSImageStatus struct {
	// conditions are Signed, Attested, Verified and Quarantined, and Ready, Reconciling and
	// Stalled. At most 16.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of spec that the status speaks of. It never goes
	// backwards.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="observedGeneration must not move backwards"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// shortDigest is the first 12 characters of the digest of spec.pullSpec, for people who compare
	// by eye.
	// +optional
	// +kubebuilder:validation:MaxLength=12
	ShortDigest string `json:"shortDigest,omitempty"`

	// origin is Built for an image that a build of this cluster has made, which is the only one
	// that Layerwright signs, and Imported for one that was built elsewhere, or that the registry
	// had before the cluster signed anything. Where it is omitted beside a shortDigest, an earlier
	// version of Layerwright has made the image.
	// +optional
	Origin ImageOrigin `json:"origin,omitempty"`

	// renderedMachineConfig is the name of the rendered MachineConfig that nodes get with the
	// image: that of spec, or a later one that changes nothing in the image, such as kernel
	// arguments, SSH keys and files below /var. The builder writes it when the image is what the
	// pool's configuration asks for. Where it is omitted, it is that of spec.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RenderedMachineConfig string `json:"renderedMachineConfig,omitempty"`

	// signature is the trusted signature of the image: the cluster's, or that of whom the trust
	// policy names for the repository of an image that was built elsewhere. It is omitted while
	// there is none.
	// +optional
	Signature *ImageSignature `json:"signature,omitempty"`

	// attestations are signed statements about the image, such as its provenance and its software
	// SBOM. At most 16, each type once.
	// +optional
	// +listType=map
	// +listMapKey=predicateType
	// +kubebuilder:validation:MaxItems=16
	Attestations []ImageAttestation `json:"attestations,omitempty"`

	// verification is how the administrator's verification of the image went, the last one. It is
	// omitted where none was asked for.
	// +optional
	Verification *ImageVerificationResult `json:"verification,omitempty"`

	// architectures are the images that an index holds, one per architecture.
	// +optional
	// +listType=map
	// +listMapKey=architecture
	// +kubebuilder:validation:MaxItems=4
	Architectures []ImageArchitecture `json:"architectures,omitempty"`

	// previousImagePullSpec is the image, by digest, that the pullSize of architectures compares
	// with: what the pool had when this one was made, or the base image where it had none. It is
	// omitted where nothing is known of either.
	// +optional
	PreviousImagePullSpec mcfgv1.ImageDigestFormat `json:"previousImagePullSpec,omitempty"`

	// quarantine is why no further node gets the image. It is written when a rollout halts, and
	// stays until someone removes it.
	// +optional
	Quarantine *ImageQuarantine `json:"quarantine,omitempty"`
}

// Configuration is the rendered MachineConfig that nodes get with the image; empty where it has
// none.
func (i *MachineOSImage) Configuration() string {
	return cmp.Or(i.Status.RenderedMachineConfig, i.Spec.RenderedMachineConfig)
}

// Quarantined is why no further node gets the image with its present configuration; nil where nodes
// may.
func (i *MachineOSImage) Quarantined() *ImageQuarantine {
	q := i.Status.Quarantine
	if q == nil || q.RenderedMachineConfig != "" && q.RenderedMachineConfig != i.Configuration() {
		return nil
	}
	return q
}

// ImageOrigin is where an image comes from.
// +kubebuilder:validation:Enum=Built;Imported
type ImageOrigin string

// Origins of images.
const (
	// ImageBuilt is that of an image that a build of this cluster has made.
	ImageBuilt ImageOrigin = "Built"
	// ImageImported is that of an image that was built elsewhere.
	ImageImported ImageOrigin = "Imported"
)

// ImageSignature is a signature of an image.
type ImageSignature struct {
	// reference is where the signature lies in the registry.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reference string `json:"reference"`

	// keyID identifies the public key that verifies it: the SHA-256 of the key in lowercase
	// hexadecimal characters. Where images are signed without a key, it is that of the issuer, a
	// line break and the identity.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KeyID string `json:"keyID,omitempty"`

	// signedTime is when it was made, by the cluster. Of those of others no one knows.
	// +optional
	SignedTime *metav1.Time `json:"signedTime,omitempty"`
}

// ImageAttestation is a signed statement about an image.
type ImageAttestation struct {
	// predicateType says what the statement is about, as a URI such as
	// https://slsa.dev/provenance/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	PredicateType string `json:"predicateType"`

	// reference is where the statement lies in the registry.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reference string `json:"reference"`
}

// ImageVerificationResult is how an administrator's verification of an image went.
type ImageVerificationResult struct {
	// job is the name of the Job, or of the PipelineRun, that runs it, in the namespace that
	// Layerwright runs in.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Job string `json:"job"`

	// testHash identifies what was run: the first 16 characters of the SHA-256 of the Job's
	// manifest, or of the Pipeline's name, and of its timeout in hexadecimal characters.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	TestHash string `json:"testHash,omitempty"`

	// container is the name of the container that decided: of a test that failed, the first one
	// that did.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Container string `json:"container,omitempty"`

	// exitCode is that of the container. It is omitted while the test runs, and where no container
	// ended.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`

	// message is what the container left as its termination message, or else the end of its output.
	// At most 4096 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// startTime is when the test began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when it ended.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// ImageArchitecture is the image of one architecture.
type ImageArchitecture struct {
	// architecture of the image: AMD64, ARM64, PPC64LE or S390X.
	// +required
	Architecture mcfgv1.Architecture `json:"architecture"`

	// digest of the image's manifest, "sha256:" and 64 lowercase hexadecimal characters.
	// +required
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[a-f0-9]{64}$')",message="digest must be sha256: followed by 64 lowercase hexadecimal characters"
	Digest string `json:"digest"`

	// size is the sum of the image's compressed layers in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Size *int64 `json:"size,omitempty"`

	// pullSize is how much of size a node pulls that runs the image of previousImagePullSpec: the
	// layers that this one does not have. It is omitted where that is not known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PullSize *int64 `json:"pullSize,omitempty"`
}

// ImageQuarantine is why no further node gets an image.
type ImageQuarantine struct {
	// reason in one word, such as RolloutHalted.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9]*$')",message="reason must be one word of letters and digits, starting with a letter"
	Reason string `json:"reason"`

	// message says which nodes failed and how. At most 4096 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// renderedMachineConfig is the rendered MachineConfig that nodes failed with, where they ran
	// the image before they got it: the image may be rolled out with another one. When it is
	// omitted, the image is quarantined whatever its configuration.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RenderedMachineConfig string `json:"renderedMachineConfig,omitempty"`

	// since is when the image was quarantined.
	// +required
	Since metav1.Time `json:"since"`

	// nodes that failed with the image. At most 100.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes,omitempty"`
}

// AnnotationAllowOlder lets nodes have an image that this cluster has signed and whose build is
// gone, though the pool has a newer one. People write it, with any value; who verifies images reads
// it, and says so in an event.
const AnnotationAllowOlder = "machineconfiguration.openshift.io/allowOlder"

// MachineOSImageList is a list of MachineOSImages.
// +kubebuilder:object:root=true
type MachineOSImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the MachineOSImages.
	Items []MachineOSImage `json:"items"`
}

// Condition types of a MachineOSImage, beside mcfgv1.ConditionReady, ConditionReconciling and
// ConditionStalled.
//
// Ready is what a rollout waits for, and all that it has to look at: it is True when the image is
// Signed, where the cluster signs images or has a trust policy, when the administrator's
// verification passed, where there is one, and when the image is not quarantined. Its reason is
// Ready, or that of the condition that holds the image back, or Quarantined. Where neither
// signing nor a trust policy is configured, Ready says in its message that nothing is verified.
const (
	// ImageSigned is True when the image was read back from the registry and is trusted: it is
	// signed by the cluster or by whom the trust policy names for its repository, and has the
	// provenance that the policy asks for. What was found stays while the registry, the key or the
	// policy can't be read; the message says so. Unknown is that nothing was found out yet.
	// Reasons: Signed, SigningFailed, WaitingForKey, InvalidKey, WaitingForTrustPolicy,
	// InvalidTrustPolicy, NotSigned, NotTrusted, ImageGone, Unreachable, BuiltElsewhere.
	ImageSigned = "Signed"
	// ImageAttested is True when the cluster's signed statements about the image lie in the
	// registry. Reasons: Attested, AttestationFailed, WaitingForKey, InvalidKey, BuiltElsewhere.
	ImageAttested = "Attested"
	// ImageVerified is True when the administrator's verification passed, or there is none.
	// Reasons: Verified, NotRequested, VerificationPending, VerificationRunning,
	// VerificationFailed, InvalidVerification, VerificationUnavailable, WaitingForConfigMap.
	ImageVerified = "Verified"
	// ImageQuarantined is True when no further node gets the image. Reasons: RolloutHalted,
	// NotQuarantined.
	ImageQuarantined = "Quarantined"
)

// Reasons of a MachineOSImage's conditions.
const (
	// ReasonSigned means that the signature lies in the registry.
	ReasonSigned = "Signed"
	// ReasonSigningFailed means that signing, or pushing the signature, fails; it is tried again.
	ReasonSigningFailed = "SigningFailed"
	// ReasonWaitingForKey means that the cluster has no signing key yet.
	ReasonWaitingForKey = "WaitingForKey"
	// ReasonInvalidKey means that the cluster's signing key can't be used, such as for a wrong
	// password; the message says why.
	ReasonInvalidKey = "InvalidKey"
	// ReasonAttested means that the statements lie in the registry; the message names one that
	// could not be made.
	ReasonAttested = "Attested"
	// ReasonAttestationFailed means that making, signing or pushing a statement fails; it is tried
	// again.
	ReasonAttestationFailed = "AttestationFailed"
	// ReasonBuiltElsewhere means that the installer had the image built, so that Layerwright does
	// not sign it, and no one else is trusted for its repository.
	ReasonBuiltElsewhere = "BuiltElsewhere"
	// ReasonNotSigned means that the image has no trusted signature; the message says why.
	ReasonNotSigned = "NotSigned"
	// ReasonNotTrusted means that no one is trusted for the image's repository, or that the image's
	// provenance is not what the trust policy asks for; the message says which.
	ReasonNotTrusted = "NotTrusted"
	// ReasonImageGone means that the registry does not have the image any more.
	ReasonImageGone = "ImageGone"
	// ReasonUnreachable means that the registry does not answer, or lets no one read the image; it
	// is asked again.
	ReasonUnreachable = "Unreachable"
	// ReasonWaitingForTrustPolicy means that the ConfigMap with the trust policy does not exist.
	ReasonWaitingForTrustPolicy = "WaitingForTrustPolicy"
	// ReasonInvalidTrustPolicy means that the trust policy can't be read; the message says in which
	// line.
	ReasonInvalidTrustPolicy = "InvalidTrustPolicy"
	// ReasonReady means that the image may be rolled out.
	ReasonReady = "Ready"
	// ReasonQuarantined means that no further node gets the image; status.quarantine says why.
	ReasonQuarantined = "Quarantined"
	// ReasonNotAttested means that no signed statement of the kind that is asked for is trusted;
	// the message says why.
	ReasonNotAttested = "NotAttested"
	// ReasonVerified means that the administrator's verification passed.
	ReasonVerified = "Verified"
	// ReasonNotRequested means that no one asks for a verification: the MachineOSConfig does not,
	// or the image is none that Layerwright made.
	ReasonNotRequested = "NotRequested"
	// ReasonVerificationPending means that the administrator's verification has not begun; the
	// message says what it waits for.
	ReasonVerificationPending = "VerificationPending"
	// ReasonVerificationRunning means that the administrator's verification has not ended.
	ReasonVerificationRunning = "VerificationRunning"
	// ReasonVerificationFailed means that the administrator's verification failed: the image is
	// never rolled out by itself.
	ReasonVerificationFailed = "VerificationFailed"
	// ReasonInvalidVerification means that the manifest of the administrator's verification can't
	// be used; the message says which line or field of it.
	ReasonInvalidVerification = "InvalidVerification"
	// ReasonVerificationUnavailable is that this installation can't run a verification of that
	// type.
	ReasonVerificationUnavailable = "VerificationUnavailable"
	// ReasonRolloutHalted means that as many nodes failed with the image as the pool's
	// haltThreshold says.
	ReasonRolloutHalted = "RolloutHalted"
	// ReasonNotQuarantined means that the image is not quarantined.
	ReasonNotQuarantined = "NotQuarantined"
)
