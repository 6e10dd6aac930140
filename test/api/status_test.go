package api

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/statustest"
)

// Every kind with conditions can be written by internal/status.
var (
	_ status.Object   = (*mcfgv1.MachineOSBuild)(nil)
	_ status.Observer = (*mcfgv1.MachineOSConfig)(nil)
	_ status.Object   = (*mcfgv1.MachineOSConfig)(nil)
	_ status.Observer = (*mcfgv1.MachineConfigPool)(nil)
	_ status.Object   = (*mcfgv1.MachineConfigPool)(nil)
	_ status.Observer = (*mcfgv1.MachineConfigNode)(nil)
	_ status.Object   = (*mcfgv1.MachineConfigNode)(nil)
	_ status.Observer = (*mcfgv1.OSImageStream)(nil)
	_ status.Object   = (*mcfgv1.OSImageStream)(nil)
	_ status.Observer = (*mcfgv1alpha1.MachineOSImage)(nil)
	_ status.Object   = (*mcfgv1alpha1.MachineOSImage)(nil)
	_ status.Observer = (*mcfgv1alpha1.BootImageHistory)(nil)
	_ status.Object   = (*mcfgv1alpha1.BootImageHistory)(nil)
	_ status.Observer = (*operatorv1.MachineConfiguration)(nil)
	_ status.Object   = (*operatorv1.MachineConfiguration)(nil)
)

func newClient(t *testing.T, s *server) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, mcfgv1.AddToScheme(scheme))
	c, err := client.New(s.config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// createBase makes the smallest valid object of a kind.
func createBase[T client.Object](t *testing.T, c client.Client, kind string, object T) T {
	t.Helper()
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(bases(t)[kind], object))
	require.NoError(t, c.Create(t.Context(), object))
	t.Cleanup(func() { require.NoError(t, c.Delete(contextWithoutCancel(t), object)) })
	return object
}

// TestBuildStatusThroughAllStages writes a MachineOSBuild's status as a controller does, reconcile
// by reconcile. The API server's own rules (eight conditions, frozen at the end, times set once)
// must never refuse one.
func TestBuildStatusThroughAllStages(t *testing.T) { // its subtests share a name, so nothing here is parallel
	begin := time.Date(2026, 1, 1, 12, 0, 0, 600e6, time.UTC)
	stages := map[string][]mcfgv1.BuildStage{
		"built":           {mcfgv1.BuildStagePending, mcfgv1.BuildStagePrepared, mcfgv1.BuildStageBuilding, mcfgv1.BuildStageSucceeded},
		"reused at once":  {mcfgv1.BuildStageSucceeded},
		"failed":          {mcfgv1.BuildStagePrepared, mcfgv1.BuildStageBuilding, mcfgv1.BuildStageBuilding, mcfgv1.BuildStageFailed},
		"interrupted":     {mcfgv1.BuildStagePending, mcfgv1.BuildStageInterrupted},
		"never goes back": {mcfgv1.BuildStageBuilding, mcfgv1.BuildStagePrepared, mcfgv1.BuildStageSucceeded},
	}
	server := newServer(t)
	server.own(t, "MachineOSBuild")
	c := newClient(t, server)
	for name, reconciles := range stages {
		t.Run(name, func(t *testing.T) {
			build := createBase(t, c, "MachineOSBuild", &mcfgv1.MachineOSBuild{})
			for i, stage := range reconciles {
				writeStage(t, c, build, stage, begin.Add(time.Duration(i)*300*time.Millisecond))
				statustest.RequireConsistent(t, build, statustest.Max(status.MaxBuildConditions))
			}
			last := reconciles[len(reconciles)-1]
			require.Equal(t, last, status.BuildStageOf(build.Status.Conditions))
			require.GreaterOrEqual(t, build.Status.BuildEnd.Sub(build.Status.BuildStart.Time), time.Second)

			// The end is the last write: another reconcile changes nothing, and no one else may.
			before := build.ResourceVersion
			writeStage(t, c, build, mcfgv1.BuildStageFailed, begin.Add(time.Hour))
			require.Equal(t, before, build.ResourceVersion)
			build.Status.Conditions[0].Message = "changed"
			require.True(t, apierrors.IsInvalid(c.Status().Update(t.Context(), build)))
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(build), build))
		})
	}
}

// writeStage is one reconcile of a controller that observed a stage.
func writeStage(t *testing.T, c client.Client, build *mcfgv1.MachineOSBuild, stage mcfgv1.BuildStage, now time.Time) {
	t.Helper()
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(build), build))
	patch := status.NewPatcher(c, build, status.Freezing(status.FinalBuildTypes()...))
	if status.SetBuild(&build.Status.Conditions, now, status.Build{Stage: stage, Generation: build.Generation}) {
		times := status.BuildTimes{Start: build.Status.BuildStart, End: build.Status.BuildEnd}
		if stage >= mcfgv1.BuildStageBuilding {
			times = times.Started(now)
		}
		if stage.IsFinal() {
			times = times.Ended(now)
		}
		build.Status.BuildStart, build.Status.BuildEnd = times.Start, times.End
	}
	_, err := patch.Finish(t.Context(), build, ctrl.Result{}, nil)
	require.NoError(t, err)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(build), build))
}

// TestConditionsOfAllErrorClasses writes what a MachineOSConfig shows after reconciles that ended
// differently.
func TestConditionsOfAllErrorClasses(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.own(t, "MachineOSConfig")
	c := newClient(t, server)
	mosc := createBase(t, c, "MachineOSConfig", &mcfgv1.MachineOSConfig{})
	rules := status.Rules{}
	for _, r := range []struct {
		err   error
		ready metav1.ConditionStatus
		other string
	}{
		{fault.NewWaiting("WaitingForSecret", time.Minute, errors.New(`secret "push" does not exist`)), metav1.ConditionUnknown, status.Reconciling},
		{fault.NewTerminal("InvalidContainerfile", errors.New("line 3: unknown instruction RUNN")), metav1.ConditionFalse, status.Stalled},
		{nil, metav1.ConditionTrue, ""},
	} {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(mosc), mosc))
		patch := status.NewPatcher(c, mosc)
		rules.Conclude(mosc, time.Now(), r.err)
		_, err := patch.Finish(t.Context(), mosc, ctrl.Result{}, r.err)
		require.Equal(t, fault.IsTerminal(r.err), err != nil)

		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(mosc), mosc))
		statustest.RequireConsistent(t, mosc)
		require.Equal(t, r.ready, status.Find(mosc.Status.Conditions, status.Ready).Status)
		for _, abnormal := range []string{status.Reconciling, status.Stalled} {
			require.Equal(t, abnormal == r.other, status.IsTrue(mosc.Status.Conditions, abnormal), abnormal)
		}
	}
	require.Equal(t, mosc.Generation, mosc.Status.ObservedGeneration)
}

// TestPoolConditionsKeepThePublishedType holds that a pool's conditions survive the way through the
// common type.
func TestPoolConditionsKeepThePublishedType(t *testing.T) {
	t.Parallel()
	pool := &mcfgv1.MachineConfigPool{}
	require.Nil(t, pool.GetConditions())
	now := metav1.Now()
	conditions := []metav1.Condition{{Type: "RenderDegraded", Status: metav1.ConditionTrue, Reason: "StreamNotFound", Message: "m", LastTransitionTime: now}}
	pool.SetConditions(conditions)
	require.Equal(t, conditions, pool.GetConditions())
	pool.SetConditions(append(conditions, metav1.Condition{Type: "X", ObservedGeneration: 3}))
	require.Zero(t, pool.GetConditions()[1].ObservedGeneration, "the published type has no such field")
}
