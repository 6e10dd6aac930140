package v1

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SetStreams puts the available streams and their default into the status, with the names that columns show.
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

// SetStart records the start of a build. A start that is recorded stays: the API server refuses to change it.
func (s *MachineOSBuildStatus) SetStart(now time.Time) {
	if s.BuildStart == nil {
		s.BuildStart = new(metav1.NewTime(now.Truncate(time.Second)))
	}
}

// SetEnd records the end of a build, its start if it had none, and its duration. The API server keeps whole seconds and refuses an end
// that is not later than the start, so a build that took no time at all has taken one second. An end that is recorded stays.
func (s *MachineOSBuildStatus) SetEnd(now time.Time) {
	if s.BuildEnd != nil {
		return
	}
	s.SetStart(now)
	end := now.Truncate(time.Second)
	if earliest := s.BuildStart.Add(time.Second); end.Before(earliest) {
		end = earliest
	}
	s.BuildEnd = new(metav1.NewTime(end))
	s.Duration = end.Sub(s.BuildStart.Time).String()
}
