package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
)

func TestContentBuild(t *testing.T) {
	t.Parallel()
	at := func(second int, name string, changes ...func(*plan.Existing)) plan.Existing {
		b := plan.Existing{Name: name, Content: "c", Created: time.Unix(int64(second), 0)}
		for _, change := range changes {
			change(&b)
		}
		return b
	}
	begun := func(b *plan.Existing) { b.Stage = mcfgv1.BuildStageBuilding }
	tests := map[string]struct {
		builds []plan.Existing
		want   string
	}{
		"the oldest makes it":       {[]plan.Existing{at(2, "b"), at(1, "c"), at(3, "a")}, "c"},
		"of one second, the first":  {[]plan.Existing{at(1, "b"), at(1, "a")}, "a"},
		"one that has begun before": {[]plan.Existing{at(1, "a"), at(2, "b", begun)}, "b"},
		"another content":           {[]plan.Existing{at(1, "a", func(b *plan.Existing) { b.Content = "d" })}, ""},
		"one that has ended":        {[]plan.Existing{at(1, "a", func(b *plan.Existing) { b.Stage = failed })}, ""},
		"one that goes":             {[]plan.Existing{at(1, "a", func(b *plan.Existing) { b.Deleting = true })}, ""},
		"one that has made it":      {[]plan.Existing{at(1, "a", begun, func(b *plan.Existing) { b.Image = "i" }), at(2, "b")}, "b"},
		"one that waits for a node": {[]plan.Existing{at(1, "a", begun, func(b *plan.Existing) { b.Reason = mcfgv1.ReasonWaiting }), at(2, "b")}, "b"},
		"none":                      {nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, plan.ContentBuild(tt.builds, "c"))
			assert.Empty(t, plan.ContentBuild(tt.builds, ""), "nothing to build is shared by no one")
		})
	}
}
