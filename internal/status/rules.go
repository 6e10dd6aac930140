package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rule says what one condition type means for Ready.
type Rule struct {
	// Type is the condition type.
	Type string
	// Good is the status that all is well with: True for a state such as Prepared (the default),
	// False for a trouble such as Degraded.
	Good metav1.ConditionStatus
	// Bad is the State of the object while the condition has the opposite status; StateFailing by
	// default. Unknown, and a condition that is not there or speaks of an older generation, is
	// StateReconciling in any case.
	Bad State
	// Foreign marks a type that another controller writes: it counts, but is neither initialised
	// here nor one of Types.
	Foreign bool
}

// Rules is the table of one controller for one kind: the condition types that it owns and those
// that it counts, in the order in which they explain why the object is not Ready. The worst State
// wins; among equals the first rule gives reason and message.
type Rules []Rule

// Types are the condition types that the controller owns, for Owning: those of the table, and
// Ready, Reconciling and Stalled.
func (r Rules) Types() []string { return append(r.own(), Ready, Reconciling, Stalled) }

// Summarize computes the summary of the conditions of an object of the given generation.
func (r Rules) Summarize(conditions []metav1.Condition, generation int64) Summary {
	worst := Summary{State: StateReady, Reason: ReasonSucceeded}
	for _, rule := range r {
		if s := rule.judge(conditions, generation); s.State < worst.State {
			worst = s
		}
	}
	return worst
}

// Conclude ends the computing of conditions in a reconcile that ended with err: the conditions of
// the table that no one has written yet become NotYetObserved, and Ready, Reconciling and Stalled
// sum up the rest and the error. Call it in the deferred function, after the setters of the kind
// and before Patcher.Finish.
func (r Rules) Conclude(obj Object, now time.Time, err error) Summary {
	conditions := slices.Clone(obj.GetConditions())
	generation := obj.GetGeneration()
	last := StateNotYetObserved
	if ready := Find(conditions, Ready); ready != nil && isAbout(ready, generation) {
		last = StateOf(conditions)
	}
	Init(&conditions, now, generation, append([]string{Ready}, r.own()...)...)
	summary := r.Summarize(conditions, generation).WithError(err, last)
	SetSummary(&conditions, now, generation, summary)
	obj.SetConditions(conditions)
	return summary
}

func (r Rules) own() []string {
	var types []string
	for _, rule := range r {
		if !rule.Foreign {
			types = append(types, rule.Type)
		}
	}
	return types
}

// judge is the summary if this rule were the only one.
func (r Rule) judge(conditions []metav1.Condition, generation int64) Summary {
	c := Find(conditions, r.Type)
	switch {
	case c == nil:
		return Summary{StateReconciling, ReasonNotYetObserved, fmt.Sprintf("condition %s is not known yet", r.Type)}
	case !isAbout(c, generation):
		return Summary{StateReconciling, ReasonNotYetObserved, fmt.Sprintf("condition %s does not speak of the latest spec yet", r.Type)}
	case c.Status == cmp.Or(r.Good, metav1.ConditionTrue):
		return Summary{StateReady, ReasonSucceeded, ""}
	case c.Status == metav1.ConditionTrue, c.Status == metav1.ConditionFalse:
		return Summary{cmp.Or(r.Bad, StateFailing), c.Reason, c.Message}
	default:
		return Summary{StateReconciling, c.Reason, c.Message}
	}
}
