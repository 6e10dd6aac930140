package streams

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Subject is a pool whose stream is asked for, and what tells what it is on.
type Subject struct {
	// Pool is the pool itself.
	Pool *mcfgv1.MachineConfigPool
	// Worker is the worker pool, which custom pools follow; nil if there is none.
	Worker *mcfgv1.MachineConfigPool
	// Rendered is the MachineConfig that spec.configuration of the pool names; nil if there is
	// none.
	Rendered *mcfgv1.MachineConfig
	// On are the streams of the configurations that the pool's nodes have; those of which nothing
	// is known are left out.
	On []string
	// Kernels are the versions of the kernels that the pool's nodes run, such as
	// 5.14.0-427.37.1.el9_4.x86_64.
	Kernels []string
}

// Choice is the stream that a pool follows. The zero Choice is that it follows none.
type Choice struct {
	// Name of the stream, empty where the pool follows none.
	Name string
	// Images are the stream's, empty where the pool follows none.
	Images mcfgv1.OSImageStreamSet
	// Explicit reports whether a person has named the stream: in the pool's spec, or in the worker
	// pool's for a custom pool.
	Explicit bool
	// Frozen reports whether the stream is no longer available, and Images are those that the pool
	// has already.
	Frozen bool
	// Reason is why it is this stream, in words that continue "follows the stream x: ".
	Reason string
}

// Error is a stream that a pool cannot follow. Nothing but a person can change that.
type Error struct {
	// Stream that cannot be followed; empty where it is not known which one it should be.
	Stream string
	// Reason is a condition reason: StreamNotFound or StreamDowngrade.
	Reason string
	// Message is the whole text.
	Message string
}

// Error is the whole text.
func (e *Error) Error() string { return e.Message }

// OutdatedError means that the OSImageStream was written for another release than the one that the
// controller belongs to. It passes when whoever writes the OSImageStream has been upgraded too.
type OutdatedError struct {
	// Release is that of the OSImageStream, Want the controller's own.
	Release, Want string
}

// Error names both releases.
func (e *OutdatedError) Error() string {
	return fmt.Sprintf("OSImageStream %q is of release %q, this controller of %q: images of two releases are not mixed",
		mcfgv1.OSImageStreamName, e.Release, e.Want)
}

// CheckRelease gives an OutdatedError for an OSImageStream of another release, so that images of
// two releases never mix during an upgrade (openshift/machine-config-operator refuses it too). It
// can tell only where both say what they are of: people write OSImageStreams without the
// annotation, and on plain Kubernetes the controller is of no release.
func CheckRelease(streams *mcfgv1.OSImageStream, release string) error {
	if streams == nil || release == "" {
		return nil
	}
	if is := streams.Annotations[mcfgv1.AnnotationReleaseImageVersion]; is != "" && is != release {
		return &OutdatedError{Release: is, Want: release}
	}
	return nil
}

// ForPool says which stream a pool follows, by the first of these that names one:
//   - spec.osImageStream of the pool;
//   - for a custom pool, spec.osImageStream of the worker pool, whose configuration it joins too;
//   - what is remembered of the pool, see remembered: what it is on stays when the default changes;
//   - status.defaultStream of the OSImageStream.
//
// streams is the OSImageStream "cluster", and may be nil. Without streams (none is there, or no
// source gave any yet) a pool that nothing names a stream for follows none.
//
// A stream that the pool is on and that is no longer available is followed with the images that the
// pool has; the Choice is Frozen. Another one that is not available is an Error, reason
// StreamNotFound. So is one of an older major version than the pool is on, reason StreamDowngrade:
// the admission policy refuses it where it is written, but does not see the pools that follow the
// worker pool.
func ForPool(s Subject, streams *mcfgv1.OSImageStream) (Choice, error) {
	choice, err := s.name(streams)
	if choice.Name == "" || err != nil {
		return Choice{}, err
	}
	images := find(streams, choice.Name)
	if images == nil {
		if images = s.frozen(choice.Name, streams); images == nil {
			return Choice{}, notFound(choice, streams)
		}
		choice.Frozen = true
	}
	choice.Images = *images
	if err := s.refuseDowngrade(choice); err != nil {
		return Choice{}, err
	}
	return choice, nil
}

// named is the stream that someone names for a pool, and why; the zero Choice if no one does.
func (s Subject) named() Choice {
	if own := s.Pool.Spec.OSImageStream.Name; own != "" {
		return Choice{Name: own, Explicit: true, Reason: "the pool's spec.osImageStream names it"}
	}
	if IsCustom(s.Pool.Name) && s.Worker != nil && s.Worker.Spec.OSImageStream.Name != "" {
		return Choice{
			Name: s.Worker.Spec.OSImageStream.Name, Explicit: true,
			Reason: fmt.Sprintf("spec.osImageStream of the pool %q names it, and this pool names none", s.Worker.Name),
		}
	}
	return Choice{}
}

// name is the choice without its images.
func (s Subject) name(streams *mcfgv1.OSImageStream) (Choice, error) {
	if choice := s.named(); choice.Name != "" {
		return choice, nil
	}
	if choice, err := s.remembered(streams); choice.Name != "" || err != nil {
		return choice, err
	}
	if streams != nil && streams.Status.DefaultStream != "" {
		return Choice{Name: streams.Status.DefaultStream, Reason: "it is the default"}, nil
	}
	return Choice{}, nil
}

// refuseDowngrade compares a choice with what the pool is on. Where the pool stays on its stream,
// its nodes are not looked at: one that was taken in from a pool on a newer stream is no reason to
// keep the others from their configuration.
func (s Subject) refuseDowngrade(choice Choice) error {
	refuse := func(on, who string) error {
		return &Error{Stream: choice.Name, Reason: mcfgv1.ReasonStreamDowngrade, Message: fmt.Sprintf(
			"stream %q (%s) is of an older major version than %q, which %s on, and nodes cannot go back: name another in "+
				"spec.osImageStream of the pool", choice.Name, choice.Reason, on, who)}
	}
	if on := s.Pool.Status.OSImageStream.Name; isDowngrade(on, choice.Name) {
		return refuse(on, "the pool's nodes are")
	}
	on := s.Pool.Annotations[mcfgv1.AnnotationRememberedStream]
	if on == choice.Name {
		return nil
	}
	if isDowngrade(on, choice.Name) {
		return refuse(on, "the pool is")
	}
	for _, on := range s.On {
		if isDowngrade(on, choice.Name) {
			return refuse(on, "nodes of the pool are")
		}
	}
	return nil
}

// frozen are the images of a stream that is gone, as the pool's configuration has them; nil where
// the pool was not on that stream, or nothing tells its images. While nothing is known of any
// stream, none is gone.
func (s Subject) frozen(name string, streams *mcfgv1.OSImageStream) *mcfgv1.OSImageStreamSet {
	if !listsAny(streams) || s.Rendered == nil || s.Rendered.Spec.OSImageURL == "" || name != Recorded(s.Pool) {
		return nil
	}
	if of := s.Rendered.Annotations[mcfgv1.AnnotationOSImageStream]; of != "" && of != name {
		return nil
	}
	return &mcfgv1.OSImageStreamSet{
		Name: name, OSImage: mcfgv1.ImageDigestFormat(s.Rendered.Spec.OSImageURL),
		OSExtensionsImage: mcfgv1.ImageDigestFormat(s.Rendered.Spec.BaseOSExtensionsContainerImage),
	}
}

// IsCustom reports whether a pool of the given name is one that an administrator adds, as opposed
// to master, worker and arbiter.
func IsCustom(pool string) bool { return mcfgv1.IsCustomPool(pool) }

// find looks a stream up; nil if it is not available.
func find(streams *mcfgv1.OSImageStream, name string) *mcfgv1.OSImageStreamSet {
	if streams == nil {
		return nil
	}
	for i := range streams.Status.AvailableStreams {
		if stream := &streams.Status.AvailableStreams[i]; stream.Name == name {
			return stream
		}
	}
	return nil
}

// listsAny reports whether it is known which streams there are.
func listsAny(streams *mcfgv1.OSImageStream) bool {
	return streams != nil && len(streams.Status.AvailableStreams) > 0
}

// available says which streams there are, for messages.
func available(streams *mcfgv1.OSImageStream) string {
	if !listsAny(streams) {
		return fmt.Sprintf("OSImageStream %q lists none", mcfgv1.OSImageStreamName)
	}
	var names []string
	for i := range streams.Status.AvailableStreams {
		names = append(names, streams.Status.AvailableStreams[i].Name)
	}
	return "available are: " + strings.Join(names, ", ")
}

func notFound(choice Choice, streams *mcfgv1.OSImageStream) error {
	what := "is not available"
	if why := unusable(streams, choice.Name); why != "" {
		what = "cannot be used: " + why
	}
	return &Error{Stream: choice.Name, Reason: mcfgv1.ReasonStreamNotFound, Message: fmt.Sprintf(
		"stream %q %s (%s); %s", choice.Name, what, choice.Reason, available(streams))}
}

// unusable says what is wrong with a stream that a source knows and no pool can follow.
func unusable(streams *mcfgv1.OSImageStream, name string) string {
	if streams == nil {
		return ""
	}
	for i := range streams.Status.UnusableStreams {
		if stream := &streams.Status.UnusableStreams[i]; stream.Name == name {
			return strings.TrimSuffix(stream.Reason+": "+stream.Message, ": ")
		}
	}
	return ""
}
