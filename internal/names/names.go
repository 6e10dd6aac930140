package names

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// ControllerLease is the Lease that the controllers of one installation compete for. The Role in
// deploy/base grants it by name.
const ControllerLease = "layerwright-controller"

// ClusterOperator is Layerwright's own ClusterOperator on OpenShift. The ClusterRole in deploy/base
// grants it by name.
const ClusterOperator = "layerwright"

// GlobalPullSecret is the copy of OpenShift's cluster-wide pull secret in the namespace of its
// machine-config-operator, which keeps it current. Elsewhere there is none.
const GlobalPullSecret = "global-pull-secret-copy" //nolint:gosec // a name, no secret

// RegistryMirrors is the ConfigMap with mirrors of registries, for whatever Layerwright reads.
const RegistryMirrors = "registry-mirrors"

// SigningKey is the secret with the key that images are signed with, in deploy/components/signing.
const SigningKey = "layerwright-signing-key"

// TrustPolicy is the ConfigMap with the trust policy, which deploy/components/trust-policy names.
const TrustPolicy = "layerwright-trust-policy"

// AdmissionPolicies are those of deploy/policies.
func AdmissionPolicies() []string {
	return []string{
		"layerwright-agent-writes", "layerwright-boot-image-platforms", "layerwright-build-volumes", "layerwright-configmaps",
		"layerwright-containerfile-configmaps", "layerwright-healthcheck-configmaps", "layerwright-machineconfiguration-name",
		"layerwright-node-writes", "layerwright-osimagestream-deletion", "layerwright-own-pods", "layerwright-pool-selector",
		"layerwright-pool-stream", "layerwright-pool-stream-downgrade",
	}
}

// AgentAdmissionPolicies are those of deploy/overlays/kubernetes, where node agents run.
func AgentAdmissionPolicies() []string { return []string{"layerwright-pods"} }

// TektonAdmissionPolicies are those of deploy/components/tekton.
func TektonAdmissionPolicies() []string {
	return []string{"layerwright-pipeline-runs", "layerwright-pipeline-secrets"}
}

// Lengths that the API server and registries allow.
const (
	maxObjectName = 253
	maxTag        = 128
	maxLabel      = 63
)

// MachineOSBuild is the build that makes the image with a build key for a MachineOSConfig.
func MachineOSBuild(config, buildKey string) string { return joined(config, buildKey, maxObjectName) }

// MachineOSImage is the image with a digest ("sha256:...") that was made for a pool. There may be
// several of one build key, since building twice need not give the same bytes.
func MachineOSImage(pool, digest string) string {
	_, hash, _ := strings.Cut(digest, ":")
	const enough = 32
	return joined(pool, hash[:min(len(hash), enough)], maxObjectName)
}

// MachineOSImages are the names that the object of an image by digest may have: the one of its
// digest, and where that is taken by the same image in another repository, one of both.
func MachineOSImages(pool, pinned string) []string {
	repository, digest, _ := strings.Cut(pinned, "@")
	return []string{MachineOSImage(pool, digest), MachineOSImage(pool, "sha256:"+InRepository(digest, repository))}
}

// InRepository is a key, or the hash of a digest, for the same in another repository: 32
// hexadecimal characters. It tells the objects of images apart that differ in nothing but where
// they are.
func InRepository(key, repository string) string {
	sum := sha256.Sum256([]byte(key + "\n" + repository))
	return hex.EncodeToString(sum[:])[:32]
}

// BuildObject is an object that exists for a build: "<kind>-<build>", where kind is one of the
// published prefixes such as "build", and after it the architecture as nodes name it, which is
// empty for a build of one. It is at most 63 characters long, since Jobs name pods and labels.
func BuildObject(kind, build, architecture string) string {
	suffix := ""
	if architecture != "" {
		suffix = "-" + architecture
	}
	return kind + "-" + shortened(build, maxLabel-len(kind)-1-len(suffix)) + suffix
}

// BuildLabel is the value of the label that says which build an object exists for: its name, and
// for a long one what BuildObject makes of it.
func BuildLabel(build string) string { return shortened(build, maxLabel) }

// VerificationPrefix is what the names of secrets and service accounts begin with that
// administrators' tests of images and nodes may use. Whoever makes one says with its name that it
// is for tests.
const VerificationPrefix = "verification-"

// VerificationJob is the Job that runs a test on an image. It is at most 63 characters long, since
// Jobs name pods and labels.
func VerificationJob(image, testHash string, attempt int) string {
	const hashed = 8
	suffix := "-" + testHash[:min(len(testHash), hashed)] + "-" + strconv.Itoa(attempt)
	return "verify-" + shortened(image, maxLabel-len("verify-")-len(suffix)) + suffix
}

// HealthCheckJob is the Job of a health check on a node. target identifies the node, what it was
// updated to and the check. It is at most 63 characters long.
func HealthCheckJob(node, target, testHash string, attempt int) string {
	const hashed = 8
	suffix := "-" + target[:min(len(target), hashed)] + "-" + testHash[:min(len(testHash), hashed)] + "-" + strconv.Itoa(attempt)
	return "health-" + strings.ReplaceAll(shortened(node, maxLabel-len("health-")-len(suffix)), ".", "-") + suffix
}

// ImageTag is the tag of the image with a build key for a pool.
func ImageTag(pool, buildKey string) string { return joined(pool, buildKey, maxTag) }

// ContentTag is the tag of what was built for an image, before its configuration; pools with the
// same content share it.
func ContentTag(key string) string { return "content-" + key }

// MaxTags is how many tags there may be for what is pushed again, where a registry's tags are
// immutable.
const MaxTags = 8

// NextTag is a tag, as number 1, or the one for what is pushed after that has become immutable.
func NextTag(tag string, number int) string {
	if number == 1 {
		return tag
	}
	return tag + "." + strconv.Itoa(number)
}

// ConfigsTag is the tag of the base image with the configuration of a build in it, which the stage
// configs starts from.
func ConfigsTag(buildKey string) string { return "configs-" + buildKey }

// StreamTrial is the ConfigMap with the report of a MachineOSConfig's trial of another stream.
func StreamTrial(config string) string {
	return "stream-trial-" + shortened(config, maxObjectName-len("stream-trial-"))
}

// TrialTag is the tag of the image that a trial of another stream made for a pool.
func TrialTag(pool string) string { return "trial-" + shortened(pool, maxTag-len("trial-")) }

// PoolTag is the tag that follows a pool's newest image that may be rolled out, for people who
// browse a registry.
func PoolTag(pool string) string {
	if len(pool) <= maxTag {
		return pool
	}
	return joined(pool, "newest", maxTag)
}

// joined is "<name>-<suffix>". A name that is too long is cut, and a hash of all of it keeps two
// that begin alike apart.
func joined(name, suffix string, limit int) string {
	if len(name)+1+len(suffix) <= limit {
		return name + "-" + suffix
	}
	return shortened(name, limit-len(suffix)-1) + "-" + suffix
}

// shortened cuts a name that is longer than the limit, and puts a hash of all of it where it was
// cut.
func shortened(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	const hashed = 8
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:limit-hashed-1], "-.") + "-" + hex.EncodeToString(sum[:])[:hashed]
}

// BootImageHistory is the record of the boot images of a machine resource, of which kind is the
// kind.
func BootImageHistory(resource, kind string) string {
	return joined(resource, strings.ToLower(kind), maxObjectName)
}

// BootImageTemplate is the copy of a machine template of Cluster API with another boot image; hash
// is that of its content.
func BootImageTemplate(original, hash string) string { return joined(original, hash, maxObjectName) }
