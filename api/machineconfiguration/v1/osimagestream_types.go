package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OSImageStream lists the OS image streams that pools can follow, and which of them is the default.
// There is one, named "cluster".
//
// Published in github.com/openshift/api machineconfiguration/v1. Added are spec.images, lifecycle,
// conditions and observedGeneration; status.availableStreams, status.defaultStream and an
// extensions image are no longer required, so that a cluster whose stream sources all fail, or
// whose OS has no extensions, can say so.
//
// The schema keeps the name and the default stream; the admission policy
// layerwright-osimagestream-deletion refuses to delete it.
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=osimagestreams,scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=openshift.io/operator-managed=
// +kubebuilder:printcolumn:name=Default,JSONPath=.status.defaultStream,type=string,description="Stream of new pools that name none"
// +kubebuilder:printcolumn:name=Streams,JSONPath=.status.streamNames,type=string,description="Streams that pools can name"
// +kubebuilder:printcolumn:name=Deprecated,JSONPath=.status.deprecatedStreamNames,type=string,description="Streams that pools should leave"
// +kubebuilder:printcolumn:name=EndOfLife,JSONPath=.status.endOfLifeStreamNames,type=string,priority=1,description="Streams that block an upgrade while a pool is on them"
// +kubebuilder:printcolumn:name=Ready,JSONPath=.status.conditions[?(@.type=="Ready")].status,type=string
// +kubebuilder:printcolumn:name=Age,JSONPath=.metadata.creationTimestamp,type=date
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="osimagestream is a singleton, .metadata.name must be 'cluster'"
// +kubebuilder:validation:XValidation:rule="self.spec.defaultStream == oldSelf.spec.defaultStream || !has(self.status) || !has(self.status.availableStreams) || self.spec.defaultStream in self.status.availableStreams.map(s, s.name)",message="spec.defaultStream must reference an existing stream name from status.availableStreams"
type OSImageStream struct {
	metav1.TypeMeta `json:",inline"`

	// metadata of the object; its name is "cluster".
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what an administrator asks for.
	// +required
	Spec OSImageStreamSpec `json:"spec,omitzero,omitempty"`

	// status is what the stream sources said last. While it is omitted, no one has looked yet, and
	// no pool can name a stream that has to exist.
	// +optional
	Status OSImageStreamStatus `json:"status,omitempty,omitzero"`
}

// OSImageStreamSpec is what an administrator asks of the streams.
type OSImageStreamSpec struct {
	// defaultStream is the stream of new pools that name none. Pools that already follow a stream
	// stay on it when the default changes. A lowercase RFC 1123 subdomain of at most 253
	// characters; once status lists streams it can only be changed to one of them.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	DefaultStream string `json:"defaultStream,omitempty"`

	// images are streams that an administrator adds, or whose images he replaces: the way to name
	// OS images on a cluster without a release payload. A stream that another source knows too
	// takes its images from here. At most 100, each name once.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Images []OSImageStreamImages `json:"images,omitempty"`
}

// OSImageStreamImages are the images of one stream as an administrator names them.
type OSImageStreamImages struct {
	// name of the stream, as pools name it. A lowercase RFC 1123 subdomain of at most 253
	// characters. It must be what the image's label io.openshift.os.streamclass says, where the
	// image has one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	Name string `json:"name,omitempty"`

	// osImage is the stream's OS image, by tag or digest. A tag is followed: when it moves, the
	// pools of the stream get the new image.
	// +required
	OSImage ImageReferenceFormat `json:"osImage,omitempty"`

	// osExtensionsImage holds the packages of the stream's extensions and kernels, by tag or
	// digest. When it is omitted, pools of the stream can ask for no extensions and no other
	// kernel; one that does reports RenderDegraded.
	// +optional
	OSExtensionsImage ImageReferenceFormat `json:"osExtensionsImage,omitempty"`

	// lifecycle is how far the stream is in its life. When it is omitted, Supported.
	// +optional
	Lifecycle StreamLifecycle `json:"lifecycle,omitempty"`

	// deprecationDate is the day from which the stream is Deprecated, such as 2027-05-31, in UTC.
	// lifecycle wins where it says more.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$`
	DeprecationDate string `json:"deprecationDate,omitempty"`

	// endOfLifeDate is the day from which the stream is EndOfLife, such as 2028-05-31, in UTC.
	// lifecycle wins where it says more.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$`
	EndOfLifeDate string `json:"endOfLifeDate,omitempty"`

	// nodeLabels are those of the nodes that run the stream: node.openshift.io/ID and
	// node.openshift.io/version_ID, as ID and VERSION_ID of the image's /etc/os-release say (seed
	// 001). No other label is set from here.
	// +optional
	// +kubebuilder:validation:MaxProperties=2
	// +kubebuilder:validation:XValidation:rule="self.all(key, key in ['node.openshift.io/ID', 'node.openshift.io/version_ID'])",message="nodeLabels may have only the keys node.openshift.io/ID and node.openshift.io/version_ID"
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
}

// StreamLifecycle is how far a stream is in its life: Supported, Deprecated (pools on it are told
// to leave, condition OSStreamDeprecated) or EndOfLife (pools on it keep their image, and block a
// cluster upgrade).
// +kubebuilder:validation:Enum=Supported;Deprecated;EndOfLife
type StreamLifecycle string

const (
	// StreamSupported is a stream that pools should be on. No lifecycle means the same.
	StreamSupported StreamLifecycle = "Supported"
	// StreamDeprecated is a stream that pools should leave: they get condition OSStreamDeprecated.
	StreamDeprecated StreamLifecycle = "Deprecated"
	// StreamEndOfLife is a stream that gets no more updates; a pool on it blocks a cluster upgrade.
	StreamEndOfLife StreamLifecycle = "EndOfLife"
)

// OSImageStreamStatus is what the stream sources said last.
// +kubebuilder:validation:XValidation:rule="!has(self.availableStreams) || has(self.defaultStream)",reason=FieldValueRequired,fieldPath=".defaultStream",message="defaultStream is required beside availableStreams"
// +kubebuilder:validation:XValidation:rule="!has(self.defaultStream) || has(self.availableStreams)",reason=FieldValueRequired,fieldPath=".availableStreams",message="availableStreams is required beside defaultStream"
// +kubebuilder:validation:XValidation:rule="!has(self.availableStreams) || !has(self.defaultStream) || self.defaultStream in self.availableStreams.map(s, s.name)",message="defaultStream must reference a stream name from availableStreams"
type OSImageStreamStatus struct {
	// availableStreams are the streams that pools can name, each name once, 1 to 100. It is omitted
	// while no source gives any.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	AvailableStreams []OSImageStreamSet `json:"availableStreams,omitempty"`

	// unusableStreams are streams that a source knows and that pools cannot name, such as one whose
	// extensions image is missing, with what is wrong with them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	UnusableStreams []UnusableOSImageStream `json:"unusableStreams,omitempty"`

	// defaultStream is the stream of new pools that name none; it is one of availableStreams, and
	// there whenever they are.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	DefaultStream string `json:"defaultStream,omitempty"`

	// streamNames are the names of availableStreams with commas between them, for people: a column
	// can show one value only.
	// +optional
	// +kubebuilder:validation:MaxLength=25400
	StreamNames string `json:"streamNames,omitempty"`

	// deprecatedStreamNames are those of streamNames whose lifecycle is Deprecated.
	// +optional
	// +kubebuilder:validation:MaxLength=25400
	DeprecatedStreamNames string `json:"deprecatedStreamNames,omitempty"`

	// endOfLifeStreamNames are those of streamNames whose lifecycle is EndOfLife.
	// +optional
	// +kubebuilder:validation:MaxLength=25400
	EndOfLifeStreamNames string `json:"endOfLifeStreamNames,omitempty"`

	// conditions say whether the sources could be read: Ready, Reconciling and Stalled, with the
	// reasons of this package.
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
}

// OSImageStreamSet are the images of one stream, by digest.
type OSImageStreamSet struct {
	// name of the stream, as the label io.openshift.os.streamclass of its images says. A lowercase
	// RFC 1123 subdomain of at most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	Name string `json:"name,omitempty"`

	// osImage is the stream's OS image by digest: kernel and base system of a node.
	// +required
	OSImage ImageDigestFormat `json:"osImage,omitempty"`

	// osExtensionsImage holds the packages of the stream's extensions and kernels, by digest. When
	// it is omitted, the stream offers none.
	// +optional
	OSExtensionsImage ImageDigestFormat `json:"osExtensionsImage,omitempty"`

	// lifecycle is how far the stream is in its life. When it is omitted, Supported.
	// +optional
	Lifecycle StreamLifecycle `json:"lifecycle,omitempty"`

	// deprecationDate is the day from which the stream is Deprecated, such as 2027-05-31, in UTC.
	// lifecycle wins where it says more.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$`
	DeprecationDate string `json:"deprecationDate,omitempty"`

	// endOfLifeDate is the day from which the stream is EndOfLife, such as 2028-05-31, in UTC.
	// lifecycle wins where it says more.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$`
	EndOfLifeDate string `json:"endOfLifeDate,omitempty"`

	// nodeLabels are those of the nodes that run the stream: node.openshift.io/ID and
	// node.openshift.io/version_ID, as ID and VERSION_ID of the image's /etc/os-release say (seed
	// 001). No other label is set from here.
	// +optional
	// +kubebuilder:validation:MaxProperties=2
	// +kubebuilder:validation:XValidation:rule="self.all(key, key in ['node.openshift.io/ID', 'node.openshift.io/version_ID'])",message="nodeLabels may have only the keys node.openshift.io/ID and node.openshift.io/version_ID"
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
}

// UnusableOSImageStream is a stream that pools cannot name, and why.
type UnusableOSImageStream struct {
	// name of the stream as its source says; it need not be a valid one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// osImage is the OS image that was found, if any.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	OSImage string `json:"osImage,omitempty"`

	// osExtensionsImage is the extensions image that was found, if any.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	OSExtensionsImage string `json:"osExtensionsImage,omitempty"`

	// reason is one word for what is wrong, such as ExtensionsImageMissing.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// message says what is wrong with it, where it was found, and what to do.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}

// OSImageStreamList is a list of OSImageStreams, of which there is one.
// +kubebuilder:object:root=true
type OSImageStreamList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	// items are the OSImageStreams.
	Items []OSImageStream `json:"items"`
}
