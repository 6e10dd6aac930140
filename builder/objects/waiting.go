package objects

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
)

// BeginsToWait is the condition that says what an object has begun to wait for; nil where that is
// nothing new. What it goes on to wait for is told once, however the rest of the message changes.
func BeginsToWait(before, after []metav1.Condition) *metav1.Condition {
	was, is := status.Find(before, status.Reconciling), status.Find(after, status.Reconciling)
	if waits := waitsFor(is); waits == "" || waits == waitsFor(was) {
		return nil
	}
	return is
}

// waitsFor identifies what a condition says is waited for; empty where that is nothing, or is under
// way.
func waitsFor(c *metav1.Condition) string {
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	if !strings.HasPrefix(c.Reason, mcfgv1.ReasonWaiting) && c.Reason != mcfgv1.ReasonRetrying && c.Reason != mcfgv1.ReasonRetryingBuild {
		return ""
	}
	what, _, _ := strings.Cut(c.Message, ":")
	return c.Reason + " " + what
}
