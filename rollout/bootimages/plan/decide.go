package plan

import (
	"maps"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Action is what is to be done about a resource.
type Action string

// The actions.
const (
	// ActionNone means that the resource has the boot image that it should have.
	ActionNone Action = "None"
	// ActionUpdate means that it gets Decision.Spec.
	ActionUpdate Action = "Update"
	// ActionSkip means that it is left alone.
	ActionSkip Action = "Skip"
	// ActionFail means that what should be done can't be, until someone corrects something.
	ActionFail Action = "Fail"
	// ActionAsk means that Decision.Question has to be answered first.
	ActionAsk Action = "Ask"
)

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
		entry, problem := pinned(pin, in.History)
		if problem != nil {
			return problem
		}
		d.Wanted, d.Stream, d.Reason = Image{ID: entry.Image, Version: entry.BootImageVersion}, entry.Stream, ReasonPinned
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
	if d.Wanted.ID == "" || len(d.Wanted.ID) > maxImage || !releaseName.MatchString(d.Wanted.Version) {
		return failed(ReasonInvalidMetadata, "the boot image of stream %q for %s has no valid name or no valid release", d.Stream, d.Platform)
	}
	is, should := ParseVersion(d.Wanted.Version).RHEL.Major, in.Images.major(d.Stream)
	if is != 0 && should != 0 && is != should {
		return failed(ReasonInvalidMetadata, "boot image %s of stream %q is of RHEL %d", d.Wanted.Version, d.Stream, is)
	}
	return d.finish(p, in)
}

// releaseName is what the version of a boot image looks like: it becomes part of names.
var releaseName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,127}$`)

// maxImage is how long a BootImageHistory lets the name of an image be.
const maxImage = 1024

// readCurrent reads the image that the resource has.
func (d *Decision) readCurrent(p *provider, q *query) *Problem {
	current, problem := p.kind.current(q.in.Resource.ProviderSpec)
	if problem != nil {
		return problem
	}
	switch {
	case current == "":
		return skip(ReasonNoImage, "the provider specification names no image")
	case len(current) > maxImage:
		return skip(ReasonCustomImage, "the name of its image has more than %d characters", maxImage)
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
	case in.Images.isSame(label, in.Stream):
	default:
		return skip(ReasonStreamConflict, "label %s says stream %q, and the pool of its machines is on stream %q", mcfgv1.LabelOSStream, label, in.Stream)
	}
	return nil
}

// finish makes the specification with the wanted image.
func (d *Decision) finish(p *provider, in *Input) *Problem {
	if d.Current == d.Wanted.ID {
		_, isAMI := p.kind.(aws) // whose name says nothing about where it comes from
		d.IsFirst = isAMI && len(in.History) == 0
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

// eligible finds the platform of a resource, and whether the resource is ours to change.
func eligible(r *Resource) (*provider, *Problem) {
	p := providers()[r.ProviderKind]
	switch {
	case r.Main != "":
		return p, &Problem{Reason: ReasonPartOfAnother, Message: r.Main + " is looked at in its place", Uncounted: true}
	case r.IsOwned:
		return p, skip(ReasonOwnerReference, "it has an owner, which may put back what is changed")
	case r.IsElsewhere:
		return p, skip(ReasonAuthoritativeAPI, "another API is authoritative for its machines")
	case r.Labels[labelWindows] == "Windows" || r.MachineLabels[labelWindows] == "Windows":
		return p, &Problem{Reason: ReasonWindows, Message: "its machines run Windows", Uncounted: true}
	case p == nil && (r.ProviderKind != "" || len(r.ProviderSpec) > 0):
		return nil, skip(ReasonUnknownProvider, "provider specifications of kind %q are unknown", r.ProviderKind)
	case len(r.ProviderSpec) == 0:
		return p, failed(ReasonInvalidProviderSpec, "it has no provider specification")
	}
	if p.check != nil {
		if err := p.check(r.ProviderSpec); err != nil {
			return p, failed(ReasonInvalidProviderSpec, "reading its provider specification as %s: %v", r.ProviderKind, err)
		}
	}
	return p, nil
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

// Decision is what becomes of a resource's boot image.
type Decision struct {
	Action  Action
	Reason  string
	Message string
	// IsCounted reports whether a skipped resource is one that people expect to be managed.
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
	// IsFirst reports whether the history has to say that the resource has the stream's image: when
	// the stream has another one, nothing else will.
	IsFirst bool
	// Spec is the provider specification with the wanted image, for ActionUpdate.
	Spec Spec
	// Fields is where the image is in the specification.
	Fields [][]string
	// Question is what has to be answered, for ActionAsk.
	Question Question
}
