package v1

import "strings"

// ImageTagFormat is where an image is pushed: host[:port][/path ...]/name:tag. The host needs a dot
// or a port, so that it cannot be taken for the first part of a path. At most 447 characters.
//
// Published in github.com/openshift/api; hosts without a dot are accepted in addition where they
// have a port, as are IPv6 addresses and every path of the OCI distribution specification. A path
// that no registry takes, such as one with upper case, stalls the MachineOSConfig.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=447
// +kubebuilder:validation:XValidation:rule=`self.matches('^(([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?|[a-zA-Z0-9-]+:[0-9]{2,5}|\\[[a-fA-F0-9:.]+\\](:[0-9]{2,5})?)((/[a-zA-Z0-9-_]+)*/[a-zA-Z0-9-_.]+|(/[a-z0-9]+((\\.|_|__|-+)[a-z0-9]+)*)+):[a-zA-Z0-9._-]+$') || self.matches('^[^.]+\\.[^.]+\\.svc:\\d+\\/[^\\/]+\\/[^\\/]+:[^\\/]+$')`,message="the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme. Or it must be a valid .svc followed by a port, repository, image name, and tag."
type ImageTagFormat string

// ImageDigestFormat is one exact image: host[:port][/path ...]/name@sha256:digest. The host needs a
// dot or a port; the digest has 64 lowercase hexadecimal characters. At most 447 characters in all.
//
// Published in github.com/openshift/api; every path of the OCI distribution specification, IPv6
// addresses, and hosts without a dot where they have a port, are accepted in addition.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=447
// +kubebuilder:validation:XValidation:rule=`(self.split('@').size() == 2 && self.split('@')[1].matches('^sha256:[a-f0-9]{64}$'))`,message="the OCI Image reference must end with a valid '@sha256:<digest>' suffix, where '<digest>' is 64 characters long"
// +kubebuilder:validation:XValidation:rule=`(self.split('@')[0].matches('^(([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?|[a-zA-Z0-9-]+:[0-9]{2,5}|\\[[a-fA-F0-9:.]+\\](:[0-9]{2,5})?)(/([a-zA-Z0-9-_]{0,61}/)*[a-zA-Z0-9-_.]*?|(/[a-z0-9]+((\\.|_|__|-+)[a-z0-9]+)*)+)$'))`,message="the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme"
type ImageDigestFormat string

// ImageReferenceFormat is an image to pull, by tag or by digest: host[:port][/path ...]/name:tag or
// ...@sha256:digest. A tag is resolved to a digest each time it is looked at; nothing that runs on
// a node is ever named by tag. Where both are given, the digest counts. At most 447 characters.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=447
// +kubebuilder:validation:XValidation:rule=`self.matches('^(([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?|[a-zA-Z0-9-]+:[0-9]{2,5}|\\[[a-fA-F0-9:.]+\\](:[0-9]{2,5})?)(/[a-z0-9]+((\\.|_|__|-+)[a-z0-9]+)*)+(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}(@sha256:[a-f0-9]{64})?|@sha256:[a-f0-9]{64})$')`,message="the image must be host[:port][/path]/name followed by :<tag> or by @sha256:<digest> of 64 lowercase hexadecimal characters; a host without a dot needs a port, and the path is lowercase"
type ImageReferenceFormat string

// WithoutTag returns the name of an image without the tag that stands before its digest, if both
// are there: the digest says which image it is.
func WithoutTag(image string) string {
	name, digest, pinned := strings.Cut(image, "@")
	if colon := strings.LastIndex(name, ":"); pinned && colon > strings.LastIndex(name, "/") {
		return name[:colon] + "@" + digest
	}
	return image
}

// shortDigestLength is how much of a digest people compare by eye.
const shortDigestLength = 12

// Short returns the first characters of the image's digest, for printer columns and messages. It is
// empty for anything that does not end in a digest.
func (f ImageDigestFormat) Short() string {
	_, digest, found := strings.Cut(string(f), "@sha256:")
	if !found || len(digest) < shortDigestLength {
		return ""
	}
	return digest[:shortDigestLength]
}

// Digest returns the image's digest with its algorithm, "sha256:...". It is empty for anything that
// does not end in a digest.
func (f ImageDigestFormat) Digest() string {
	_, digest, found := strings.Cut(string(f), "@")
	if !found {
		return ""
	}
	return digest
}

// ImageSecretObjectReference names a registry secret (kubernetes.io/dockerconfigjson, or the older
// kubernetes.io/dockercfg) in the namespace that Layerwright runs in.
//
// Published in github.com/openshift/api; written here because the namespace differs.
type ImageSecretObjectReference struct {
	// name of the secret. Lowercase letters, digits, '-' and '.', starting and ending with a letter
	// or digit, at most 253 characters. A secret that does not exist, or has another type, is named
	// in the condition that waits for it.
	// +kubebuilder:validation:MaxLength:=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	// +required
	Name string `json:"name"`
}

// ConfigMapKeyReference names a key of a ConfigMap in the namespace that Layerwright runs in.
type ConfigMapKeyReference struct {
	// name of the ConfigMap. Lowercase letters, digits, '-' and '.', starting and ending with a
	// letter or digit, at most 253 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	// +required
	Name string `json:"name"`
	// key in the ConfigMap's data. When it is omitted, the name that the referring field documents.
	// Letters, digits, '-', '_' and '.', at most 253 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="a key of a ConfigMap must consist of letters, digits, '-', '_' or '.'"
	// +optional
	Key string `json:"key,omitempty"`
}

// Architecture is a machine architecture as Containerfiles of a MachineOSConfig name it.
// +kubebuilder:validation:Enum=AMD64;ARM64;PPC64LE;S390X
type Architecture string

const (
	// ArchitectureAMD64 is GOARCH amd64.
	ArchitectureAMD64 Architecture = "AMD64"
	// ArchitectureARM64 is GOARCH arm64.
	ArchitectureARM64 Architecture = "ARM64"
	// ArchitecturePPC64LE is GOARCH ppc64le.
	ArchitecturePPC64LE Architecture = "PPC64LE"
	// ArchitectureS390X is GOARCH s390x.
	ArchitectureS390X Architecture = "S390X"
)

// OCI returns the architecture as image manifests and nodes name it (GOARCH).
func (a Architecture) OCI() string { return strings.ToLower(string(a)) }

// ArchitectureFromOCI returns the architecture that image manifests and nodes name so (GOARCH), and
// whether it is a known one.
func ArchitectureFromOCI(goarch string) (Architecture, bool) {
	switch a := Architecture(strings.ToUpper(goarch)); a {
	case ArchitectureAMD64, ArchitectureARM64, ArchitecturePPC64LE, ArchitectureS390X:
		return a, true
	default:
		return "", false
	}
}
