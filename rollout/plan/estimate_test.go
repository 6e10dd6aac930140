package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/rollout/plan"
)

func TestEstimate(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		plan  plan.Plan
		after time.Duration
		want  time.Duration // from the start; 0 is none
	}{
		"a third is done":                  {plan.Plan{Updated: 3, Total: 9}, 30 * time.Minute, 90 * time.Minute},
		"the last one is left":             {plan.Plan{Updated: 8, Total: 9}, 80 * time.Minute, 90 * time.Minute},
		"no node is there yet":             {plan.Plan{Total: 9}, time.Hour, 0},
		"all are there":                    {plan.Plan{Updated: 9, Total: 9}, time.Hour, 0},
		"the pool has no nodes":            {plan.Plan{}, time.Hour, 0},
		"the image is held back":           {plan.Plan{Updated: 3, Total: 9, Hold: "the pool is paused"}, time.Hour, 0},
		"the clock was set back meanwhile": {plan.Plan{Updated: 3, Total: 9}, -time.Hour, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tt.plan.Estimate(start, start.Add(tt.after))
			if tt.want == 0 {
				require.Zero(t, got)
				return
			}
			require.Equal(t, start.Add(tt.want), got)
		})
	}
}
