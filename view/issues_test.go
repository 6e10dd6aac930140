package view

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/layerwright/layerwright/rollout/words"
)

// TestWhatSomeoneHasToActUponIsAnIssue guards the rows of meanings.
func TestWhatSomeoneHasToActUponIsAnIssue(t *testing.T) {
	t.Parallel()
	for i := range meanings {
		m := &meanings[i]
		if m.assessment >= Held {
			assert.NotEmpty(t, m.issue, m.begins)
		}
		if m.issue != "" {
			assert.Contains(t, Issues(), m.issue)
		}
	}
}

func TestIssue(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		words.NotReady + ", and is not moved":                IssueNodeNotReady,
		words.DiskPressure + ", and is not moved":            IssueNoSpace,
		words.StageFailed + "write: no space left on device": IssueNoSpace,
		words.StageFailed + "no answer":                      IssueNodeFailed,
		words.Draining + ": pod a/b" + words.BlockedBy + "x": IssueDrainBlocked,
		words.WaitsForSlot + "n-1 is rebooting":              "",
		"no one has ever said this":                          "",
	} {
		name, _ := Issue(reason, "n-0", "worker", "layerwright")
		assert.Equal(t, want, name, reason)
	}
	_, command := Issue(words.Cordoned, "n-0; reboot", "worker", "layerwright")
	assert.Empty(t, command, "a name that is no name is never in a command")
}
