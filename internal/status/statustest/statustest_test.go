package statustest_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/internal/testkind"
	"github.com/layerwright/layerwright/internal/status/statustest"
)

var t0 = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

func condition(conditionType string, s metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: s, Reason: "Because", LastTransitionTime: t0, ObservedGeneration: 2}
}

func yes(conditionType string) metav1.Condition {
	return condition(conditionType, metav1.ConditionTrue)
}

func no(conditionType string) metav1.Condition {
	return condition(conditionType, metav1.ConditionFalse)
}

func dunno(conditionType string) metav1.Condition {
	return condition(conditionType, metav1.ConditionUnknown)
}

func with(c metav1.Condition, change func(*metav1.Condition)) metav1.Condition {
	change(&c)
	return c
}

func widget(conditions ...metav1.Condition) *testkind.Widget {
	w := &testkind.Widget{}
	w.Name, w.Generation = "w", 2
	w.Status.ObservedGeneration = 1
	w.Status.Conditions = conditions
	return w
}

func TestViolationsOfConditionsTogether(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		conditions []metav1.Condition
		options    []statustest.Option
		want       []string
	}{
		"ready":                           {conditions: []metav1.Condition{yes("Ready"), no("Degraded")}},
		"reconciling":                     {conditions: []metav1.Condition{dunno("Ready"), yes("Reconciling")}},
		"failing":                         {conditions: []metav1.Condition{no("Ready"), yes("Reconciling")}},
		"stalled":                         {conditions: []metav1.Condition{no("Ready"), yes("Stalled")}},
		"first visit":                     {conditions: []metav1.Condition{dunno("Ready")}},
		"no conditions":                   {want: []string{"Ready is missing"}},
		"someone else's Ready":            {conditions: []metav1.Condition{no("Degraded")}, options: []statustest.Option{statustest.WithoutReady()}},
		"both companions":                 {conditions: []metav1.Condition{no("Ready"), yes("Reconciling"), yes("Stalled")}, want: []string{"Reconciling and Stalled are both True"}},
		"ready and reconciling":           {conditions: []metav1.Condition{yes("Ready"), yes("Reconciling")}, want: []string{"Ready and Reconciling are both True"}},
		"ready and stalled":               {conditions: []metav1.Condition{yes("Ready"), yes("Stalled")}, want: []string{"Ready and Stalled are both True", "Stalled is True, but Ready is True"}},
		"stalled, but who knows":          {conditions: []metav1.Condition{dunno("Ready"), yes("Stalled")}, want: []string{"Stalled is True, but Ready is Unknown"}},
		"not ready, and then?":            {conditions: []metav1.Condition{no("Ready")}, want: []string{"Ready is False, but neither Reconciling nor Stalled says what follows"}},
		"a companion that is False":       {conditions: []metav1.Condition{yes("Ready"), no("Stalled")}, want: []string{"Stalled is there but not True"}},
		"a companion that is Unknown":     {conditions: []metav1.Condition{yes("Ready"), dunno("Reconciling")}, want: []string{"Reconciling is there but not True"}},
		"a type twice":                    {conditions: []metav1.Condition{yes("Ready"), no("X"), no("X")}, want: []string{"X is there twice"}},
		"too many":                        {conditions: []metav1.Condition{yes("Ready"), no("X")}, options: []statustest.Option{statustest.Max(1)}, want: []string{"there are 2 conditions, allowed are 1"}},
		"as many as allowed":              {conditions: []metav1.Condition{yes("Ready"), no("X")}, options: []statustest.Option{statustest.Max(2)}},
		"an expected type is not there":   {conditions: []metav1.Condition{yes("Ready")}, options: []statustest.Option{statustest.Having("Ready", "X")}, want: []string{"X is missing"}},
		"companions without Ready at all": {conditions: []metav1.Condition{yes("Stalled")}, want: []string{"Ready is missing"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, statustest.Violations(widget(tt.conditions...), tt.options...))
		})
	}
}

func TestViolationsOfOneCondition(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*metav1.Condition)
		want   []string
	}{
		"nothing":                   {func(*metav1.Condition) {}, nil},
		"a qualified type":          {func(c *metav1.Condition) { c.Type = "example.test/Good" }, nil},
		"no generation":             {func(c *metav1.Condition) { c.ObservedGeneration = 0 }, nil},
		"a long message":            {func(c *metav1.Condition) { c.Message = strings.Repeat("ü", fault.MaxMessage) }, nil},
		"no type":                   {func(c *metav1.Condition) { c.Type = "" }, []string{`type "" is not CamelCase`}},
		"a status of its own":       {func(c *metav1.Condition) { c.Status = "Maybe" }, []string{`X has status "Maybe"`}},
		"no reason":                 {func(c *metav1.Condition) { c.Reason = "" }, []string{`X has reason "", which is not CamelCase`}},
		"a reason with dashes":      {func(c *metav1.Condition) { c.Reason = "not-good" }, []string{`X has reason "not-good", which is not CamelCase`}},
		"a forgotten reason":        {func(c *metav1.Condition) { c.Reason = status.ReasonUnspecified }, []string{"X was written without a reason"}},
		"a message that is no text": {func(c *metav1.Condition) { c.Message = "\xff" }, []string{"the message of X was not cleaned"}},
		"a secret":                  {func(c *metav1.Condition) { c.Message = "http://a:b@c" }, []string{"the message of X was not cleaned"}},
		"no transition time":        {func(c *metav1.Condition) { c.LastTransitionTime = metav1.Time{} }, []string{"X has no transition time"}},
		"a generation yet to come":  {func(c *metav1.Condition) { c.ObservedGeneration = 3 }, []string{"X speaks of generation 3 of 2"}},
		"too long a message": {
			func(c *metav1.Condition) { c.Message = strings.Repeat("x", fault.MaxMessage+1) },
			[]string{"the message of X has more than 1024 runes", "the message of X was not cleaned"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, statustest.Violations(widget(yes("Ready"), with(no("X"), tt.change))))
		})
	}
}

func TestViolationsOfObservedGeneration(t *testing.T) {
	t.Parallel()
	w := widget(yes("Ready"))
	w.Status.ObservedGeneration = 3
	assert.Equal(t, []string{"observedGeneration 3 is not that of a spec: generation is 2"}, statustest.Violations(w))

	b := &testkind.Build{} // has none
	b.Generation = 2
	b.Status.Conditions = []metav1.Condition{yes("Ready")}
	assert.Empty(t, statustest.Violations(b))
}

func TestStepViolations(t *testing.T) {
	t.Parallel()
	later := func(c *metav1.Condition) { c.LastTransitionTime = metav1.NewTime(t0.Add(time.Second)) }
	earlier := func(c *metav1.Condition) { c.LastTransitionTime = metav1.NewTime(t0.Add(-time.Second)) }
	tests := map[string]struct {
		before, after *testkind.Widget
		want          []string
	}{
		"nothing changed":      {widget(yes("Ready")), widget(yes("Ready")), nil},
		"a new type":           {widget(), widget(yes("Ready")), nil},
		"a type goes":          {widget(yes("Ready")), widget(), nil},
		"a transition":         {widget(yes("Ready")), widget(with(no("Ready"), later)), nil},
		"two in one second":    {widget(yes("Ready")), widget(no("Ready")), nil},
		"time without change":  {widget(yes("Ready")), widget(with(yes("Ready"), later)), []string{"the transition time of Ready changed, its status did not"}},
		"a transition back":    {widget(yes("Ready")), widget(with(no("Ready"), earlier)), []string{"the transition time of Ready went back"}},
		"a generation back":    {widget(yes("Ready")), widget(with(yes("Ready"), func(c *metav1.Condition) { c.ObservedGeneration = 1 })), []string{"the observedGeneration of Ready went back from 2 to 1"}},
		"the observed go back": {widget(), func() *testkind.Widget { w := widget(); w.Status.ObservedGeneration = 0; return w }(), []string{"observedGeneration went back from 1 to 0"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, statustest.StepViolations(tt.before, tt.after))
		})
	}
}

func TestStepViolationsOfFrozenConditions(t *testing.T) {
	t.Parallel()
	frozen := statustest.Frozen(status.FinalBuildTypes()...)
	done, undone := widget(yes("Ready"), yes("Succeeded")), widget(yes("Ready"))
	want := []string{"conditions changed although Succeeded was True"}
	assert.Empty(t, statustest.StepViolations(undone, done, frozen))
	assert.Empty(t, statustest.StepViolations(done, done.DeepCopyObject().(status.Object), frozen))
	assert.Equal(t, want, statustest.StepViolations(done, undone, frozen))
	assert.Equal(t, want, statustest.StepViolations(done, widget(yes("Ready"), yes("Succeeded"), no("More")), frozen))
	assert.Empty(t, statustest.StepViolations(done, undone))
}

// failing is a testing.TB that remembers how it failed.
type failing struct {
	testing.TB

	text string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = strings.TrimSpace(strings.Join(append([]string{format}, texts(args)...), "\n"))
	runtime.Goexit()
}

func texts(args []any) []string {
	var out []string
	for _, arg := range args {
		if s, ok := arg.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func failure(t *testing.T, check func(testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); check(f) }()
	<-done
	return f.text
}

func TestRequire(t *testing.T) {
	t.Parallel()
	good, bad := widget(yes("Ready")), widget(no("Ready"))
	back := widget(with(yes("Ready"), func(c *metav1.Condition) { c.ObservedGeneration = 1 }))

	consistent := func(obj status.Object) func(testing.TB) {
		return func(tb testing.TB) { tb.Helper(); statustest.RequireConsistent(tb, obj) }
	}
	step := func(before, after status.Object) func(testing.TB) {
		return func(tb testing.TB) { tb.Helper(); statustest.RequireStep(tb, before, after) }
	}
	assert.Empty(t, failure(t, consistent(good)))
	assert.Empty(t, failure(t, step(good, good)))

	text := failure(t, consistent(bad))
	assert.Contains(t, text, "is inconsistent")
	assert.Contains(t, text, "neither Reconciling nor Stalled")
	assert.Contains(t, text, `Ready=False Because "" generation 2`, "the conditions are shown")

	assert.Contains(t, failure(t, step(good, back)), "went back from 2 to 1")
	assert.Contains(t, failure(t, step(widget(), bad)), "is inconsistent")
}
