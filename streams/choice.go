package streams

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Choice is the stream that a pool follows. The zero Choice is that it follows none.
type Choice struct {
	// Name of the stream, empty where the pool follows none.
	Name string
	// Images are the stream's, empty where the pool follows none.
	Images mcfgv1.OSImageStreamSet
	// Explicit is whether a person has named the stream: in the pool's spec, or in the worker pool's for a custom pool.
	Explicit bool
	// Reason is why it is this stream, in words that continue "follows the stream x: ".
	Reason string
}

// Error is a stream that a pool cannot follow. Nothing but a person can change that.
type Error struct {
	// Stream that cannot be followed.
	Stream string
	// Reason is a condition reason: StreamNotFound or StreamDowngrade.
	Reason string
	// Message is the whole text.
	Message string
}

// Error is the whole text.
func (e *Error) Error() string { return e.Message }

// OutdatedError is that the OSImageStream was written for another release than the one that the controller belongs to. It passes when
// whoever writes the OSImageStream has been upgraded too.
type OutdatedError struct {
	// Release is that of the OSImageStream, Want the controller's own.
	Release, Want string
}

// Error names both releases.
func (e *OutdatedError) Error() string {
	return fmt.Sprintf("OSImageStream %q is of release %q, this controller of %q: images of two releases are not mixed",
		mcfgv1.OSImageStreamName, e.Release, e.Want)
}

// CheckRelease gives an OutdatedError for an OSImageStream of another release, so that images of two releases never mix during an
// upgrade (openshift/machine-config-operator refuses it too). It can tell only where both say what they are of: people write
// OSImageStreams without the annotation, and on plain Kubernetes the controller is of no release.
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
//   - status.osImageStream of the pool: what its nodes are on stays when the default changes;
//   - status.defaultStream of the OSImageStream.
//
// worker is the worker pool, streams the OSImageStream "cluster"; either may be nil. Without streams (none is there, or no source gave
// any yet) a pool that nothing names a stream for follows none. A stream that is named or remembered and is not available is an Error,
// reason StreamNotFound. So is one of an older major version than the pool is on, reason StreamDowngrade: the admission policy refuses
// it where it is written, but does not see the pools that follow the worker pool.
func ForPool(pool, worker *mcfgv1.MachineConfigPool, streams *mcfgv1.OSImageStream) (Choice, error) {
	choice := name(pool, worker, streams)
	if choice.Name == "" {
		return Choice{}, nil
	}
	images, available := find(streams, choice.Name)
	if images == nil {
		return Choice{}, notFound(choice, available)
	}
	choice.Images = *images
	if on := pool.Status.OSImageStream.Name; isDowngrade(on, choice.Name) {
		return Choice{}, &Error{Stream: choice.Name, Reason: mcfgv1.ReasonStreamDowngrade, Message: fmt.Sprintf(
			"stream %q (%s) is of an older major version than %q, which the pool's nodes are on, and nodes cannot go back: name another in "+
				"spec.osImageStream of the pool", choice.Name, choice.Reason, on)}
	}
	return choice, nil
}

// name is the choice without its images.
func name(pool, worker *mcfgv1.MachineConfigPool, streams *mcfgv1.OSImageStream) Choice {
	if own := pool.Spec.OSImageStream.Name; own != "" {
		return Choice{Name: own, Explicit: true, Reason: "the pool's spec.osImageStream names it"}
	}
	if IsCustom(pool.Name) && worker != nil && worker.Spec.OSImageStream.Name != "" {
		return Choice{
			Name: worker.Spec.OSImageStream.Name, Explicit: true,
			Reason: fmt.Sprintf("spec.osImageStream of the pool %q names it, and this pool names none", worker.Name),
		}
	}
	if on := pool.Status.OSImageStream.Name; on != "" {
		return Choice{Name: on, Reason: "the pool's nodes are on it, and nobody names another"}
	}
	if streams != nil && streams.Status.DefaultStream != "" {
		return Choice{Name: streams.Status.DefaultStream, Reason: "it is the default"}
	}
	return Choice{}
}

// IsCustom tells whether a pool of the given name is one that an administrator adds, as opposed to master, worker and arbiter.
func IsCustom(pool string) bool { return mcfgv1.IsCustomPool(pool) }

// find looks a stream up, and lists all there are.
func find(streams *mcfgv1.OSImageStream, name string) (found *mcfgv1.OSImageStreamSet, available []string) {
	if streams == nil {
		return nil, nil
	}
	for i := range streams.Status.AvailableStreams {
		stream := &streams.Status.AvailableStreams[i]
		available = append(available, stream.Name)
		if stream.Name == name {
			found = stream
		}
	}
	return found, available
}

func notFound(choice Choice, available []string) error {
	are := "available are: " + strings.Join(available, ", ")
	if len(available) == 0 {
		are = fmt.Sprintf("OSImageStream %q lists none", mcfgv1.OSImageStreamName)
	}
	return &Error{Stream: choice.Name, Reason: mcfgv1.ReasonStreamNotFound, Message: fmt.Sprintf(
		"stream %q is not available (%s); %s", choice.Name, choice.Reason, are)}
}
