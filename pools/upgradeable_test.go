package pools

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/metrics"
)

// remembering has a pool's configuration be of a stream.
func remembering(stream string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, mcfgv1.AnnotationRememberedStream, stream)
	}
}

// aging makes streams of which the first, the default, is in a lifecycle.
func aging(lifecycle mcfgv1.StreamLifecycle, names ...string) *mcfgv1.OSImageStream {
	s := newStream(names...)
	s.Status.AvailableStreams[0].Lifecycle = lifecycle
	return s
}

func TestUpgradeable(t *testing.T) {
	t.Parallel()
	var many []*mcfgv1.MachineConfigPool
	for i := range 8 {
		many = append(many, newPool(fmt.Sprint("p", i), remembering("rhel9-coreos")))
	}
	const using = "MachineConfigPool 'worker' is using deprecated stream 'rhel9-coreos' which is not supported in this release."
	tests := map[string]struct {
		pools []*mcfgv1.MachineConfigPool
		set   *mcfgv1.OSImageStream
		want  string // the message; empty is that nothing is in the way
	}{
		"no pool":             {nil, aging(mcfgv1.StreamEndOfLife, "rhel9-coreos"), ""},
		"a supported stream":  {[]*mcfgv1.MachineConfigPool{newPool("worker", remembering("rhel9-coreos"))}, newStream("rhel9-coreos"), ""},
		"a deprecated stream": {[]*mcfgv1.MachineConfigPool{newPool("worker", remembering("rhel9-coreos"))}, aging(mcfgv1.StreamDeprecated, "rhel9-coreos"), ""},
		"one at its end that no one uses, although a pool asks for it": {
			[]*mcfgv1.MachineConfigPool{newPool("worker", remembering("rhel10-coreos"), naming("rhel9-coreos"))}, aging(mcfgv1.StreamEndOfLife, "rhel9-coreos", "rhel10-coreos"), "",
		},
		"one at its end": {
			[]*mcfgv1.MachineConfigPool{newPool("worker", remembering("rhel9-coreos"))},
			aging(mcfgv1.StreamEndOfLife, "rhel9-coreos", "rhel10-coreos"),
			"Cannot upgrade: " + using + " Migrate pool to 'rhel10-coreos' before upgrading.",
		},
		"one at its end that nodes have not left": {
			[]*mcfgv1.MachineConfigPool{newPool("worker", remembering("rhel10-coreos"), onStream("rhel9-coreos"))},
			aging(mcfgv1.StreamEndOfLife, "rhel9-coreos", "rhel10-coreos"),
			"Cannot upgrade: " + using + " Migrate pool to 'rhel10-coreos' before upgrading.",
		},
		"one that was removed": {
			[]*mcfgv1.MachineConfigPool{newPool("worker", remembering("rhel9-coreos")), newPool("infra", remembering("rhel-11"))},
			newStream("rhel-11"),
			"Cannot upgrade: " + using + " Migrate pool to 'rhel-11' before upgrading.",
		},
		"without a successor": {
			[]*mcfgv1.MachineConfigPool{newPool("worker", remembering("rhel9-coreos"))},
			aging(mcfgv1.StreamEndOfLife, "rhel9-coreos"),
			"Cannot upgrade: " + using + " Migrate pool to another stream before upgrading.",
		},
		"no one knows any stream": {[]*mcfgv1.MachineConfigPool{newPool("worker", remembering("rhel9-coreos"))}, nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := metav1.Condition{Type: "Upgradeable", Status: metav1.ConditionTrue, Reason: "Succeeded"}
			if tt.want != "" {
				want = metav1.Condition{Type: "Upgradeable", Status: metav1.ConditionFalse, Reason: "DeprecatedOSStreamInUse", Message: tt.want}
			}
			assert.Equal(t, want, upgradeable(tt.pools, tt.set, t0))
		})
	}
	assert.Contains(t, upgradeable(many, aging(mcfgv1.StreamEndOfLife, "rhel9-coreos"), t0).Message, " And 3 more pools.")
}

func TestUpgradeableChangesWithTheDay(t *testing.T) {
	t.Parallel()
	set := newStream("rhel-9", "rhel-10")
	set.Status.AvailableStreams[0].EndOfLifeDate = "2027-05-31"
	pools := []*mcfgv1.MachineConfigPool{newPool("worker", remembering("rhel-9"))}
	day := time.Date(2027, 5, 31, 0, 0, 0, 0, time.UTC)
	assert.Equal(t, metav1.ConditionTrue, upgradeable(pools, set, day.Add(-time.Second)).Status)
	assert.Equal(t, metav1.ConditionFalse, upgradeable(pools, set, day).Status)
	assert.Equal(t, time.Second, recheckAll(pools, set, day.Add(-time.Second)))
	assert.Equal(t, maxRecheck, recheckAll(pools, set, t0))
	assert.Zero(t, recheckAll(pools, set, day))
	assert.Zero(t, recheckAll(nil, set, t0))
}

func TestStreamsInUse(t *testing.T) {
	t.Parallel()
	pools := []mcfgv1.MachineConfigPool{
		*newPool("worker", remembering("rhel-10"), onStream("rhel-9")), *newPool("infra", remembering("rhel-8")), *newPool("new"),
	}
	assert.Equal(t, []metrics.PoolStream{
		{Pool: "worker", Stream: "rhel-10", Lifecycle: "Supported"},
		{Pool: "worker", Stream: "rhel-9", Lifecycle: "Deprecated"},
		{Pool: "infra", Stream: "rhel-8", Lifecycle: "Removed"},
	}, StreamsInUse(pools, aging(mcfgv1.StreamDeprecated, "rhel-9", "rhel-10"), t0))
}
