package status_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/internal/testkind"
	"github.com/layerwright/layerwright/internal/status/statustest"
)

var (
	errPlain    = errors.New("registry says 503")
	errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "widgets"}, "w", errors.New("someone was first"))
	errWaiting  = fault.NewWaiting("WaitingForSecret", minute, errors.New(`secret "push" is missing`))
	errTerminal = fault.NewTerminal("BadContainerfile", errors.New("line 3: unknown instruction"))
)

func allStates() []status.State {
	return []status.State{
		status.StateUnset, status.StateStalled, status.StateFailing, status.StateReconciling, status.StateNotYetObserved, status.StateReady,
	}
}

func widget(conditions ...metav1.Condition) *testkind.Widget {
	w := &testkind.Widget{}
	w.Name, w.Generation = "w", 1
	w.Status.Conditions = conditions
	return w
}

// say is the conditions in one line each: Type=Status Reason message.
func say(conditions []metav1.Condition) []string {
	var out []string
	for _, c := range conditions {
		line := fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)
		if c.Message != "" {
			line += " " + c.Message
		}
		out = append(out, line)
	}
	return out
}

func TestSetSummary(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		summary status.Summary
		want    []string
	}{
		"ready":       {status.Summary{status.StateReady, "Succeeded", ""}, []string{"Ready=True Succeeded"}},
		"reconciling": {status.Summary{status.StateReconciling, "Building", "step 3"}, []string{"Ready=Unknown Building step 3", "Reconciling=True Building step 3"}},
		"failing":     {status.Summary{status.StateFailing, "NodesFailed", "1 of 3"}, []string{"Ready=False NodesFailed 1 of 3", "Reconciling=True NodesFailed 1 of 3"}},
		"stalled":     {status.Summary{status.StateStalled, "BadSpec", "fix it"}, []string{"Ready=False BadSpec fix it", "Stalled=True BadSpec fix it"}},
		"a column has no lines": {status.Summary{status.StateStalled, "BuildFailed", "it failed:\nno\tpackage\r\nedit it"}, []string{
			"Ready=False BuildFailed it failed: no package; edit it", "Stalled=True BuildFailed it failed:\nno\tpackage\nedit it",
		}},
		"not yet observed": {status.Summary{State: status.StateNotYetObserved}, []string{"Ready=Unknown NotYetObserved"}},
		"nothing at all":   {status.Summary{}, []string{"Ready=Unknown NotYetObserved"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conditions []metav1.Condition
			assert.True(t, status.SetSummary(&conditions, t0, 1, tt.summary))
			assert.Equal(t, tt.want, say(conditions))
			assert.False(t, status.SetSummary(&conditions, t0.Add(minute), 1, tt.summary), "the same again changes nothing")
		})
	}
}

func TestSetSummaryFromEveryStateToEveryOther(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(t0)
	for _, from := range allStates() {
		for _, to := range allStates() {
			w := widget()
			status.SetSummary(&w.Status.Conditions, clock.Now(), 1, status.Summary{from, "Before", "x"})
			statustest.RequireConsistent(t, w)
			before := w.DeepCopyObject().(status.Object)

			clock.SetTime(clock.Now().Add(time.Second))
			status.SetSummary(&w.Status.Conditions, clock.Now(), 1, status.Summary{to, "After", ""})
			statustest.RequireStep(t, before, w)
			if to != status.StateUnset {
				require.Equal(t, to, status.StateOf(w.Status.Conditions), "the state is read back")
			}
		}
	}
}

func TestStateOf(t *testing.T) {
	t.Parallel()
	assert.Equal(t, status.StateNotYetObserved, status.StateOf(nil))
	assert.Equal(t, status.StateReconciling, status.StateOf([]metav1.Condition{cond("Reconciling", metav1.ConditionTrue, "R")}))
	assert.Equal(t, status.StateFailing, status.StateOf([]metav1.Condition{cond("Ready", metav1.ConditionFalse, "R")}))
}

func TestSummaryWithError(t *testing.T) {
	t.Parallel()
	good := status.Summary{State: status.StateReady, Reason: "Succeeded"}
	moving := status.Summary{status.StateReconciling, "Building", "step 3"}
	bad := status.Summary{status.StateFailing, "NodesFailed", "1 of 3"}
	stuck := status.Summary{status.StateStalled, "BadSpec", "fix it"}
	unseen := status.Summary{State: status.StateNotYetObserved, Reason: "NotYetObserved"}
	tests := map[string]struct {
		summary status.Summary
		last    status.State
		err     error
		want    status.Summary
	}{
		"no error":                                {good, status.StateReady, nil, good},
		"transient, was ready":                    {good, status.StateReady, errPlain, status.Summary{status.StateReady, "Retrying", "registry says 503"}},
		"transient, was not ready":                {good, status.StateReconciling, errPlain, status.Summary{status.StateReconciling, "Retrying", "registry says 503"}},
		"transient, never seen":                   {unseen, status.StateNotYetObserved, errPlain, status.Summary{status.StateReconciling, "Retrying", "registry says 503"}},
		"transient while moving":                  {moving, status.StateReady, errPlain, status.Summary{status.StateReconciling, "Retrying", "registry says 503"}},
		"transient while bad":                     {bad, status.StateFailing, errPlain, status.Summary{status.StateFailing, "Retrying", "registry says 503"}},
		"transient while stuck is retried":        {stuck, status.StateStalled, errPlain, status.Summary{status.StateFailing, "Retrying", "registry says 503"}},
		"waiting":                                 {good, status.StateReady, errWaiting, status.Summary{status.StateReconciling, "WaitingForSecret", `secret "push" is missing`}},
		"waiting while bad":                       {bad, status.StateReady, errWaiting, status.Summary{status.StateFailing, "WaitingForSecret", `secret "push" is missing`}},
		"waiting, no one said for what":           {moving, status.StateReady, fault.NewWaiting("", 0, errPlain), status.Summary{status.StateReconciling, "Waiting", "registry says 503"}},
		"terminal":                                {moving, status.StateReady, errTerminal, status.Summary{status.StateStalled, "BadContainerfile", "line 3: unknown instruction"}},
		"terminal, no one said why":               {good, status.StateReady, fault.NewTerminal("", errPlain), status.Summary{status.StateStalled, "Invalid", "registry says 503"}},
		"terminal, deep inside":                   {good, status.StateReady, fmt.Errorf("a: %w", errTerminal), status.Summary{status.StateStalled, "BadContainerfile", "a: line 3: unknown instruction"}},
		"a conflict says nothing":                 {good, status.StateReconciling, fmt.Errorf("adding finalizer: %w", errConflict), good},
		"a terminal conflict does":                {good, status.StateReady, fault.NewTerminal("Taken", errConflict), status.Summary{status.StateStalled, "Taken", errConflict.Error()}},
		"the end of the process says none":        {moving, status.StateReady, fmt.Errorf("pulling: %w", context.Canceled), moving},
		"the end of the reconcile's time does so": {good, status.StateReady, context.DeadlineExceeded, status.Summary{status.StateReady, "Retrying", "context deadline exceeded"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, tt.summary.WithError(tt.err, tt.last))
		})
	}
}

func rules() status.Rules {
	return status.Rules{
		{Type: "Prepared", Bad: status.StateReconciling},
		{Type: "Built"},
		{Type: "Degraded", Good: metav1.ConditionFalse, Bad: status.StateStalled},
		{Type: "NodesUpdated", Foreign: true},
	}
}

func TestRulesSummarize(t *testing.T) {
	t.Parallel()
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	tests := map[string]struct {
		prepared, built, degraded, nodes metav1.ConditionStatus
		want                             status.Summary
	}{
		"all well":                           {yes, yes, no, yes, status.Summary{status.StateReady, "Succeeded", ""}},
		"one bad":                            {yes, no, no, yes, status.Summary{status.StateFailing, "Built0", "about Built"}},
		"one bad that only means work":       {no, yes, no, yes, status.Summary{status.StateReconciling, "Prepared0", "about Prepared"}},
		"one unknown":                        {yes, unknown, no, yes, status.Summary{status.StateReconciling, "Built0", "about Built"}},
		"a trouble unknown":                  {yes, yes, unknown, yes, status.Summary{status.StateReconciling, "Degraded0", "about Degraded"}},
		"a trouble":                          {yes, yes, yes, yes, status.Summary{status.StateStalled, "Degraded0", "about Degraded"}},
		"another controller's is bad":        {yes, yes, no, no, status.Summary{status.StateFailing, "NodesUpdated0", "about NodesUpdated"}},
		"the first of equals explains":       {no, unknown, unknown, unknown, status.Summary{status.StateReconciling, "Prepared0", "about Prepared"}},
		"the first of two bad explains":      {yes, no, no, no, status.Summary{status.StateFailing, "Built0", "about Built"}},
		"the worst explains, though it last": {no, no, yes, no, status.Summary{status.StateStalled, "Degraded0", "about Degraded"}},
		"one is not there": {yes, "", no, yes, status.Summary{
			status.StateReconciling, "NotYetObserved", "condition Built is not known yet",
		}},
		"a bad one hides one not there": {yes, "", yes, yes, status.Summary{status.StateStalled, "Degraded0", "about Degraded"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conditions []metav1.Condition
			for conditionType, s := range map[string]metav1.ConditionStatus{
				"Prepared": tt.prepared, "Built": tt.built, "Degraded": tt.degraded, "NodesUpdated": tt.nodes,
			} {
				if s != "" {
					c := cond(conditionType, s, conditionType+"0")
					c.Message = "about " + conditionType
					conditions = append(conditions, c)
				}
			}
			assert.Equal(t, tt.want, rules().Summarize(conditions, 1))
		})
	}
}

func TestRulesSummarizeLooksAtGenerations(t *testing.T) {
	t.Parallel()
	table := status.Rules{{Type: "Built"}}
	built := cond("Built", metav1.ConditionTrue, "R")
	assert.Equal(t, status.Summary{
		status.StateReconciling, "NotYetObserved", "condition Built does not speak of the latest spec yet",
	}, table.Summarize([]metav1.Condition{built}, 2))

	built.ObservedGeneration = 0 // published kinds don't say
	assert.Equal(t, status.StateReady, table.Summarize([]metav1.Condition{built}, 2).State)
}

func TestRulesTypes(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"Prepared", "Built", "Degraded", "Ready", "Reconciling", "Stalled"}, rules().Types())
	assert.Equal(t, status.Summary{State: status.StateReady, Reason: "Succeeded"}, status.Rules{}.Summarize(nil, 1))
}

func TestRulesConclude(t *testing.T) {
	t.Parallel()
	table := status.Rules{{Type: "Built"}, {Type: "Degraded", Good: metav1.ConditionFalse}}
	built, healthy := cond("Built", metav1.ConditionTrue, "Pushed"), cond("Degraded", metav1.ConditionFalse, "Healthy")
	ready := cond("Ready", metav1.ConditionTrue, "Succeeded")
	old := ready
	old.ObservedGeneration = 4 // of 5
	fresh := func(c metav1.Condition) metav1.Condition { c.ObservedGeneration = 5; return c }
	tests := map[string]struct {
		conditions []metav1.Condition
		err        error
		want       []string
	}{
		"the first visit writes all": {nil, nil, []string{
			"Ready=Unknown NotYetObserved", "Built=Unknown NotYetObserved", "Degraded=Unknown NotYetObserved", "Reconciling=True NotYetObserved",
		}},
		"the first visit fails": {nil, errTerminal, []string{
			"Ready=False BadContainerfile line 3: unknown instruction", "Built=Unknown NotYetObserved",
			"Degraded=Unknown NotYetObserved", "Stalled=True BadContainerfile line 3: unknown instruction",
		}},
		"all well": {[]metav1.Condition{fresh(built), fresh(healthy)}, nil, []string{"Built=True Pushed", "Degraded=False Healthy", "Ready=True Succeeded"}},
		"an error while ready": {[]metav1.Condition{fresh(ready), fresh(built), fresh(healthy)}, errPlain, []string{
			"Ready=True Retrying registry says 503", "Built=True Pushed", "Degraded=False Healthy",
		}},
		"an error, ready for an older spec": {[]metav1.Condition{old, fresh(built), fresh(healthy)}, errPlain, []string{
			"Ready=Unknown Retrying registry says 503", "Built=True Pushed", "Degraded=False Healthy", "Reconciling=True Retrying registry says 503",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := widget(tt.conditions...)
			w.Generation = 5
			for i := range w.Status.Conditions {
				w.Status.Conditions[i].LastTransitionTime = status.Second(t0)
			}
			before := w.DeepCopyObject().(status.Object)
			summary := table.Conclude(w, t0.Add(minute), tt.err)
			assert.Equal(t, tt.want, say(w.Status.Conditions))
			assert.Equal(t, summary.State, status.StateOf(w.Status.Conditions))
			statustest.RequireStep(t, before, w, statustest.Having("Ready", "Built", "Degraded"))
		})
	}
}
