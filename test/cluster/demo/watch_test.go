package demo

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func condition(conditionType string, is metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: is, Reason: reason, Message: message}
}

func TestConditionLines(t *testing.T) {
	t.Parallel()
	const denied = "secret registry-push may not write to os/worker: use another secret"
	tests := map[string]struct {
		conditions []metav1.Condition
		want       []string
	}{
		"an object that no one has seen": {nil, []string{"X: it has no conditions, so the controller has not seen it"}},
		"all is well":                    {[]metav1.Condition{condition("Ready", "True", "Succeeded", "")}, []string{"X: Ready is True, Succeeded"}},
		"what is in the way, once": {
			[]metav1.Condition{
				condition("RenderDegraded", "False", "Succeeded", ""),
				condition("Ready", "False", "PushDenied", denied),
				condition("Stalled", "True", "PushDenied", denied),
				condition("ImageBuildDegraded", "True", "BuildFailed", "Failed to build OS image for pool worker"),
				condition("Degraded", "True", "PushDenied", denied),
			},
			[]string{"X: Stalled is True, PushDenied: " + denied, "X: ImageBuildDegraded is True, BuildFailed: Failed to build OS image for pool worker"},
		},
		"what it waits for": {
			[]metav1.Condition{condition("Reconciling", "True", "WaitingForSecret", "no secret"), condition("Ready", "Unknown", "WaitingForSecret", "no secret")},
			[]string{"X: Reconciling is True, WaitingForSecret: no secret"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, conditionLines("X", tc.conditions))
		})
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	require.Equal(t, "it says nothing yet", summary(nil))
	require.Equal(t, "Building: the image is being made", summary([]metav1.Condition{condition("Ready", "Unknown", "Building", "the image is being made")}))
	require.Equal(t, "Succeeded", summary([]metav1.Condition{condition("Ready", "True", "Succeeded", "")}))
}

func TestStuckError(t *testing.T) {
	t.Parallel()
	err := &StuckError{What: "the image", Conditions: []string{"X: a", "Y: b"}, Advice: []string{"More:", "  look"}, cause: errStalled}
	require.Equal(t, "waiting for the image: it is stalled, nothing happens until you act\n  X: a\n  Y: b\nMore:\n  look", err.Error())
	require.ErrorIs(t, err, errStalled)
}
