package backend

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// Step is one of the four steps of a build, each a container with a trust of its own. The program
// gets its name as the only argument.
type Step string

const (
	// Fetch pulls every image that the Containerfile names into the store. It has the pull secret.
	Fetch Step = "fetch"
	// Build runs the Containerfile on what is in the store. It has no secret.
	Build Step = "build"
	// Export writes the layers that Build made as plain files. It has no secret: it opens a store
	// that RUN lines could change.
	Export Step = "export"
	// Push uploads the result. It has the push secret, and the pull secret for layers of the base
	// that the target's registry lacks. It does not see the store, only what Fetch and Export left
	// for it.
	Push Step = "push"
)

// What a PipelineRun does before and after the steps of a build, each in a pod of its own that runs
// no one's lines.
const (
	// Preflight asks the registries whether the images are there and the result may be pushed. It
	// has both secrets.
	Preflight Step = "preflight"
	// Assemble finds what was pushed, and joins several architectures. It has the push secret.
	Assemble Step = "assemble"
)

// Steps are all steps, in their order.
func Steps() []Step { return []Step{Fetch, Build, Export, Push} }

// Where the containers of a build find things. A folder that a step has no business with is not
// mounted there.
const (
	// InstructionsFile has the Instructions, as JSON. All steps have it.
	InstructionsFile = "/etc/layerwright/instructions/instructions.json"
	// ContextDir has the files that the Containerfile copies. Build has it.
	ContextDir = "/etc/layerwright/context"
	// CredentialsDir is the pull secret in Fetch and the push secret in Push, as the cluster has
	// it: a file .dockerconfigjson or .dockercfg. It is not there where registries are used
	// anonymously.
	CredentialsDir = "/etc/layerwright/credentials"
	// BaseCredentialsDir is the pull secret in Push, in the same form.
	BaseCredentialsDir = "/etc/layerwright/base-credentials"
	// InputsDir has a folder for each Input, by its name. Build has it.
	InputsDir = "/etc/layerwright/inputs"
	// TrustDir has additional certificate authorities in files that end in .pem. All steps have it
	// where there are any.
	TrustDir = "/etc/layerwright/trust"
	// RegistriesFile and PolicyFile are those of the pool's configuration. Fetch and Push have them
	// where there are any.
	RegistriesFile = "/etc/layerwright/registries/registries.conf"
	PolicyFile     = "/etc/layerwright/registries/policy.json"
	// WorkDir has the store. Fetch, Build and Export have it; RUN lines can change all of it.
	WorkDir = "/var/lib/layerwright"
	// FetchedDir has what Fetch leaves for Push: the layers of the images that it pulled, and which
	// registry has them. Only these two steps have it.
	FetchedDir = "/var/lib/layerwright-fetched"
	// LayoutDir has what Export leaves for Push, as an OCI image layout. Push can only read it.
	LayoutDir = "/var/lib/layerwright-layout"
	// TempDir and RunDir are for small files, and for the locks and sockets of libraries that
	// insist on them. Each step has its own.
	TempDir = "/tmp"
	RunDir  = "/run"
	// ReportFile is where a step leaves its Report: the container's termination message.
	ReportFile = "/dev/termination-log"
	// TektonReportFile is that file in a Task of Tekton, which keeps a list there (tekton.go).
	TektonReportFile = "/tekton/termination"
)

// Isolation is how far the steps are kept from the node that they run on, strongest first. What
// made the pod says it in IsolationVariable; its values are for status too.
type Isolation string

const (
	// IsolationUserNamespace means: the pod has a user namespace, and the steps all capabilities in
	// it that mounts and RUN lines need. A step that is not in one ends with ExitInfrastructure
	// before it does anything else: the node has not kept what it promised, and the capabilities
	// are the node's.
	IsolationUserNamespace Isolation = "UserNamespace"
	// IsolationCapabilities means: the steps are root with SETUID, SETGID and SETFCAP, and make a
	// user namespace themselves.
	IsolationCapabilities Isolation = "Capabilities"
	// IsolationVariable is the environment variable of all steps that says which it is.
	IsolationVariable = "LAYERWRIGHT_ISOLATION"
)

// ExpectedVariable is the environment variable that says, as JSON, which Fingerprint each folder of
// files has that the controller made. A step compares before it acts: whoever may write ConfigMaps
// could have made one of that name first. It is not there where a person runs a step.
const ExpectedVariable = "LAYERWRIGHT_EXPECTED"

// ExpectedOfVariable says, where one variable has that of all containers, which entry is that of
// this one: the Fingerprints are then those of ExpectedKey.
const ExpectedOfVariable = "LAYERWRIGHT_EXPECTED_OF"

// ExpectedKey is the entry of a step that builds for an architecture, by the name that OCI has for
// that.
func ExpectedKey(architecture string, step Step) string { return architecture + "/" + string(step) }

// Fingerprint is a digest of the names and contents of files.
func Fingerprint(files map[string][]byte) string {
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_, _ = fmt.Fprintf(all, "%q %x\n", name, sha256.Sum256(files[name])) // a hash takes everything
	}
	return hex.EncodeToString(all.Sum(nil))
}

// Exit codes of the steps. A failure that another attempt may mend has any other code than
// ExitAdmin.
const (
	// ExitAdmin is a failure that the same inputs meet again, so that no other attempt is made.
	ExitAdmin = 42
	// ExitInfrastructure is one that another attempt may not meet.
	ExitInfrastructure = 43
)

// Input is something that RUN lines can use and no layer keeps.
type Input struct {
	// Name is that of the folder in InputsDir.
	Name string
	// Secret or ConfigMap is the object that it is made of; exactly one is set.
	Secret, ConfigMap string
}

// Names of inputs, and the folders of the build's root that they appear in.
const (
	// InputEntitlement has certificates of subscriptions, at /etc/pki/entitlement.
	InputEntitlement = "etc-pki-entitlement"
	// InputYumRepos has repository files, at /etc/yum.repos.d.
	InputYumRepos = "etc-yum-repos-d"
	// InputRPMKeys has keys of repositories, at /etc/pki/rpm-gpg.
	InputRPMKeys = "etc-pki-rpm-gpg"
)

// Instructions are what the steps of one architecture are told. Nothing in them is secret.
type Instructions struct {
	// Build is the name of the MachineOSBuild.
	Build string `json:"build"`
	// Architecture is that of the image.
	Architecture mcfgv1.Architecture `json:"architecture"`
	// Containerfile is the rendered one (render.Render), and Stage the stage in it that is the
	// image.
	Containerfile string `json:"containerfile"`
	Stage         string `json:"stage"`
	// Lines say where the lines of Containerfile are from. Those that no entry covers are no one's.
	Lines []LineOrigin `json:"lines,omitempty"`
	// Images are what Fetch pulls.
	Images []PinnedImage `json:"images,omitempty"`
	// Target is where Push uploads the image to: a repository and a tag.
	Target string `json:"target"`
	// PlainHTTP are the registries that may be asked without TLS, as the controller was told.
	PlainHTTP []string `json:"plainHTTP,omitempty"`
	// PrivateStorage are registries that may point to private addresses though their own are
	// public.
	PrivateStorage []string `json:"privateStorage,omitempty"`
	// Created is the time that the image says it was made at, in seconds of Unix time
	// (SOURCE_DATE_EPOCH).
	Created int64 `json:"created"`
	// TimeoutSeconds is how long the steps may take together, where they have to see to it
	// themselves; 0 where their pod has a deadline.
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
}

// LineOrigin says where some lines of a rendered Containerfile are from.
type LineOrigin struct {
	// First and Last are lines of the rendered file, from 1.
	First int `json:"first"`
	Last  int `json:"last"`
	// Admin is the line of the administrator's file that First is from, and the next ones follow
	// it; 0 for lines that were added.
	Admin int `json:"admin,omitempty"`
	// What says what added lines are for, such as "extensions kerberos, usbguard".
	What string `json:"what,omitempty"`
}

// Continues reports whether a line of the rendered file goes on where the entry ends.
func (o LineOrigin) Continues(line, admin int, what string) bool {
	if o.Last != line-1 || o.What != what {
		return false
	}
	if o.Admin == 0 {
		return admin == 0
	}
	return admin == o.Admin+line-o.First
}

// PinnedImage is an image that a Containerfile names.
type PinnedImage struct {
	// Name is how the Containerfile names it.
	Name string `json:"name"`
	// Image is it by digest. It is empty for short names: which registry those mean is decided by
	// the Registries.
	Image string `json:"image,omitempty"`
}

// What an administrator can do about a build that had too little of something.
const (
	MoreMemory = "raise memory in spec.buildResources.limits of the MachineOSConfig"
	MoreDisk   = "raise ephemeral-storage in spec.buildResources.limits of the MachineOSConfig, or make room on the node's disk"
)

// MaxReport is how long a Report may be, in bytes: what the kubelet keeps of the termination
// messages of a pod, 12 KiB, shared by the steps.
const MaxReport = 3072

// Report is what a step leaves behind.
type Report struct {
	Step Step `json:"step"`
	// Failure is why it failed; nil where it did not.
	Failure *StepFailure `json:"failure,omitempty"`
	// Image is what was pushed, by digest. Push has it.
	Image string `json:"image,omitempty"`
	// Bytes are what was pulled in Fetch, what the new layers take in Build (unpacked) and in
	// Export (packed), and what was uploaded in Push.
	Bytes int64 `json:"bytes,omitempty"`
	// Layers is how many were pulled, made, exported, or uploaded.
	Layers int `json:"layers,omitempty"`
	// Took is how long it took, in milliseconds.
	Took int64 `json:"tookMillis,omitempty"`
	// Notes are facts about how it ran, such as the isolation that was possible.
	Notes []string `json:"notes,omitempty"`
	// Pulled are the images of the instructions as they were pulled, in their order. Fetch has it:
	// what another step says of it counts for nothing, since lines of other people's ran by then.
	// PulledMissing is how many more the report has no room for.
	Pulled        []PulledImage `json:"pulled,omitempty"`
	PulledMissing int           `json:"pulledMissing,omitempty"`
}

// PulledImage is an image that Fetch brought into the store.
type PulledImage struct {
	// Name is how the Containerfile names it.
	Name string `json:"name"`
	// Image is what that stood for, by digest: the index where there was one. It is empty where
	// Name is that already.
	Image string `json:"image,omitempty"`
	// Manifest is the digest of the image for the architecture; empty where it is not known, such
	// as of an image that was in the store.
	Manifest string `json:"manifest,omitempty"`
}

// StepFailure is why a step failed.
type StepFailure struct {
	Class fault.Class `json:"class"`
	// Reason is that of the condition, such as BuildFailed or ImageNotFound.
	Reason string `json:"reason"`
	// Message is for people: line, instruction, and what it ended with.
	Message string `json:"message"`
	// Output are the last lines that a RUN line wrote, oldest first. They are cut first where the
	// report is too long.
	Output []string `json:"output,omitempty"`
	// At is what the step was doing when it was told to end; empty for every other failure.
	At string `json:"at,omitempty"`
}

// Duration is how long the step took.
func (r *Report) Duration() time.Duration { return time.Duration(r.Took) * time.Millisecond }

// Encode writes the report in at most MaxReport bytes: lines of output go first, from the oldest,
// then the end of the message. Of the images that were pulled, the last ones go, and are counted.
func (r *Report) Encode() ([]byte, error) {
	return r.encode(MaxReport, func(text []byte) ([]byte, error) { return text, nil })
}

// encode writes the report as wrap has it, in at most most bytes.
func (r *Report) encode(most int, wrap func(text []byte) ([]byte, error)) ([]byte, error) {
	short := *r
	if r.Failure != nil {
		failure := *r.Failure
		short.Failure = &failure
	}
	for {
		text, err := json.Marshal(short)
		if err == nil {
			text, err = wrap(text)
		}
		if err != nil {
			return nil, fmt.Errorf("writing the report of step %s: %w", r.Step, err)
		}
		f := short.Failure
		switch over := len(text) - most; {
		case over <= 0:
			return text, nil
		case f != nil && len(f.Output) > 0:
			f.Output = f.Output[1:]
		case len(short.Notes) > 0:
			short.Notes = nil
		case len(short.Pulled) > 0:
			short.Pulled = short.Pulled[:len(short.Pulled)-1]
			short.PulledMissing++
		case f != nil && len(f.Message) > 0:
			f.Message = string([]rune(f.Message)[:len([]rune(f.Message))/2])
		default:
			return nil, fmt.Errorf("the report of step %s is %d bytes too long", r.Step, over)
		}
	}
}

// ReadReport reads what Encode wrote.
func ReadReport(text string) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("reading the report of a build step: %w", err)
	}
	if slices.Contains(Steps(), r.Step) || r.Step == Preflight || r.Step == Assemble {
		return r, nil
	}
	return nil, fmt.Errorf("reading the report of a build step: there is no step %q", r.Step)
}
