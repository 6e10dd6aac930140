package status_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/internal/testkind"
	"github.com/layerwright/layerwright/internal/status/statustest"
)

func allStages() []mcfgv1.BuildStage {
	return []mcfgv1.BuildStage{
		mcfgv1.BuildStagePending, mcfgv1.BuildStagePrepared, mcfgv1.BuildStageBuilding, mcfgv1.BuildStageFailed, mcfgv1.BuildStageInterrupted, mcfgv1.BuildStageSucceeded,
	}
}

func requireBuild(t *testing.T, before, after *testkind.Build) {
	t.Helper()
	statustest.RequireStep(t, before, after, statustest.Max(status.MaxBuildConditions), statustest.Frozen(status.FinalBuildTypes()...),
		statustest.Having("Prepared", "Building", "Failed", "Interrupted", "Succeeded", "Ready"))
}

func copyBuild(b *testkind.Build) *testkind.Build { return b.DeepCopyObject().(*testkind.Build) }

func newBuild() *testkind.Build {
	b := &testkind.Build{}
	b.Name, b.Generation = "b", 1
	return b
}

func TestSetBuild(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		build status.Build
		want  []string
	}{
		"first visit": {status.Build{}, []string{
			"Prepared=Unknown NotYetObserved", "Building=Unknown NotYetObserved", "Failed=Unknown NotYetObserved",
			"Interrupted=Unknown NotYetObserved", "Succeeded=Unknown NotYetObserved", "Ready=Unknown NotYetObserved",
		}},
		"waiting before it begins": {status.Build{Reason: "WaitingForPool", Message: "pool is degraded"}, []string{
			"Prepared=Unknown WaitingForPool pool is degraded", "Building=Unknown NotYetObserved", "Failed=Unknown NotYetObserved",
			"Interrupted=Unknown NotYetObserved", "Succeeded=Unknown NotYetObserved",
			"Ready=Unknown Pending pool is degraded", "Reconciling=True WaitingForPool pool is degraded",
		}},
		"prepared": {status.Build{Stage: mcfgv1.BuildStagePrepared}, []string{
			"Prepared=True Prepared", "Building=False Prepared", "Failed=False AsExpected", "Interrupted=False AsExpected",
			"Succeeded=False Prepared", "Ready=Unknown Prepared", "Reconciling=True Prepared",
		}},
		"building": {status.Build{Stage: mcfgv1.BuildStageBuilding, Message: "step 3 of 9"}, []string{
			"Prepared=False Building", "Building=True Building step 3 of 9", "Failed=False AsExpected", "Interrupted=False AsExpected",
			"Succeeded=False Building", "Ready=Unknown Building step 3 of 9", "Reconciling=True Building step 3 of 9",
		}},
		"failed": {status.Build{Stage: mcfgv1.BuildStageFailed, Reason: "RunFailed", Message: "line 3: exit 1"}, []string{
			"Prepared=False Failed", "Building=False Failed", "Failed=True RunFailed line 3: exit 1", "Interrupted=False AsExpected",
			"Succeeded=False Failed", "Ready=False Failed line 3: exit 1", "Stalled=True RunFailed line 3: exit 1",
		}},
		"interrupted": {status.Build{Stage: mcfgv1.BuildStageInterrupted, Reason: "ConfigChanged"}, []string{
			"Prepared=False Interrupted", "Building=False Interrupted", "Failed=False AsExpected", "Interrupted=True ConfigChanged",
			"Succeeded=False Interrupted", "Ready=False Interrupted", "Stalled=True ConfigChanged",
		}},
		"succeeded": {status.Build{Stage: mcfgv1.BuildStageSucceeded, Reason: "Reused"}, []string{
			"Prepared=False Succeeded", "Building=False Succeeded", "Failed=False AsExpected", "Interrupted=False AsExpected",
			"Succeeded=True Reused", "Ready=True Succeeded",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBuild()
			tt.build.Generation = 1
			assert.True(t, status.SetBuild(&b.Status.Conditions, t0, tt.build))
			assert.Equal(t, tt.want, say(b.Status.Conditions))
			assert.Equal(t, tt.build.Stage, status.BuildStageOf(b.Status.Conditions))
			assert.False(t, status.SetBuild(&b.Status.Conditions, t0.Add(minute), tt.build), "the same again changes nothing")
			requireBuild(t, newBuild(), b)
		})
	}
}

func TestSetBuildFromEveryStageToEveryOther(t *testing.T) {
	t.Parallel()
	for _, from := range allStages() {
		for _, to := range allStages() {
			b := newBuild()
			status.SetBuild(&b.Status.Conditions, t0, status.Build{Stage: from, Generation: 1})
			before := copyBuild(b)
			status.SetBuild(&b.Status.Conditions, t0.Add(minute), status.Build{Stage: to, Reason: "Next", Generation: 1})
			requireBuild(t, before, b)
			want := max(from, to)
			if from.IsFinal() {
				want = from
			}
			require.Equal(t, want, status.BuildStageOf(b.Status.Conditions), "%d to %d", from, to)
		}
	}
}

func TestSetBuildNeverGoesBackButExplains(t *testing.T) {
	t.Parallel()
	b := newBuild()
	status.SetBuild(&b.Status.Conditions, t0, status.Build{Stage: mcfgv1.BuildStageBuilding})
	assert.True(t, status.SetBuild(&b.Status.Conditions, t0, status.Build{Stage: mcfgv1.BuildStagePrepared, Reason: "Evicted", Message: "starting again"}))
	assert.Contains(t, say(b.Status.Conditions), "Building=True Evicted starting again")
}

func TestSetBuildHasNoRoomForOtherTypes(t *testing.T) {
	t.Parallel()
	b := newBuild()
	b.Status.Conditions = []metav1.Condition{cond("Odd", metav1.ConditionTrue, "R"), cond("Ready", metav1.ConditionTrue, "R")}
	status.SetBuild(&b.Status.Conditions, t0, status.Build{Stage: mcfgv1.BuildStageFailed, Generation: 1})
	assert.Len(t, b.Status.Conditions, 7)
	assert.False(t, slices.ContainsFunc(b.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Odd" }))
}

func TestBuildWithError(t *testing.T) {
	t.Parallel()
	building := status.Build{Stage: mcfgv1.BuildStageBuilding, Reason: "Pushing", Message: "layer 3"}
	done := status.Build{Stage: mcfgv1.BuildStageSucceeded}
	tests := map[string]struct {
		build status.Build
		err   error
		want  status.Build
	}{
		"no error":                   {building, nil, building},
		"transient":                  {building, errPlain, status.Build{Stage: mcfgv1.BuildStageBuilding, Reason: "Retrying", Message: "registry says 503"}},
		"waiting":                    {building, errWaiting, status.Build{Stage: mcfgv1.BuildStageBuilding, Reason: "WaitingForSecret", Message: `secret "push" is missing`}},
		"waiting, no one said what":  {status.Build{}, fault.NewWaiting("", 0, errPlain), status.Build{Reason: "Waiting", Message: "registry says 503"}},
		"terminal fails the build":   {building, errTerminal, status.Build{Stage: mcfgv1.BuildStageFailed, Reason: "BadContainerfile", Message: "line 3: unknown instruction"}},
		"a conflict says nothing":    {building, errConflict, building},
		"nor does a process's end":   {building, context.Canceled, building},
		"a build that is over stays": {done, errTerminal, done},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, tt.build.WithError(tt.err))
		})
	}
}

func TestBuildTimes(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) *metav1.Time { s := status.Second(t0.Add(d)); return &s }
	odd := metav1.NewTime(t0.Add(900 * time.Millisecond)) // not made by Started
	tests := map[string]struct {
		times   status.BuildTimes
		started bool
		ended   bool
		after   time.Duration
		want    status.BuildTimes
	}{
		"not begun":                       {},
		"begun":                           {started: true, want: status.BuildTimes{Start: at(0)}},
		"begun before":                    {times: status.BuildTimes{Start: at(0)}, started: true, after: minute, want: status.BuildTimes{Start: at(0)}},
		"ended a minute later":            {times: status.BuildTimes{Start: at(0)}, ended: true, after: minute, want: status.BuildTimes{Start: at(0), End: at(minute)}},
		"ended exactly a second later":    {times: status.BuildTimes{Start: at(0)}, ended: true, after: time.Second, want: status.BuildTimes{Start: at(0), End: at(time.Second)}},
		"ended within the second":         {times: status.BuildTimes{Start: at(0)}, ended: true, after: 300 * time.Millisecond, want: status.BuildTimes{Start: at(0), End: at(time.Second)}},
		"begun and ended at once":         {started: true, ended: true, want: status.BuildTimes{Start: at(0), End: at(time.Second)}},
		"never seen to begin":             {ended: true, want: status.BuildTimes{Start: at(0), End: at(time.Second)}},
		"ended before":                    {times: status.BuildTimes{Start: at(0), End: at(minute)}, ended: true, after: 9 * minute, want: status.BuildTimes{Start: at(0), End: at(minute)}},
		"the clock went back":             {times: status.BuildTimes{Start: at(0)}, ended: true, after: -time.Hour, want: status.BuildTimes{Start: at(0), End: at(time.Second)}},
		"a start with a fraction, stored": {times: status.BuildTimes{Start: &odd}, ended: true, after: time.Second, want: status.BuildTimes{Start: &odd, End: at(time.Second)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, got := t0.Add(tt.after), tt.times
			if tt.started {
				got = got.Started(now)
			}
			if tt.ended {
				got = got.Ended(now)
			}
			assert.Equal(t, tt.want, got)
			if got.End != nil {
				assert.Less(t, got.Start.Rfc3339Copy().Unix(), got.End.Rfc3339Copy().Unix(), "as stored, the end is after the start")
			}
		})
	}
}

func TestBuildTimesEndAfterTheyStart(t *testing.T) {
	t.Parallel()
	for start := range 40 {
		for took := range 80 {
			begin := t0.Add(time.Duration(start) * 50 * time.Millisecond)
			times := status.BuildTimes{}.Started(begin).Ended(begin.Add(time.Duration(took-20) * 50 * time.Millisecond))
			require.Less(t, times.Start.Rfc3339Copy().Unix(), times.End.Rfc3339Copy().Unix())
		}
	}
}
