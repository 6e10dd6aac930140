package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/names"
)

// building is the command on a cluster with pool worker. Each look at the MachineOSConfig comes
// after what changes in the cluster before.
func building(t *testing.T, out, notes *bytes.Buffer, change func(look int, c client.Client), objects ...client.Object) *clusterBuild {
	t.Helper()
	scheme, err := survey.Scheme()
	require.NoError(t, err)
	require.NoError(t, batchv1.AddToScheme(scheme))
	objects = append(objects, &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	looks := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, is := object.(*mcfgv1.MachineOSConfig); is && change != nil {
				looks++
				change(looks, c)
			}
			return c.Get(ctx, key, object, options...)
		},
	}).Build()
	return &clusterBuild{
		pool: "worker", wait: true, from: c, clock: jumping{clocktesting.NewFakeClock(time.Unix(0, 0))}, out: out, progress: newProgressLine(notes), namespace: "layerwright",
	}
}

// configured is a MachineOSConfig with one condition that is True.
func configured(conditionType, reason, message string) *mcfgv1.MachineOSConfig {
	c := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	c.Status.CurrentImagePullSpec = "registry.example.com/os/worker@sha256:1"
	c.Status.MachineOSBuild = &mcfgv1.ObjectReference{Name: "worker-1"}
	c.Status.Conditions = []metav1.Condition{{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message}}
	return c
}

// made is build worker-1 with a UID, at its end where it has a condition.
func made(uid types.UID, condition, reason string) *mcfgv1.MachineOSBuild {
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: uid}}
	if condition != "" {
		b.Status.BuildEnd = new(metav1.Unix(1, 0))
		b.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: "line 2"}}
		b.Status.DigestedImagePushSpec = "registry.example.com/os/worker@sha256:2"
	}
	return b
}

func TestBuildOnACluster(t *testing.T) {
	t.Parallel()
	update := func(t *testing.T, c client.Client, change func(*mcfgv1.MachineOSConfig)) {
		t.Helper()
		config := &mcfgv1.MachineOSConfig{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "worker"}, config))
		change(config)
		require.NoError(t, c.Update(t.Context(), config))
	}
	ready := configured(mcfgv1.ConditionReady, mcfgv1.ReasonSucceeded, "").Status
	// answer is a controller that makes a build at the third look.
	answer := func(t *testing.T, b *mcfgv1.MachineOSBuild) func(int, client.Client) {
		t.Helper()
		return func(look int, c client.Client) {
			if look != 3 {
				return
			}
			require.NoError(t, c.Delete(t.Context(), &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}))
			require.NoError(t, c.Create(t.Context(), b))
			update(t, c, func(config *mcfgv1.MachineOSConfig) { config.Annotations = nil })
		}
	}
	for name, test := range map[string]struct {
		request func(*clusterBuild)
		config  *mcfgv1.MachineOSConfig
		change  func(*testing.T) func(int, client.Client)
		code    int
		out     string
		says    string
	}{
		"current": {nil, configured(mcfgv1.ConditionReady, mcfgv1.ReasonSucceeded, ""), nil, exitOK, "registry.example.com/os/worker@sha256:1\n", "--rebuild makes it again"},
		"follows": {
			nil, configured(mcfgv1.ConditionReconciling, mcfgv1.ReasonBuilding, "step build, instruction 3 of 9"),
			func(t *testing.T) func(int, client.Client) {
				t.Helper()
				return func(look int, c client.Client) {
					if look == 4 {
						update(t, c, func(config *mcfgv1.MachineOSConfig) { config.Status = ready })
					}
				}
			}, exitOK, "registry.example.com/os/worker@sha256:1\n", "Building: step build, instruction 3 of 9\n",
		},
		"only asks":    {func(b *clusterBuild) { b.wait = false }, configured(mcfgv1.ConditionReconciling, mcfgv1.ReasonBuilding, ""), nil, exitOK, "", "layerwright build worker follows it"},
		"stalled":      {nil, configured(mcfgv1.ConditionStalled, mcfgv1.ReasonBuildFailed, "line 2"), nil, exitDegraded, "", "MachineOSConfig worker: BuildFailed: line 2; layerwright logs worker shows"},
		"takes long":   {func(b *clusterBuild) { b.timeout = time.Minute }, configured(mcfgv1.ConditionReconciling, mcfgv1.ReasonBuilding, ""), nil, exitTimedOut, "", "not at its end after 1m0s; it goes on"},
		"no such pool": {func(b *clusterBuild) { b.pool = "wroker" }, configured(mcfgv1.ConditionReady, "", ""), nil, exitFailure, "", `do you mean "worker"?`},
		"rebuilds": {
			func(b *clusterBuild) { b.rebuild = true }, configured(mcfgv1.ConditionReady, mcfgv1.ReasonSucceeded, ""),
			func(t *testing.T) func(int, client.Client) {
				t.Helper()
				return answer(t, made("new", mcfgv1.BuildSucceeded, mcfgv1.ReasonBuilt))
			},
			exitOK, "registry.example.com/os/worker@sha256:2\n", "",
		},
		"rebuild fails": {
			func(b *clusterBuild) { b.rebuild = true }, configured(mcfgv1.ConditionReady, mcfgv1.ReasonSucceeded, ""),
			func(t *testing.T) func(int, client.Client) {
				t.Helper()
				return answer(t, made("new", mcfgv1.BuildFailed, mcfgv1.ReasonBuildFailed))
			},
			exitDegraded, "", "build worker-1: BuildFailed: line 2; layerwright logs worker-1",
		},
		"rebuild after a failure": {
			func(b *clusterBuild) { b.rebuild = true }, configured(mcfgv1.ConditionStalled, mcfgv1.ReasonBuildFailed, "line 2"),
			func(t *testing.T) func(int, client.Client) {
				t.Helper()
				then := answer(t, made("new", mcfgv1.BuildSucceeded, mcfgv1.ReasonBuilt))
				return func(look int, c client.Client) { then(look-5, c) }
			},
			exitOK, "registry.example.com/os/worker@sha256:2\n", "",
		},
		"rebuild that can't be made": {
			func(b *clusterBuild) { b.rebuild = true }, configured(mcfgv1.ConditionStalled, mcfgv1.ReasonPushDenied, "no right"), nil, exitDegraded, "", "MachineOSConfig worker: PushDenied: no right",
		},
		"rebuild that no one answers": {
			func(b *clusterBuild) { b.rebuild, b.timeout = true, time.Minute }, configured(mcfgv1.ConditionReady, mcfgv1.ReasonSucceeded, ""), nil, exitTimedOut, "", "not at its end",
		},
		"nothing to cancel": {func(b *clusterBuild) { b.cancel = true }, configured(mcfgv1.ConditionReady, "", ""), nil, exitFailure, "", "pool worker has no build under way"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, notes bytes.Buffer
			var change func(int, client.Client)
			if test.change != nil {
				change = test.change(t)
			}
			b := building(t, &out, &notes, change, test.config, made("old", mcfgv1.BuildSucceeded, mcfgv1.ReasonBuilt))
			if test.request != nil {
				test.request(b)
			}
			err := failed(b.run(t.Context()))
			assert.Equal(t, test.out, out.String())
			if test.code == exitOK {
				require.NoError(t, err)
				assert.Contains(t, notes.String(), test.says)
				return
			}
			var ended interface{ exitCode() int }
			require.ErrorAs(t, err, &ended)
			assert.Equal(t, test.code, ended.exitCode())
			assert.Contains(t, err.Error(), test.says)
		})
	}
}

func TestBuildIsCancelled(t *testing.T) {
	t.Parallel()
	b := made("1", "", "")
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "layerwright", Name: "build", Labels: map[string]string{mcfgv1.LabelMachineOSBuild: names.BuildLabel("worker-1")}}}
	other := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "layerwright", Name: "other"}}
	var out, notes bytes.Buffer
	waiting := building(t, &out, &notes, nil, configured(mcfgv1.ConditionReconciling, mcfgv1.ReasonWaitingForTurn, "others"), b.DeepCopy())
	waiting.cancel = true
	require.ErrorContains(t, waiting.run(t.Context()), "has no Job or PipelineRun to end")
	b.Status.Builder = &mcfgv1.MachineOSBuilderReference{Job: &mcfgv1.ObjectReference{Name: "build"}}
	c := building(t, &out, &notes, nil, configured(mcfgv1.ConditionReconciling, mcfgv1.ReasonBuilding, ""), b, job, other)
	c.cancel = true
	require.NoError(t, c.run(t.Context()))
	assert.Equal(t, "build worker-1 is cancelled; layerwright build worker --rebuild builds again\n", out.String())
	var left batchv1.JobList
	require.NoError(t, c.from.List(t.Context(), &left))
	require.Len(t, left.Items, 1)
	assert.Equal(t, "other", left.Items[0].Name)
}

func TestBuildIsLeftAlone(t *testing.T) {
	t.Parallel()
	var out, notes bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	b := building(t, &out, &notes, func(look int, _ client.Client) {
		if look == 3 {
			cancel()
		}
	}, configured(mcfgv1.ConditionReconciling, mcfgv1.ReasonBuilding, ""))
	require.ErrorContains(t, b.run(ctx), "interrupted: it goes on in the cluster")
}

// TestTrialOnACluster has a report with a text that would change the terminal.
func TestTrialOnACluster(t *testing.T) {
	t.Parallel()
	config := configured(mcfgv1.ConditionReady, "", "")
	config.Status.StreamTrial = &mcfgv1.StreamTrial{Stream: "old", State: mcfgv1.StreamTrialReported}
	report := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "layerwright", Name: "stream-trial-worker"}, Data: map[string]string{"report.txt": "Blockers\n  \x1b[31mCgroupV1\n"}}
	var out, notes bytes.Buffer
	b := building(t, &out, &notes, func(look int, c client.Client) {
		if look != 3 {
			return
		}
		found := &mcfgv1.MachineOSConfig{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "worker"}, found))
		assert.Equal(t, "new", found.Annotations[mcfgv1.AnnotationTryStream])
		found.Status.StreamTrial = &mcfgv1.StreamTrial{Stream: "new", State: mcfgv1.StreamTrialReported, BlockerCount: 1, Report: &mcfgv1.StreamTrialReport{Namespace: "layerwright", Name: report.Name}}
		require.NoError(t, c.Update(t.Context(), found))
	}, config, report)
	b.trial, b.stream = true, "new"
	var ended *endError
	require.ErrorAs(t, b.run(t.Context()), &ended)
	assert.Equal(t, exitHeld, ended.code)
	assert.Equal(t, "Blockers\n   [31mCgroupV1\n", out.String())
	assert.Contains(t, notes.String(), "waits for the controller")
}

func TestBuildFlags(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"--push, --base: of a build from files": {"worker", "--push", "x", "--base", "y"},
		"--rebuild: of a build on the cluster":  {"-f", "x", "--rebuild"},
		"give one of --rebuild, --cancel":       {"worker", "--rebuild", "--cancel"},
		"no stream: name the one":               {"worker", "--trial"},
		"--stream goes with --trial":            {"worker", "--stream", "new"},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, execute(t.Context(), append([]string{"build"}, args...), &stdout, &stderr), says)
		assert.Contains(t, stderr.String(), says)
	}
}

func TestProgressLine(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	p := newProgressLine(&lines)
	p.show("step build, instruction 3 of 9")
	p.show("step build, instruction 3 of 9")
	p.show("step \x1b[31mpush")
	assert.Equal(t, "step build, instruction 3 of 9\nstep  [31mpush\n", lines.String())
	var screen bytes.Buffer
	p = &progressLine{to: &screen, width: 40}
	p.show("step build, instruction 5 of 10: RUN dnf install")
	p.end()
	assert.Equal(t, "\r\x1b[K[==========          ] step build, inst\r\x1b[K", screen.String())
	assert.Empty(t, bar("3 of 0"))
}

func TestBuildEndsInTimeWhereTheAPIServerHangs(t *testing.T) {
	t.Parallel()
	var out, notes bytes.Buffer
	b := building(t, &out, &notes, nil, configured(mcfgv1.ConditionReconciling, "Building", ""))
	b.clock, b.timeout = clock.RealClock{}, 50*time.Millisecond
	looked := 0
	err := b.follow(t.Context(), func(ctx context.Context) (bool, error) {
		looked++
		<-ctx.Done()
		return false, ctx.Err()
	})
	var ended *endError
	require.ErrorAs(t, err, &ended)
	assert.Equal(t, exitTimedOut, ended.code)
	assert.Equal(t, 1, looked)
}
