package status

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// Reasons that any kind may show. A kind's own are constants beside its type, in the api packages.
const (
	// ReasonNotYetObserved: the controller has not looked at this yet.
	ReasonNotYetObserved = mcfgv1.ReasonNotYetObserved
	// ReasonRetrying: an error that trying again may cure; the message has it.
	ReasonRetrying = mcfgv1.ReasonRetrying
	// ReasonWaiting: someone else is expected to act, and whoever knows so gave no better reason.
	ReasonWaiting = mcfgv1.ReasonWaiting
	// ReasonInvalid: a person must change something, and whoever knows so gave no better reason.
	ReasonInvalid = mcfgv1.ReasonInvalid
	// ReasonSucceeded: all is as the spec wants it.
	ReasonSucceeded = mcfgv1.ReasonSucceeded
	// ReasonUnspecified stands in for a reason that was left out, which is a mistake in the
	// program: the API requires one.
	ReasonUnspecified = mcfgv1.ReasonUnspecified
)

// maxReason is the length that the API allows.
const maxReason = 1024

// Set writes one condition and reports whether that changed anything. The transition time is now if
// the status is new or differs, and stays otherwise; whatever c says of it is ignored. Reason and
// message are made fit for the API: the reason CamelCase and never empty, the message without
// secrets of URLs and cut (fault.Clean).
func Set(conditions *[]metav1.Condition, now time.Time, c metav1.Condition) bool {
	c.Reason = camelCase(c.Reason)
	c.Message = fault.Clean(c.Message)
	c.LastTransitionTime = Second(now)
	old := Find(*conditions, c.Type)
	if old == nil {
		*conditions = append(*conditions, c)
		return true
	}
	if old.Status == c.Status && !old.LastTransitionTime.IsZero() {
		c.LastTransitionTime = old.LastTransitionTime
	}
	changed := *old != c
	*old = c
	return changed
}

// Remove removes the condition of the given type and reports whether there was one. The list keeps
// its order.
func Remove(conditions *[]metav1.Condition, conditionType string) bool {
	return meta.RemoveStatusCondition(conditions, conditionType)
}

// Find gives the condition of the given type for reading and writing in place, nil if there is
// none.
func Find(conditions []metav1.Condition, conditionType string) *metav1.Condition {
	return meta.FindStatusCondition(conditions, conditionType)
}

// IsTrue reports whether the condition of the given type is there and True.
func IsTrue(conditions []metav1.Condition, conditionType string) bool {
	return meta.IsStatusConditionTrue(conditions, conditionType)
}

// Init writes every condition of the given types that is not there yet as Unknown, NotYetObserved:
// what a controller shows of an object that it sees for the first time.
func Init(conditions *[]metav1.Condition, now time.Time, generation int64, types ...string) {
	for _, t := range types {
		if Find(*conditions, t) == nil {
			Set(conditions, now, metav1.Condition{
				Type: t, Status: metav1.ConditionUnknown, Reason: ReasonNotYetObserved, ObservedGeneration: generation,
			})
		}
	}
}

// Second is the given time as the API stores it: in UTC, without what is below a second. Status
// times are made with it, so that an object in memory equals the same object read back.
func Second(now time.Time) metav1.Time { return metav1.NewTime(now.UTC().Truncate(time.Second)) }

// NotBefore is now, or when a condition changed last: the process before may have run on a machine
// whose clock is ahead.
func NotBefore(now time.Time, conditions []metav1.Condition) time.Time {
	for _, c := range conditions {
		if c.LastTransitionTime.After(now) {
			now = c.LastTransitionTime.Time
		}
	}
	return now
}

// camelCase makes a reason of any text, such as that of a pod: "image-not found" becomes
// ImageNotFound.
func camelCase(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !isLetter(r) && !isDigit(r) })
	var b strings.Builder
	for _, word := range words {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	reason := strings.TrimLeftFunc(b.String(), isDigit)
	if reason == "" {
		return ReasonUnspecified
	}
	reason = strings.ToUpper(reason[:1]) + reason[1:]
	return reason[:min(len(reason), maxReason)]
}

func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// isAbout reports whether a condition speaks of the given generation. Conditions of some published
// kinds don't say.
func isAbout(c *metav1.Condition, generation int64) bool {
	return c.ObservedGeneration == 0 || c.ObservedGeneration == generation
}
