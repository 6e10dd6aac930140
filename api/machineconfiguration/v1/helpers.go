package v1

import "strings"

// SetStreams puts the available streams and their default into the status, with the names that
// columns show.
func (s *OSImageStreamStatus) SetStreams(streams []OSImageStreamSet, defaultStream string) {
	names := map[StreamLifecycle][]string{}
	var all []string
	for _, stream := range streams {
		all = append(all, stream.Name)
		names[stream.Lifecycle] = append(names[stream.Lifecycle], stream.Name)
	}
	s.AvailableStreams, s.DefaultStream = streams, defaultStream
	s.StreamNames = strings.Join(all, ",")
	s.DeprecatedStreamNames = strings.Join(names[StreamDeprecated], ",")
	s.EndOfLifeStreamNames = strings.Join(names[StreamEndOfLife], ",")
}

// IsPushOnly reports whether the images of the MachineOSConfig are built and not rolled out.
func (c *MachineOSConfig) IsPushOnly() bool {
	_, isHeld := c.Annotations[AnnotationNoRollout]
	return isHeld || c.Spec.PostBuildStrategy == ImagePushOnly
}
