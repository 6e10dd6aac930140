package streams

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// living makes an OSImageStream with streams of given lifecycles.
func living(of map[string]mcfgv1.StreamLifecycle, names ...string) *mcfgv1.OSImageStream {
	s := listing(names...)
	for i := range s.Status.AvailableStreams {
		s.Status.AvailableStreams[i].Lifecycle = of[names[i]]
	}
	return s
}

func TestStandingOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)
	nine := map[string]mcfgv1.StreamLifecycle{"rhel-9": mcfgv1.StreamDeprecated}
	dated := listing("rhel-9", "rhel-10")
	dated.Status.AvailableStreams[0].DeprecationDate, dated.Status.AvailableStreams[0].EndOfLifeDate = "2027-06-01", "2028-06-01"
	tests := map[string]struct {
		streams *mcfgv1.OSImageStream
		stream  string
		want    Standing
	}{
		"supported":                        {listing("rhel-9", "rhel-10"), "rhel-9", Standing{Lifecycle: mcfgv1.StreamSupported}},
		"deprecated":                       {living(nine, "rhel-9", "rhel-10"), "rhel-9", Standing{Lifecycle: mcfgv1.StreamDeprecated, Successor: "rhel-10"}},
		"by date":                          {dated, "rhel-9", Standing{Lifecycle: mcfgv1.StreamDeprecated, Successor: "rhel-10"}},
		"removed":                          {listing("rhel-10"), "rhel-9", Standing{Lifecycle: mcfgv1.StreamEndOfLife, Removed: true, Successor: "rhel-10"}},
		"no one knows":                     {listing(), "rhel-9", Standing{Lifecycle: mcfgv1.StreamSupported}},
		"no OSImageStreams":                {nil, "rhel-9", Standing{Lifecycle: mcfgv1.StreamSupported}},
		"the next one, and not the newest": {living(nine, "rhel-11", "rhel-9", "rhel-10"), "rhel-9", Standing{Lifecycle: mcfgv1.StreamDeprecated, Successor: "rhel-10"}},
		"a successor is alive": {
			living(map[string]mcfgv1.StreamLifecycle{"rhel-9": mcfgv1.StreamEndOfLife, "rhel-10": mcfgv1.StreamEndOfLife}, "rhel-9", "rhel-10", "rhel-11"), "rhel-9",
			Standing{Lifecycle: mcfgv1.StreamEndOfLife, Successor: "rhel-11"},
		},
		"a successor is supported if there is one": {
			living(map[string]mcfgv1.StreamLifecycle{"rhel-9": mcfgv1.StreamEndOfLife, "rhel-10": mcfgv1.StreamDeprecated}, "rhel-9", "rhel-10", "rhel10-coreos"), "rhel-9",
			Standing{Lifecycle: mcfgv1.StreamEndOfLife, Successor: "rhel10-coreos"},
		},
		"a successor is spelled alike": {
			living(map[string]mcfgv1.StreamLifecycle{"rhel9-coreos": mcfgv1.StreamDeprecated}, "rhel9-coreos", "rhel-10", "rhel10-coreos"), "rhel9-coreos",
			Standing{Lifecycle: mcfgv1.StreamDeprecated, Successor: "rhel10-coreos"},
		},
		"another family is none": {living(nine, "rhel-9", "centos-10"), "rhel-9", Standing{Lifecycle: mcfgv1.StreamDeprecated}},
		"no version, no successor": {
			living(map[string]mcfgv1.StreamLifecycle{"fedora-coreos": mcfgv1.StreamDeprecated}, "fedora-coreos", "fedora-43"), "fedora-coreos",
			Standing{Lifecycle: mcfgv1.StreamDeprecated},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.want.Stream = tt.stream
			assert.Equal(t, tt.want, StandingOf(tt.streams, tt.stream, now))
		})
	}
}

func TestInUse(t *testing.T) {
	t.Parallel()
	assert.Empty(t, InUse(pool("worker", "rhel-10", "")), "what is only asked for is not used yet")
	assert.Equal(t, []string{"rhel-9"}, InUse(pool("worker", "rhel-10", "rhel-9")))
	assert.Equal(t, []string{"rhel-9"}, InUse(remembering(pool("worker", "", "rhel-9"), "rhel-9")))
	assert.Equal(t, []string{"rhel-10", "rhel-9"}, InUse(remembering(pool("worker", "", "rhel-9"), "rhel-10")), "nodes are still on the old one")
}

func TestFollowing(t *testing.T) {
	t.Parallel()
	worker := pool("worker", "rhel-10", "")
	assert.Equal(t, "rhel-9", Following(pool("infra", "rhel-9", ""), worker))
	assert.Equal(t, "rhel-10", Following(remembering(pool("infra", "", ""), "rhel-9"), worker))
	assert.Equal(t, "rhel-9", Following(remembering(pool("master", "", ""), "rhel-9"), worker))
	assert.Equal(t, "rhel-9", Following(pool("infra", "", "rhel-9"), nil))
	assert.Empty(t, Following(pool("infra", "", ""), nil))
}

func TestNextChangeOf(t *testing.T) {
	t.Parallel()
	s := listing("rhel-9", "rhel-10")
	s.Status.AvailableStreams[0].EndOfLifeDate, s.Status.AvailableStreams[1].DeprecationDate = "2028-06-01", "2027-06-01"
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	at, ok := NextChangeOf(s, []string{"rhel-9", "rhel-10", "rhel-8"}, now)
	assert.True(t, ok)
	assert.Equal(t, time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC), at)
	at, ok = NextChangeOf(s, []string{"rhel-9"}, now)
	assert.True(t, ok)
	assert.Equal(t, time.Date(2028, 6, 1, 0, 0, 0, 0, time.UTC), at)
	_, ok = NextChangeOf(s, nil, now)
	assert.False(t, ok)
	_, ok = NextChangeOf(nil, []string{"rhel-9"}, now)
	assert.False(t, ok)
}
