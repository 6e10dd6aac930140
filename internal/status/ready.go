package status

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// The condition types of kstatus, which every kind of ours shows.
const (
	// Ready: the object is as its spec wants it. Always there.
	Ready = mcfgv1.ConditionReady
	// Reconciling: the controller works on it or waits for someone; there only while True.
	Reconciling = mcfgv1.ConditionReconciling
	// Stalled: nothing moves until a person changes something; there only while True.
	Stalled = mcfgv1.ConditionStalled
)

// State is what Ready, Reconciling and Stalled say together. Every combination that makes sense is
// one State, from bad to good.
type State int

const (
	// StateUnset is no state: in a Rule it stands for the default.
	StateUnset State = iota
	// StateStalled is Ready=False, Stalled=True.
	StateStalled
	// StateFailing is Ready=False, Reconciling=True: not as wanted, and being worked on.
	StateFailing
	// StateReconciling is Ready=Unknown, Reconciling=True: not known to be bad, not yet good.
	StateReconciling
	// StateNotYetObserved is Ready=Unknown alone: what the first visit shows.
	StateNotYetObserved
	// StateReady is Ready=True alone.
	StateReady
)

// Summary is the State of an object and why: what Ready says, and Reconciling or Stalled with it.
type Summary struct {
	State   State
	Reason  string
	Message string
}

// SetSummary writes Ready, Reconciling and Stalled as the summary says and reports whether that
// changed anything. The message of Ready is one line, because kubectl shows it in a column; the
// other two keep the lines of the summary.
func SetSummary(conditions *[]metav1.Condition, now time.Time, generation int64, s Summary) bool {
	c := metav1.Condition{Type: Ready, Status: metav1.ConditionUnknown, Reason: s.Reason, Message: oneLine(s.Message), ObservedGeneration: generation}
	companion := ""
	switch s.State {
	case StateStalled:
		c.Status, companion = metav1.ConditionFalse, Stalled
	case StateFailing:
		c.Status, companion = metav1.ConditionFalse, Reconciling
	case StateReconciling:
		companion = Reconciling
	case StateReady:
		c.Status = metav1.ConditionTrue
	default:
		c.Reason = cmp.Or(c.Reason, ReasonNotYetObserved)
	}
	changed := Set(conditions, now, c)
	for _, t := range []string{Reconciling, Stalled} {
		if t == companion {
			c.Type, c.Status, c.Message = t, metav1.ConditionTrue, s.Message
			changed = Set(conditions, now, c) || changed
		} else {
			changed = Remove(conditions, t) || changed
		}
	}
	return changed
}

// oneLine joins the lines of a message. A tab would begin a column.
func oneLine(message string) string {
	lines := strings.FieldsFunc(strings.ReplaceAll(message, "\t", " "), func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}

// StateOf reads the State back. It is for keeping the last word while an error hides the facts,
// never for deciding.
func StateOf(conditions []metav1.Condition) State {
	ready := Find(conditions, Ready)
	switch {
	case IsTrue(conditions, Stalled):
		return StateStalled
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return StateReady
	case ready != nil && ready.Status == metav1.ConditionFalse:
		return StateFailing
	case IsTrue(conditions, Reconciling):
		return StateReconciling
	default:
		return StateNotYetObserved
	}
}

// WithError is the summary of a reconcile that ended with err, where last is the State before the
// reconcile:
//   - Terminal is Stalled, with the reason and the text of the error;
//   - Waiting is Reconciling, or Failing if something is known to be bad;
//   - Transient keeps the state with the reason Retrying. Ready stays True only if it was True:
//     an error proves nothing new to be good;
//   - a conflict, and the end of the process, say nothing about the object.
func (s Summary) WithError(err error, last State) Summary {
	if err == nil || isUninformative(err) {
		return s
	}
	isBad := s.State == StateStalled || s.State == StateFailing
	out := Summary{State: StateReconciling, Reason: ReasonRetrying, Message: fault.Message(err)}
	switch class := fault.ClassOf(err); {
	case class == fault.Terminal:
		out.State, out.Reason = StateStalled, cmp.Or(fault.Reason(err), ReasonInvalid)
		return out
	case class == fault.Waiting:
		out.Reason = cmp.Or(fault.Reason(err), ReasonWaiting)
	case s.State == StateReady && last == StateReady:
		out.State = StateReady
	}
	if isBad {
		out.State = StateFailing
	}
	return out
}

// isUninformative reports whether an error says nothing about the object: someone else wrote first,
// or the process ends.
func isUninformative(err error) bool {
	return fault.IsTransient(err) && (apierrors.IsConflict(err) || errors.Is(err, context.Canceled))
}
