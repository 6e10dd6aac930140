package v1

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSetStreams(t *testing.T) {
	t.Parallel()
	var status OSImageStreamStatus
	status.SetStreams([]OSImageStreamSet{
		{Name: "rhel-9"},
		{Name: "rhel-10", Lifecycle: StreamSupported},
		{Name: "rhel-8", Lifecycle: StreamDeprecated},
		{Name: "rhel-7", Lifecycle: StreamEndOfLife},
		{Name: "rhel-6", Lifecycle: StreamEndOfLife},
	}, "rhel-9")
	assert.Equal(t, "rhel-9,rhel-10,rhel-8,rhel-7,rhel-6", status.StreamNames)
	assert.Equal(t, "rhel-8", status.DeprecatedStreamNames)
	assert.Equal(t, "rhel-7,rhel-6", status.EndOfLifeStreamNames)
	status.SetStreams(nil, "")
	assert.Equal(t, OSImageStreamStatus{}, status)
}

func TestSetEnd(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 12, 0, 0, 600e6, time.UTC)
	second := at.Truncate(time.Second)
	tests := map[string]struct {
		start    *metav1.Time
		now      time.Time
		end      time.Time
		duration string
	}{
		"a build that took three minutes":             {new(metav1.NewTime(second)), at.Add(3 * time.Minute), second.Add(3 * time.Minute), "3m0s"},
		"a build that ended in the second it started": {new(metav1.NewTime(second)), at, second.Add(time.Second), "1s"},
		"a build that never started":                  {nil, at, second.Add(time.Second), "1s"},
		"a clock that went back":                      {new(metav1.NewTime(second)), at.Add(-time.Hour), second.Add(time.Second), "1s"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := MachineOSBuildStatus{BuildStart: test.start}
			status.SetEnd(test.now)
			assert.Equal(t, second, status.BuildStart.Time)
			assert.Equal(t, test.end, status.BuildEnd.Time)
			assert.Equal(t, test.duration, status.Duration)
			before := status.DeepCopy()
			status.SetStart(test.now.Add(time.Hour))
			status.SetEnd(test.now.Add(time.Hour))
			assert.Equal(t, *before, status, "both stay")
		})
	}
}
