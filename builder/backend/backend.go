package backend

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// Key names one build. Ensuring, observing and removing the same key again is the same build.
type Key struct {
	// Build is the name of the MachineOSBuild, and UID its identity: one that was deleted and made
	// again is another build.
	Build, UID string
	// Trial is the MachineOSConfig that a build is a trial of; empty for all others. A trial has no
	// MachineOSBuild: Build is a name that none has, UID is that of the MachineOSConfig, and what
	// exists for it goes with that.
	Trial string
}

// KeyOf is what a backend knows a build by.
func KeyOf(build *mcfgv1.MachineOSBuild) Key {
	return Key{Build: build.Name, UID: string(build.UID)}
}

// Spec is everything that a backend needs to build the content of an image. Nothing in it is
// secret: secrets are named.
type Spec struct {
	Key Key
	// Pool, Config (the MachineOSConfig) and Rendered (the rendered MachineConfig) are for labels.
	Pool, Config, Rendered string
	// Architectures are built side by side, at least one.
	Architectures []ArchitectureSpec
	// PushSpec is where the result goes, with its tag; for several architectures, that of the
	// index.
	PushSpec string
	// PullSecret and PushSecret are secrets in the namespace of the controller. The first is empty
	// where images are pulled anonymously.
	PullSecret, PushSecret string
	// Inputs are what RUN lines can use and no layer keeps. Each object is in the namespace of the
	// controller.
	Inputs []Input
	// Registries and Policy are the registries.conf and the policy.json of the pool's
	// configuration; empty where it has none.
	Registries, Policy []byte
	// TrustBundle are additional certificate authorities, as PEM; empty where there are none.
	TrustBundle []byte
	// Proxy are HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the controller; empty where it has none.
	Proxy map[string]string
	// Resources and Placement are those of the MachineOSConfig.
	Resources *mcfgv1.BuildResources
	Placement *mcfgv1.BuildPlacement
	// Pipeline is the administrator's own, for the backend that runs some; empty for the one that
	// comes with Layerwright.
	Pipeline string
	// Retries is how often an attempt whose failure was Transient is repeated, and Timeout how
	// long one attempt may take.
	Retries int
	Timeout time.Duration
}

// Settings is a hash of what may change while a build waits or runs: resources, placement, retries
// and timeout.
func (s *Spec) Settings() string {
	const enough = 16
	settings := struct {
		Resources *mcfgv1.BuildResources
		Placement *mcfgv1.BuildPlacement
		Retries   int
		Timeout   time.Duration
	}{s.Resources, s.Placement, s.Retries, s.Timeout}
	text, _ := json.Marshal(settings) //nolint:errchkjson // objects of the API can be written
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:enough]
}

// ArchitectureSpec is what is built for one architecture.
type ArchitectureSpec struct {
	Architecture mcfgv1.Architecture
	// Instructions are what the steps are told. Their tag is that of this architecture.
	Instructions Instructions
	// Context are the files that the Containerfile copies, by name.
	Context map[string][]byte
}

// Phase is how far a build is.
type Phase string

const (
	// Absent means: there is nothing of the build, because it was never ensured, or someone
	// deleted it.
	Absent Phase = "Absent"
	// Pending means: its objects are there, and nothing runs.
	Pending Phase = "Pending"
	// Running means: an attempt runs.
	Running Phase = "Running"
	// Succeeded means: the image has been pushed.
	Succeeded Phase = "Succeeded"
	// Failed means: the last attempt failed.
	Failed Phase = "Failed"
)

// State is how far a build is, as its backend sees it now.
type State struct {
	Phase Phase
	// Object is the backend's object, for status; nil while there is none.
	Object *corev1.ObjectReference
	// Settings are Spec.Settings of what runs; empty where that is not known.
	Settings string
	// Related are the names of the ConfigMaps that exist for the build, and Namespace is theirs.
	Related   []string
	Namespace string
	// IsIncomplete means that one of them is gone, and that nothing goes on until Ensure has made
	// it again.
	IsIncomplete bool
	// Image is the result by digest; empty unless Succeeded. Of several architectures it is empty
	// too: each has its own in Architectures, and whoever asked for them joins them under PushSpec.
	Image string
	// BuilderImage is the image that ran the build, by digest; empty where that is not known.
	BuilderImage string
	// Architectures are the results of each, where there are several.
	Architectures []mcfgv1.ArchitectureBuild
	// Pulled are the images that were pulled for each architecture, as far as that is known, and
	// PulledMissing is how many more there were; empty unless Succeeded.
	Pulled        []mcfgv1.PulledImage
	PulledMissing int
	// Started and Ended are zero where they have not happened.
	Started, Ended time.Time
	// Failure is why the build failed. Before that it is what an attempt waits for (class Waiting),
	// or why the previous attempt failed. It is nil if there is neither.
	Failure *Failure
	// Message is what happens now, for people: the step, how far it is, and which attempt that is.
	// It is empty when nothing happens.
	Message string
	// Notes are facts about how it runs, such as the isolation that was possible.
	Notes []string
	// Reports are what the steps of the newest attempt have left behind, in their order; of several
	// architectures one after the other.
	Reports []Report
	// After is when to look again although no watched object has changed; 0 where one certainly
	// will.
	After time.Duration
}

// NewFailure is a failure of a class, with a message that is fit for a condition.
func NewFailure(class fault.Class, reason, message string) *Failure {
	return &Failure{Class: class, Reason: reason, Message: fault.Clean(message)}
}

// Failure is why a build failed.
type Failure struct {
	// Class is decided once, by the backend, where the facts are: Terminal where the same inputs
	// fail again, Transient where another attempt may help, and Waiting where something is missing
	// that the build needs, which is no attempt.
	Class fault.Class
	// Reason is that of the condition, such as BuildFailed or PushDenied.
	Reason string
	// Message is for people: file, line, instruction, and the last lines of its output.
	Message string
	// IsCancelled means: a person ended the build, and it did not fail.
	IsCancelled bool
	// IsLost means: the image was pushed, and its digest is not known. The backend saw that itself;
	// no step can say so.
	IsLost bool
	// Architecture is the one that failed; empty where there is one, or all did.
	Architecture mcfgv1.Architecture
}
