package plan

import (
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// Spec is a provider specification, as a JSON object.
type Spec = map[string]any

// Action is what is to be done about a resource.
type Action string

// The actions.
const (
	// ActionNone is that the resource has the boot image that it should have.
	ActionNone Action = "None"
	// ActionUpdate is that it gets Decision.Spec.
	ActionUpdate Action = "Update"
	// ActionSkip is that it is left alone.
	ActionSkip Action = "Skip"
	// ActionFail is that what should be done can't be, until someone corrects something.
	ActionFail Action = "Fail"
	// ActionAsk is that Decision.Question has to be answered first.
	ActionAsk Action = "Ask"
)

// Reasons why a resource is skipped. Those that Problem.Uncounted is true for are in no count.
const (
	ReasonOwnerReference      = "OwnerReference"
	ReasonAuthoritativeAPI    = "AuthoritativeAPI"
	ReasonWindows             = "Windows"
	ReasonUnknownProvider     = "UnknownProvider"
	ReasonNoArchitecture      = "NoArchitecture"
	ReasonNoImageForStream    = "NoImageForStream"
	ReasonNoImageForRegion    = "NoImageForRegion"
	ReasonStreamConflict      = "StreamConflict"
	ReasonCustomImage         = "CustomImage"
	ReasonUnknownImageOwner   = "UnknownImageOwner"
	ReasonMarketplaceImage    = "MarketplaceImage"
	ReasonConfidential        = "Confidential"
	ReasonNoMarketplaceImage  = "NoMarketplaceImage"
	ReasonNeedsUpload         = "NeedsUpload"
	ReasonNoImage             = "NoImage"
	ReasonNotOptedIn          = "NotOptedIn"
	ReasonPinned              = "Pinned"
	ReasonNoTemplateReference = "NoTemplateReference"
)

// Reasons of errors.
const (
	ReasonInvalidProviderSpec = "InvalidProviderSpec"
	ReasonUnknownArchitecture = "UnknownArchitecture"
	ReasonInvalidMetadata     = "InvalidMetadata"
	ReasonUnknownPin          = "UnknownPin"
	ReasonHotLoop             = "HotLoop"
)

// Problem is why a resource's boot image is not managed, or can't be.
type Problem struct {
	// Fails is that someone has to correct something; otherwise the resource is skipped.
	Fails bool
	// Uncounted is that no one expects the resource to be managed.
	Uncounted bool
	// Reason is one of those above.
	Reason string
	// Message is for people.
	Message string
	// question is what has to be known first.
	question *Question
}

func skip(reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func failed(reason, format string, args ...any) *Problem {
	return &Problem{Fails: true, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Question is what only a cloud knows: whose an image is.
type Question struct{ Region, Image string }

// Image is a boot image.
type Image struct {
	// ID is how the platform names it.
	ID string
	// Version of the boot image.
	Version string
	// Upload is where a platform without public images gets it from; nil elsewhere.
	Upload *Upload
}

// Upload is an image that has to be imported under Image.ID before it can be used.
type Upload struct{ URL, SHA256 string }

// Resource is what of a machine resource decides about its boot image.
type Resource struct {
	Labels, Annotations map[string]string
	// MachineLabels are those of the machines that it makes.
	MachineLabels map[string]string
	// IsOwned is that something else made it, and may put back what is changed.
	IsOwned bool
	// IsElsewhere is that another API has the say about its machines.
	IsElsewhere bool
	// ProviderKind is the kind of the provider specification, or of the template that has it.
	ProviderKind string
	// ProviderSpec is the provider specification; nil where there is none.
	ProviderSpec Spec
}

// Input is what Decide goes by.
type Input struct {
	Resource Resource
	// Images are the boot images there are.
	Images *BootImages
	// Stream is that of the pool that the machines will join; empty where that is not known.
	Stream string
	// Architecture is the one of the cluster's nodes, as Kubernetes names it; empty where there are
	// several.
	Architecture string
	// Region is the one of the cluster's nodes; empty where there are several, or none says it.
	Region string
	// Owners are the answers to questions so far: the account that an image belongs to.
	Owners map[Question]string
	// History are the images that the resource was given, the newest last.
	History []mcfgv1alpha1.BootImageHistoryDetail
	// Now is the time.
	Now time.Time
	// CanUpload is that images can be imported into the platform.
	CanUpload bool
}

// Decision is what becomes of a resource's boot image.
type Decision struct {
	Action  Action
	Reason  string
	Message string
	// IsCounted is that a skipped resource is one that people expect to be managed.
	IsCounted bool
	// Platform is as in metrics; empty where the provider is unknown.
	Platform string
	// Stream that the image is of.
	Stream string
	// Current is the image that the resource has; CurrentVersion is its version where that is
	// known.
	Current, CurrentVersion string
	// Wanted is the image that it should have.
	Wanted Image
	// Spec is the provider specification with the wanted image, for ActionUpdate.
	Spec Spec
	// Fields is where the image is in the specification.
	Fields [][]string
	// Question is what has to be answered, for ActionAsk.
	Question Question
}

// Decide says what becomes of a resource's boot image.
func Decide(in Input) Decision {
	d := Decision{Action: ActionNone, Stream: in.Stream}
	if p := d.fill(&in); p != nil {
		d.Action, d.Reason, d.Message, d.IsCounted = ActionSkip, p.Reason, p.Message, !p.Uncounted
		if p.Fails {
			d.Action, d.IsCounted = ActionFail, false
		}
		if p.question != nil {
			d.Action, d.Question = ActionAsk, *p.question
		}
	}
	return d
}

// fill finds out what the resource has and should have.
func (d *Decision) fill(in *Input) *Problem {
	p, problem := eligible(&in.Resource)
	if p != nil {
		d.Platform, d.Fields = p.name, p.fields
	}
	if problem != nil {
		return problem
	}
	arch, problem := architectureOf(in.Resource.Annotations, in.Architecture)
	if problem != nil {
		return problem
	}
	q := &query{in: in, arch: arch}
	if problem := d.readCurrent(p, q); problem != nil {
		return problem
	}
	if pin := in.Resource.Annotations[mcfgv1.AnnotationBootImagePin]; pin != "" {
		if d.Wanted, problem = pinned(pin, in.History); problem != nil {
			return problem
		}
		d.Reason = ReasonPinned
		return d.finish(p, in)
	}
	if problem := d.chooseStream(in); problem != nil {
		return problem
	}
	metadata := in.Images.find(d.Stream)
	if metadata == nil {
		return skip(ReasonNoImageForStream, "the boot images have none of stream %q", d.Stream)
	}
	has, isThere := metadata.Architectures[arch]
	if !isThere {
		return skip(ReasonNoImageForStream, "stream %q has no boot images for architecture %q", d.Stream, arch)
	}
	q.images = &has
	d.Wanted, problem = p.kind.wanted(in.Resource.ProviderSpec, d.Current, q)
	if problem != nil {
		return problem
	}
	if d.Wanted.ID == "" || d.Wanted.Version == "" {
		return failed(ReasonInvalidMetadata, "the boot image of stream %q for %s has no name or no release", d.Stream, d.Platform)
	}
	return d.finish(p, in)
}

// readCurrent reads the image that the resource has.
func (d *Decision) readCurrent(p *provider, q *query) *Problem {
	current, problem := p.kind.current(q.in.Resource.ProviderSpec)
	if problem != nil {
		return problem
	}
	if current == "" {
		return skip(ReasonNoImage, "the provider specification names no image")
	}
	d.Current, d.CurrentVersion = current, versionOf(p, q.in.Images, current)
	return nil
}

// chooseStream takes the pool's stream. A label that says another one makes clear that someone is
// mistaken.
func (d *Decision) chooseStream(in *Input) *Problem {
	label := in.Resource.Labels[mcfgv1.LabelOSStream]
	switch {
	case label == "" || label == in.Stream:
	case in.Stream == "":
		d.Stream = label
	case in.Images.major(label) != 0 && in.Images.major(label) == in.Images.major(in.Stream):
	default:
		return skip(ReasonStreamConflict, "label %s says stream %q, and the pool of its machines is on stream %q", mcfgv1.LabelOSStream, label, in.Stream)
	}
	return nil
}

// finish makes the specification with the wanted image.
func (d *Decision) finish(p *provider, in *Input) *Problem {
	if d.Current == d.Wanted.ID {
		return nil
	}
	if isFight(in.History, d.Wanted.ID, in.Now) {
		return failed(ReasonHotLoop, "refusing to reconcile, hot loop detected: it was given boot image %s %d times, and each time something put another one back",
			d.Wanted.Version, fightAfter)
	}
	if d.Wanted.Upload != nil && !in.CanUpload {
		return skip(ReasonNeedsUpload, "boot image %s has to be imported into %s, and nothing is set up to do so", d.Wanted.Version, d.Platform)
	}
	spec := runtime.DeepCopyJSON(in.Resource.ProviderSpec)
	if problem := p.kind.set(spec, d.Wanted.ID); problem != nil {
		return problem
	}
	d.Action, d.Spec = ActionUpdate, spec
	return nil
}

// Labels that say what machines are for.
const (
	labelWindows = "machine.openshift.io/os-id"
	// labelInfra is the infrastructure name of the cluster, which the names of its own images begin
	// with.
	labelInfra = "machine.openshift.io/cluster-api-cluster"
	// labelClusterName is the same in Cluster API.
	labelClusterName = "cluster.x-k8s.io/cluster-name"
)

// eligible finds the platform of a resource, and whether the resource is ours to change.
func eligible(r *Resource) (*provider, *Problem) {
	p := providers()[r.ProviderKind]
	switch {
	case r.IsOwned:
		return p, skip(ReasonOwnerReference, "it has an owner, which may put back what is changed")
	case r.IsElsewhere:
		return p, skip(ReasonAuthoritativeAPI, "another API is authoritative for its machines")
	case r.Labels[labelWindows] == "Windows" || r.MachineLabels[labelWindows] == "Windows":
		return p, &Problem{Reason: ReasonWindows, Message: "its machines run Windows", Uncounted: true}
	case len(r.ProviderSpec) == 0:
		return p, failed(ReasonInvalidProviderSpec, "it has no provider specification")
	case p == nil:
		return nil, skip(ReasonUnknownProvider, "provider specifications of kind %q are unknown", r.ProviderKind)
	}
	if p.check != nil {
		if err := p.check(r.ProviderSpec); err != nil {
			return p, failed(ReasonInvalidProviderSpec, "reading its provider specification as %s: %v", r.ProviderKind, err)
		}
	}
	return p, nil
}

// infraName is the infrastructure name of the resource's cluster.
func (r *Resource) infraName() string {
	for _, labels := range []map[string]string{r.Labels, r.MachineLabels} {
		for _, key := range []string{labelInfra, labelClusterName} {
			if labels[key] != "" {
				return labels[key]
			}
		}
	}
	return ""
}

// versionOf is the version of an image that a stream has or that its name says; empty where neither
// does.
func versionOf(p *provider, images *BootImages, id string) string {
	for _, s := range images.all() {
		for arch := range maps.Values(s.Architectures) {
			if version := p.kind.versionIn(&arch, id); version != "" {
				return version
			}
		}
	}
	return versionInName(id)
}
