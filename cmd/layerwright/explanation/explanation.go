package explanation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/view"
)

// Explanation is what is known of a build and its image. Either may be gone.
type Explanation struct {
	Pool  string `json:"pool"`
	Build string `json:"build,omitempty"`
	// State is how far the build is: its stage, and the reason of that. Message says it in words.
	State   string `json:"state,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Do is what to do about a build that did not succeed.
	Do string `json:"do,omitempty"`

	// Why is what the build was made for, in the words that it was made with. Changes are how its
	// inputs differ from those of ComparedWith, which is the build before.
	Why          string        `json:"why,omitempty"`
	ComparedWith string        `json:"comparedWith,omitempty"`
	Changes      []plan.Change `json:"changes,omitempty"`

	// Action is Reuse, Append or Build, and Strategy what that means here.
	Action   mcfgv1.BuildAction `json:"action,omitempty"`
	Strategy string             `json:"strategy,omitempty"`
	// Waited is how long the build waited, for its slot or for another build, and Took how long it
	// took then. Steps are those of its pods, as far as there are any.
	Waited time.Duration `json:"-"`
	Took   time.Duration `json:"-"`
	// WaitedSeconds and TookSeconds are the same for programs.
	WaitedSeconds int64  `json:"waitedSeconds,omitempty"`
	TookSeconds   int64  `json:"tookSeconds,omitempty"`
	Steps         []Step `json:"steps,omitempty"`

	Image *Image `json:"image,omitempty"`
}

// Step is one step of a build's pods.
type Step struct {
	Architecture string       `json:"architecture,omitempty"`
	Step         backend.Step `json:"step"`
	// Milliseconds is how long it took. Bytes and Layers are what was pulled, made, exported or
	// uploaded.
	Milliseconds int64 `json:"milliseconds"`
	Bytes        int64 `json:"bytes,omitempty"`
	Layers       int   `json:"layers,omitempty"`
}

// Image is the image that a build has made.
type Image struct {
	Image mcfgv1.ImageDigestFormat `json:"image"`
	Name  string                   `json:"name,omitempty"`
	Base  mcfgv1.ImageDigestFormat `json:"base,omitempty"`
	// Stream is that of the base, and MachineConfig the rendered one that nodes get with the image.
	Stream        string `json:"stream,omitempty"`
	MachineConfig string `json:"machineConfig,omitempty"`
	// Signed, Attested, Verified and Ready say how far it is on its way to nodes: "yes", or the
	// reason and the message.
	Signed   string `json:"signed,omitempty"`
	Attested string `json:"attested,omitempty"`
	Verified string `json:"verified,omitempty"`
	Ready    string `json:"ready,omitempty"`
	// Missing is what a signed statement does not say, of an image that is attested.
	Missing string `json:"missing,omitempty"`
	// Architectures have the sizes, and what a node pulls that runs Previous.
	Architectures []mcfgv1alpha1.ImageArchitecture `json:"architectures,omitempty"`
	Previous      mcfgv1.ImageDigestFormat         `json:"previous,omitempty"`
	Quarantine    string                           `json:"quarantine,omitempty"`
}

// Of explains a build and its image, of which at least one is there. Steps are what its pods have
// said.
func Of(o *view.Objects, build *mcfgv1.MachineOSBuild, image *mcfgv1alpha1.MachineOSImage, steps []Step) *Explanation {
	e := &Explanation{Steps: steps}
	if build != nil {
		e.ofBuild(o, build)
	}
	if image == nil && build != nil && build.Status.DigestedImagePushSpec != "" {
		e.Image = &Image{Image: build.Status.DigestedImagePushSpec}
	}
	if image != nil {
		e.Pool, e.Image = image.Spec.MachineConfigPool, ofImage(image)
	}
	if e.Image != nil && build != nil {
		e.Image.Stream = build.Asked().OSImageStream
		e.Image.Base = cmp.Or(e.Image.Base, build.Asked().BaseImage)
	}
	return e
}

// stages are the stages of builds in words.
var stages = map[mcfgv1.BuildStage]string{
	mcfgv1.BuildStagePending: "Pending", mcfgv1.BuildStagePrepared: "Prepared", mcfgv1.BuildStageBuilding: "Building",
	mcfgv1.BuildStageFailed: "Failed", mcfgv1.BuildStageInterrupted: "Interrupted", mcfgv1.BuildStageSucceeded: "Succeeded",
}

func (e *Explanation) ofBuild(o *view.Objects, b *mcfgv1.MachineOSBuild) {
	existing := objects.Existing(b)
	e.Build, e.Pool = b.Name, b.Spec.MachineOSConfig.Name
	e.State, e.Reason, e.Message = stages[existing.Stage], existing.Reason, existing.Message
	if existing.Stage == mcfgv1.BuildStageFailed || existing.Stage == mcfgv1.BuildStageInterrupted {
		e.Do = remedy(b, existing.Reason)
	}
	e.Why = cmp.Or(b.Status.Why, why(b))
	record, err := plan.RecordOf(b)
	if before := before(o, b); before != nil && err == nil && record != nil {
		if older, err := plan.RecordOf(before); err == nil && older != nil {
			e.ComparedWith, e.Changes = before.Name, older.Changes(record)
		}
	}
	hasContent := record != nil && record.Inputs.HasContent()
	e.Action = b.Asked().Action
	e.Strategy = strategy(e.Action, hasContent)
	if start := b.Status.BuildStart; start != nil {
		e.Waited = max(0, start.Sub(b.CreationTimestamp.Time))
		if end := b.Status.BuildEnd; end != nil {
			e.Took = end.Sub(start.Time)
		}
	}
	e.WaitedSeconds, e.TookSeconds = int64(e.Waited.Seconds()), int64(e.Took.Seconds())
}

// why is what has changed, of a build that has not written it down yet.
func why(b *mcfgv1.MachineOSBuild) string {
	var inputs []string
	for _, input := range b.Status.ChangedInputs {
		inputs = append(inputs, string(input))
	}
	return strings.Join(inputs, ", ")
}

// before is the build of the same MachineOSConfig that has made the image before; nil where there
// is none.
func before(o *view.Objects, b *mcfgv1.MachineOSBuild) *mcfgv1.MachineOSBuild {
	var found *mcfgv1.MachineOSBuild
	for i := range o.Builds {
		other := &o.Builds[i]
		isBefore := other.Spec.MachineOSConfig.Name == b.Spec.MachineOSConfig.Name && other.Name != b.Name && other.CreationTimestamp.Before(&b.CreationTimestamp)
		if isBefore && objects.Existing(other).Stage == mcfgv1.BuildStageSucceeded && (found == nil || found.CreationTimestamp.Before(&other.CreationTimestamp)) {
			found = other
		}
	}
	return found
}

// strategy says in words how an image is made.
func strategy(action mcfgv1.BuildAction, hasContent bool) string {
	switch {
	case action == mcfgv1.BuildActionReuse:
		return "reused: the registry had the image already; nothing was built or pushed"
	case action == mcfgv1.BuildActionAppend && hasContent:
		return "appended: one layer with the configuration, on content that was built before; no pod"
	case action == mcfgv1.BuildActionAppend:
		return "appended: one layer with the configuration, on the OS image; no pod"
	case action == mcfgv1.BuildActionBuild:
		return "built: the content in pods, and then one layer with the configuration"
	default:
		return "" // an earlier version has not written it down
	}
}

// remedies are what to do beside what a message says, by the reason of a build that has failed.
var remedies = map[string]string{
	mcfgv1.ReasonBuildFailed:            "correct the line of the Containerfile; \"layerwright logs $build\" shows all that it printed",
	mcfgv1.ReasonInvalidContainerfile:   "correct the Containerfile; \"layerwright render\" checks it without a cluster",
	mcfgv1.ReasonInvalidMachineConfig:   "correct the MachineConfig; \"layerwright render\" checks it without a cluster",
	mcfgv1.ReasonImageNotFound:          "correct the name of the image, push it, or name the pull secret in spec.baseImagePullSecret of MachineOSConfig $config",
	mcfgv1.ReasonPushDenied:             "let the secret in spec.renderedImagePushSecret of MachineOSConfig $config write to the repository, or name another one",
	mcfgv1.ReasonTimedOut:               "see in \"layerwright logs $build\" what it waited for, or raise spec.buildTimeout of MachineOSConfig $config",
	mcfgv1.ReasonRetryLimitReached:      "see the answer of the registry in the message",
	mcfgv1.ReasonBuilderNotAvailable:    "give the controller --builder-image, or MachineOSConfig $config spec.imageBuilder.imageBuilderType Job; \"layerwright check\" says more",
	mcfgv1.ReasonUnsuitableBaseImage:    "use another OS image, or a stream that has one",
	mcfgv1.ReasonSuperseded:             "nothing: a newer build has taken its place",
	mcfgv1.ReasonMachineOSConfigDeleted: "nothing: no one wants its image any more",
}

// remedy is what to do about a build that did not succeed.
func remedy(b *mcfgv1.MachineOSBuild, reason string) string {
	text, known := remedies[reason]
	if !known {
		text = "correct what the message names; to build again with the same inputs, run " +
			"\"kubectl annotate machineosconfig $config " + mcfgv1.AnnotationRebuildImage + "=\""
	}
	return strings.NewReplacer("$build", b.Name, "$config", b.Spec.MachineOSConfig.Name).Replace(text)
}

func ofImage(o *mcfgv1alpha1.MachineOSImage) *Image {
	image := &Image{
		Image: o.Spec.PullSpec, Name: o.Name, Base: o.Spec.BaseOSImagePullSpec, MachineConfig: o.Configuration(),
		Signed: said(o, mcfgv1alpha1.ImageSigned), Attested: said(o, mcfgv1alpha1.ImageAttested),
		Verified: said(o, mcfgv1alpha1.ImageVerified), Ready: said(o, mcfgv1.ConditionReady),
		Architectures: o.Status.Architectures, Previous: o.Status.PreviousImagePullSpec,
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, mcfgv1alpha1.ImageAttested); c != nil && c.Status == metav1.ConditionTrue {
		image.Missing = c.Message
	}
	if q := o.Quarantined(); q != nil {
		image.Quarantine = q.Reason + ": " + q.Message
	}
	return image
}

// said is "yes", or why not; empty where nothing is said.
func said(o *mcfgv1alpha1.MachineOSImage, condition string) string {
	text := status.Word(o.Status.Conditions, condition)
	if c := meta.FindStatusCondition(o.Status.Conditions, condition); c != nil && c.Status != metav1.ConditionTrue && c.Message != "" {
		text += ": " + c.Message
	}
	return text
}

// Find finds what a name means: a MachineOSBuild, a pool's newest build, or a MachineOSImage by its
// name, its pull spec, or the first characters of its digest, with the build that made it.
func Find(o *view.Objects, name string) (*mcfgv1.MachineOSBuild, *mcfgv1alpha1.MachineOSImage) {
	i := slices.IndexFunc(o.Builds, func(b mcfgv1.MachineOSBuild) bool { return b.Name == name })
	if i >= 0 {
		return &o.Builds[i], imageOf(o, &o.Builds[i])
	}
	if i = slices.IndexFunc(o.Images, func(image mcfgv1alpha1.MachineOSImage) bool { return IsNamed(&image, name) }); i >= 0 {
		return owner.BuildOf(o.Builds, &o.Images[i]), &o.Images[i]
	}
	var newest *mcfgv1.MachineOSBuild
	for i := range o.Builds {
		b := &o.Builds[i]
		if b.Spec.MachineOSConfig.Name == name && (newest == nil || newest.CreationTimestamp.Before(&b.CreationTimestamp)) {
			newest = b
		}
	}
	if newest == nil {
		return nil, nil
	}
	return newest, imageOf(o, newest)
}

// shortest is how much of a digest names an image.
const shortest = 6

// IsNamed reports whether a name means an image: that of its object, its pull spec, its digest or
// at least six of its first characters.
func IsNamed(image *mcfgv1alpha1.MachineOSImage, name string) bool {
	_, digest, _ := strings.Cut(image.Spec.PullSpec.Digest(), ":")
	hex := strings.TrimPrefix(name, "sha256:")
	return name != "" && (image.Name == name || string(image.Spec.PullSpec) == name || len(hex) >= shortest && strings.HasPrefix(digest, hex))
}

// imageOf is the image that a build has made; nil where there is none.
func imageOf(o *view.Objects, b *mcfgv1.MachineOSBuild) *mcfgv1alpha1.MachineOSImage {
	i := slices.IndexFunc(o.Images, func(image mcfgv1alpha1.MachineOSImage) bool {
		return image.Labels[mcfgv1.LabelMachineOSBuild] == b.Name || image.Spec.PullSpec == b.Status.DigestedImagePushSpec
	})
	if i < 0 {
		return nil
	}
	return &o.Images[i]
}
