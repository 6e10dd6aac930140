package streams

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Recorded is the stream that was written down for a pool: the one that its configuration was
// rendered with last or, where that was lost, the one that its nodes have arrived on.
func Recorded(pool *mcfgv1.MachineConfigPool) string {
	if name := pool.Annotations[mcfgv1.AnnotationRememberedStream]; name != "" {
		return name
	}
	return pool.Status.OSImageStream.Name
}

// remembered is the stream that a pool is on although no one names it, by the first of these that
// tells:
//   - the annotation that is written with the pool's configuration, so that it is valid before the
//     first node has arrived;
//   - status.osImageStream, which is all there is of a pool whose annotation was lost;
//   - the OS image of the pool's configuration, if a stream has that one now;
//   - what the nodes run, for a pool that was rendered before there were streams: an Error if that
//     is of no stream.
//
// The last two are for pools that had a configuration before. A new pool has nothing to remember,
// whatever runs on the nodes that it is given.
func (s Subject) remembered(streams *mcfgv1.OSImageStream) (Choice, error) {
	if name := s.Pool.Annotations[mcfgv1.AnnotationRememberedStream]; name != "" {
		return Choice{Name: name, Reason: "the pool is on it, and no other stream is requested"}, nil
	}
	if name := s.Pool.Status.OSImageStream.Name; name != "" {
		return Choice{Name: name, Reason: "the pool's nodes are on it, and no other stream is requested"}, nil
	}
	if !listsAny(streams) || s.Pool.Spec.Configuration.Name == "" && s.Pool.Status.Configuration.Name == "" {
		return Choice{}, nil
	}
	if name := s.byImage(streams); name != "" {
		return Choice{Name: name, Reason: "the pool's configuration has its OS image, and no other stream is requested"}, nil
	}
	return s.byKernel(streams)
}

// byImage is the stream of the pool's configuration; of several with the same image, the default
// comes first.
func (s Subject) byImage(streams *mcfgv1.OSImageStream) string {
	if s.Rendered == nil {
		return ""
	}
	if name := s.Rendered.Annotations[mcfgv1.AnnotationOSImageStream]; name != "" {
		return name
	}
	found := ""
	for i := range streams.Status.AvailableStreams {
		stream := &streams.Status.AvailableStreams[i]
		isOf := stream.OSImage != "" && string(stream.OSImage) == s.Rendered.Spec.OSImageURL
		if isOf && (found == "" || stream.Name == streams.Status.DefaultStream) {
			found = stream.Name
		}
	}
	return found
}

// byKernel is the stream of the major version that the pool's nodes run, as their kernels tell. It
// is empty if they tell nothing.
func (s Subject) byKernel(streams *mcfgv1.OSImageStream) (Choice, error) {
	var majors []int
	for _, kernel := range s.Kernels {
		if major, ok := kernelMajor(kernel); ok && !slices.Contains(majors, major) {
			majors = append(majors, major)
		}
	}
	if len(majors) == 0 {
		return Choice{}, nil
	}
	slices.Sort(majors)
	var fitting []string
	for i := range streams.Status.AvailableStreams {
		name := streams.Status.AvailableStreams[i].Name
		if _, major, ok := parse(name); ok && majors[0] == major {
			fitting = append(fitting, name)
		}
	}
	_, _, hasVersion := parse(streams.Status.DefaultStream)
	switch {
	case len(majors) == 1 && slices.Contains(fitting, streams.Status.DefaultStream):
		fitting = []string{streams.Status.DefaultStream}
	case len(majors) == 1 && len(fitting) == 0 && !hasVersion: // the default is of no version that could differ
		return Choice{}, nil
	}
	if len(majors) > 1 || len(fitting) != 1 {
		return Choice{}, &Error{Reason: mcfgv1.ReasonStreamNotFound, Message: fmt.Sprintf(
			"the pool's nodes run version %s, by their kernels, and their stream is unknown; set spec.osImageStream of the pool; %s",
			joined(majors), available(streams))}
	}
	return Choice{Name: fitting[0], Reason: fmt.Sprintf("the pool's nodes run version %d, and no other stream is requested", majors[0])}, nil
}

func joined(numbers []int) string {
	var words []string
	for _, n := range numbers {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, " and ")
}

// kernelMajor takes the major version of Enterprise Linux and its kin from the version of their
// kernel.
func kernelMajor(kernel string) (int, bool) {
	_, version, ok := strings.Cut(kernel, ".el")
	if !ok {
		return 0, false
	}
	major, err := strconv.Atoi(version[:min(span(version, isDigit), maxMajorDigits)])
	return major, err == nil
}
