package demo

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func condition(conditionType string, is metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: is, Reason: reason, Message: message}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	require.Equal(t, "it says nothing yet", summary(nil))
	require.Equal(t, "Building: the image is being made", summary([]metav1.Condition{condition("Ready", "Unknown", "Building", "the image is being made")}))
	require.Equal(t, "Succeeded", summary([]metav1.Condition{condition("Ready", "True", "Succeeded", "")}))
}

func TestStuckError(t *testing.T) {
	t.Parallel()
	err := &StuckError{What: "the image", Says: []string{"X: a", "Y: b"}, Advice: []string{"More:", "  look"}, cause: errStalled}
	require.Equal(t, "waiting for the image: it is stalled, nothing happens until you act\n  X: a\n  Y: b\nMore:\n  look", err.Error())
	require.ErrorIs(t, err, errStalled)
}
