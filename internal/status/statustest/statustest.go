package statustest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
)

var (
	camelCase     = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	conditionType = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z][A-Za-z0-9]*$`)
)

// Option changes what is checked.
type Option func(*checker)

// Max allows at most n conditions, such as status.MaxBuildConditions.
func Max(n int) Option { return func(c *checker) { c.max = n } }

// Having requires conditions of the given types, such as Rules.Types without Reconciling and
// Stalled.
func Having(conditionTypes ...string) Option {
	return func(c *checker) { c.having = append(c.having, conditionTypes...) }
}

// WithoutReady allows that Ready is not there: for a controller of a kind whose Ready another one
// writes.
func WithoutReady() Option { return func(c *checker) { c.withoutReady = true } }

// Frozen requires of a step that the conditions stay as they are once one of the given types is
// True, as status.FinalBuildTypes.
func Frozen(conditionTypes ...string) Option {
	return func(c *checker) { c.frozen = append(c.frozen, conditionTypes...) }
}

// RequireConsistent fails the test if the status of obj contradicts itself.
func RequireConsistent(tb testing.TB, obj status.Object, options ...Option) {
	tb.Helper()
	require(tb, obj, "is inconsistent", Violations(obj, options...))
}

// RequireStep fails the test if the status of after can't follow that of before, or is
// inconsistent. Both are the same object, as it was read at two times.
func RequireStep(tb testing.TB, before, after status.Object, options ...Option) {
	tb.Helper()
	require(tb, after, "can't follow the one before", StepViolations(before, after, options...))
	RequireConsistent(tb, after, options...)
}

func require(tb testing.TB, obj status.Object, verdict string, violations []string) {
	tb.Helper()
	if len(violations) == 0 {
		return
	}
	lines := make([]string, 0, len(obj.GetConditions()))
	for _, c := range obj.GetConditions() {
		lines = append(lines, fmt.Sprintf("%s=%s %s %q generation %d since %s",
			c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration, c.LastTransitionTime))
	}
	tb.Fatalf("the status of %T %q %s:\n\t%s\nconditions:\n\t%s", obj, obj.GetName(), verdict,
		strings.Join(violations, "\n\t"), strings.Join(lines, "\n\t"))
}

// Violations says how the status of obj contradicts itself.
func Violations(obj status.Object, options ...Option) []string {
	c := newChecker(options)
	conditions := obj.GetConditions()
	seen := map[string]bool{}
	for _, condition := range conditions {
		c.check(!seen[condition.Type], "%s is there twice", condition.Type)
		seen[condition.Type] = true
		c.one(condition, obj.GetGeneration())
	}
	c.together(conditions)
	for _, t := range c.having {
		c.check(seen[t], "%s is missing", t)
	}
	c.check(c.max == 0 || len(conditions) <= c.max, "there are %d conditions, allowed are %d", len(conditions), c.max)
	if observer, ok := obj.(status.Observer); ok {
		observed := observer.GetObservedGeneration()
		c.check(observed >= 0 && observed <= obj.GetGeneration(), "observedGeneration %d is not that of a spec: generation is %d",
			observed, obj.GetGeneration())
	}
	return c.found
}

// StepViolations says how the status of after can't follow that of before.
func StepViolations(before, after status.Object, options ...Option) []string {
	c := newChecker(options)
	for _, t := range c.frozen {
		c.check(!status.IsTrue(before.GetConditions(), t) || apiequality.Semantic.DeepEqual(before.GetConditions(), after.GetConditions()),
			"conditions changed although %s was True", t)
	}
	for _, now := range after.GetConditions() {
		old := status.Find(before.GetConditions(), now.Type)
		if old == nil {
			continue
		}
		c.check(old.Status != now.Status || old.LastTransitionTime.Equal(&now.LastTransitionTime),
			"the transition time of %s changed, its status did not", now.Type)
		c.check(!now.LastTransitionTime.Before(&old.LastTransitionTime), "the transition time of %s went back", now.Type)
		c.check(now.ObservedGeneration >= old.ObservedGeneration, "the observedGeneration of %s went back from %d to %d",
			now.Type, old.ObservedGeneration, now.ObservedGeneration)
	}
	was, ok := before.(status.Observer)
	is, okNow := after.(status.Observer)
	if ok && okNow {
		c.check(is.GetObservedGeneration() >= was.GetObservedGeneration(), "observedGeneration went back from %d to %d",
			was.GetObservedGeneration(), is.GetObservedGeneration())
	}
	return c.found
}

// checker collects what is wrong.
type checker struct {
	max          int
	having       []string
	withoutReady bool
	frozen       []string
	found        []string
}

func newChecker(options []Option) *checker {
	c := &checker{}
	for _, option := range options {
		option(c)
	}
	return c
}

func (c *checker) check(ok bool, format string, args ...any) {
	if !ok {
		c.found = append(c.found, fmt.Sprintf(format, args...))
	}
}

// one checks a condition for itself.
func (c *checker) one(condition metav1.Condition, generation int64) {
	t := condition.Type
	c.check(conditionType.MatchString(t), "type %q is not CamelCase", t)
	switch condition.Status {
	case metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown:
	default:
		c.check(false, "%s has status %q", t, condition.Status)
	}
	c.check(camelCase.MatchString(condition.Reason), "%s has reason %q, which is not CamelCase", t, condition.Reason)
	c.check(condition.Reason != status.ReasonUnspecified, "%s was written without a reason", t)
	c.check(utf8.RuneCountInString(condition.Message) <= fault.MaxMessage, "the message of %s has more than %d runes", t, fault.MaxMessage)
	c.check(fault.Clean(condition.Message) == condition.Message, "the message of %s was not cleaned", t)
	c.check(!condition.LastTransitionTime.IsZero(), "%s has no transition time", t)
	c.check(condition.ObservedGeneration >= 0 && condition.ObservedGeneration <= generation,
		"%s speaks of generation %d of %d", t, condition.ObservedGeneration, generation)
}

// together checks Ready, Reconciling and Stalled.
func (c *checker) together(conditions []metav1.Condition) {
	for _, t := range []string{status.Reconciling, status.Stalled} {
		condition := status.Find(conditions, t)
		c.check(condition == nil || condition.Status == metav1.ConditionTrue, "%s is there but not True", t)
	}
	reconciling, stalled := status.IsTrue(conditions, status.Reconciling), status.IsTrue(conditions, status.Stalled)
	c.check(!reconciling || !stalled, "Reconciling and Stalled are both True")

	ready := status.Find(conditions, status.Ready)
	if ready == nil {
		c.check(c.withoutReady, "Ready is missing")
		return
	}
	isReady, isNotReady := ready.Status == metav1.ConditionTrue, ready.Status == metav1.ConditionFalse
	c.check(!isReady || !reconciling, "Ready and Reconciling are both True")
	c.check(!isReady || !stalled, "Ready and Stalled are both True")
	c.check(!stalled || isNotReady, "Stalled is True, but Ready is %s", ready.Status)
	c.check(!isNotReady || reconciling || stalled, "Ready is False, but neither Reconciling nor Stalled says what follows")
}
