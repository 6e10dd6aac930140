package pooltag

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/status"
)

func TestTaggedSince(t *testing.T) {
	t.Parallel()
	t0 := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	at := func(second int) *metav1.Time { return new(metav1.NewTime(t0.Add(time.Duration(second) * time.Second))) }
	build := func(image string, end int, tag mcfgv1.PoolTagPolicy, is string) *mcfgv1.MachineOSBuild {
		b := &mcfgv1.MachineOSBuild{}
		b.Status.DigestedImagePushSpec, b.Status.PoolTag = mcfgv1.ImageDigestFormat(image), tag
		b.Status.Conditions = []metav1.Condition{{Type: is, Status: metav1.ConditionTrue}}
		if end > 0 {
			b.Status.BuildEnd = at(end)
		}
		return b
	}
	moved := func(image string, second int) *mcfgv1.PoolTag {
		return &mcfgv1.PoolTag{PullSpec: mcfgv1.ImageDigestFormat(image), MovedTime: *at(second)}
	}
	const later, itself = mcfgv1.PoolTagWhenReady, mcfgv1.PoolTagPolicy("")
	tests := map[string]struct {
		tag    *mcfgv1.PoolTag
		wanted *mcfgv1.MachineOSBuild
		others []*mcfgv1.MachineOSBuild
		since  *metav1.Time
	}{
		"its build has set it":                             {nil, build("a", 5, itself, status.BuildSucceeded), nil, at(5)},
		"its build has not":                                {nil, build("a", 5, later, status.BuildSucceeded), nil, nil},
		"it was moved since":                               {moved("a", 6), build("a", 5, later, status.BuildSucceeded), nil, at(6)},
		"it was moved, and another build began":            {moved("a", 6), build("a", 5, later, status.BuildSucceeded), []*mcfgv1.MachineOSBuild{build("", 0, itself, status.BuildBuilding)}, at(6)},
		"it was moved, and another build failed":           {moved("a", 6), build("a", 5, later, status.BuildSucceeded), []*mcfgv1.MachineOSBuild{build("", 7, itself, status.BuildFailed)}, at(6)},
		"it was moved, and another build set it":           {moved("a", 6), build("a", 5, later, status.BuildSucceeded), []*mcfgv1.MachineOSBuild{build("b", 7, itself, status.BuildSucceeded)}, nil},
		"it was moved, and another build left it":          {moved("a", 6), build("a", 5, later, status.BuildSucceeded), []*mcfgv1.MachineOSBuild{build("b", 7, later, status.BuildSucceeded)}, at(6)},
		"it was moved before the image was made again":     {moved("a", 4), build("a", 5, later, status.BuildSucceeded), nil, nil},
		"it was moved elsewhere":                           {moved("b", 6), build("a", 5, later, status.BuildSucceeded), nil, nil},
		"it was moved elsewhere after its build":           {moved("b", 6), build("a", 5, itself, status.BuildSucceeded), nil, nil},
		"it was elsewhere before its build":                {moved("b", 4), build("a", 5, itself, status.BuildSucceeded), []*mcfgv1.MachineOSBuild{build("b", 4, itself, status.BuildSucceeded)}, at(5)},
		"it was elsewhere before its build, a moment":      {moved("b", 5), build("a", 5, itself, status.BuildSucceeded), []*mcfgv1.MachineOSBuild{build("b", 5, itself, status.BuildSucceeded)}, at(5)},
		"an older image's build ended later":               {moved("a", 5), build("a", 5, itself, status.BuildSucceeded), []*mcfgv1.MachineOSBuild{build("b", 9, itself, status.BuildSucceeded)}, nil},
		"an earlier version has built both, the other one": {nil, build("a", 5, itself, status.BuildSucceeded), []*mcfgv1.MachineOSBuild{build("b", 9, itself, status.BuildSucceeded)}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			builds := slices.Concat(tt.others, []*mcfgv1.MachineOSBuild{tt.wanted})
			since, has := taggedSince(tt.tag, tt.wanted, builds)
			assert.Equal(t, tt.since != nil, has)
			if tt.since != nil {
				assert.Equal(t, *tt.since, since)
			}
			after := afterAll(builds, t0)
			for _, b := range builds {
				assert.Greater(t, objects.Stamp(after), objects.EndOf(b), "what is moved now is moved after all builds")
			}
		})
	}
}
