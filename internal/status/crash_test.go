package status_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/internal/testkind"
	"github.com/layerwright/layerwright/internal/status/statustest"
)

// widgets is a reconciler of the shape that all of ours have: size is what it observes.
type widgets struct {
	client client.Client
	clock  clock.PassiveClock
	size   func() (int, error)
}

func (r *widgets) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	w := &testkind.Widget{}
	if err := r.client.Get(ctx, req.NamespacedName, w); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	rules := status.Rules{{Type: "Sized"}}
	patch := status.NewPatcher(r.client, w, status.Owning(rules.Types()...))
	size := 0
	defer func() {
		if err == nil {
			setSized(w, r.clock.Now(), size)
		}
		rules.Conclude(w, r.clock.Now(), err)
		res, err = patch.Finish(ctx, w, res, err)
	}()
	size, err = r.size()
	return ctrl.Result{}, err
}

func setSized(w *testkind.Widget, now time.Time, size int) {
	w.Status.Size = size
	c := metav1.Condition{Type: "Sized", Status: metav1.ConditionTrue, Reason: "Fits", ObservedGeneration: w.Generation}
	if size != w.Spec.Size {
		c.Status, c.Reason = metav1.ConditionFalse, "Growing"
	}
	status.Set(&w.Status.Conditions, now, c)
}

// once calls f the first time only.
func once(f func() error) func() error {
	called := false
	return func() error {
		if called {
			return nil
		}
		called = true
		return f()
	}
}

// TestCrash ends a reconcile at every point around its one write, in each of several stories, and
// expects the same end.
func TestCrash(t *testing.T) {
	t.Parallel()
	type observation struct {
		size int
		err  error
	}
	stories := map[string]struct {
		seen []observation // by one reconcile each
		want []string
		gen  int64
	}{
		"all well":           {[]observation{{size: 2}}, []string{"Ready=True Succeeded", "Sized=True Fits"}, 3},
		"growing, then well": {[]observation{{size: 1}, {size: 2}}, []string{"Ready=True Succeeded", "Sized=True Fits"}, 3},
		"an error, then well": {
			[]observation{{err: errPlain}, {size: 2}}, []string{"Ready=True Succeeded", "Sized=True Fits"}, 3,
		},
		"waiting": {[]observation{{size: 2}, {err: errWaiting}}, []string{
			`Ready=Unknown WaitingForSecret secret "push" is missing`, "Sized=True Fits", `Reconciling=True WaitingForSecret secret "push" is missing`,
		}, 3},
		"refused at once": {[]observation{{err: errTerminal}}, []string{
			"Ready=False BadContainerfile line 3: unknown instruction", "Sized=Unknown NotYetObserved",
			"Stalled=True BadContainerfile line 3: unknown instruction",
		}, 3},
		"refused, then mended": {[]observation{{err: errTerminal}, {size: 2}}, []string{"Ready=True Succeeded", "Sized=True Fits"}, 3},
	}
	killed := errors.New("killed")
	crashes := map[string]func(*testing.T, *world){
		"nothing fails": func(*testing.T, *world) {},
		"killed before": func(_ *testing.T, w *world) { w.before = once(always(killed)) },
		"killed after":  func(_ *testing.T, w *world) { w.after = once(always(killed)) },
		"another writes first": func(t *testing.T, w *world) {
			t.Helper()
			w.before = once(func() error {
				w.other(t, func(o *testkind.Widget) {
					theirs := cond("Theirs", metav1.ConditionTrue, "Busy")
					theirs.Message = "written after version " + o.ResourceVersion
					status.Set(&o.Status.Conditions, t0, theirs)
				})
				return nil
			})
		},
	}
	for story, s := range stories {
		for name, arm := range crashes {
			t.Run(story+", "+name, func(t *testing.T) {
				t.Parallel()
				first := stored()
				first.Spec.Size = 2
				w := newWorld(first)
				clock := clocktesting.NewFakePassiveClock(t0)
				for _, o := range s.seen {
					arm(t, w)
					for range 2 { // the second reconcile is another process's
						before := w.widget(t)
						clock.SetTime(clock.Now().Add(minute))
						r := &widgets{client: w, clock: clock, size: func() (int, error) { return o.size, o.err }}
						_, _ = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "w"}})
						after := w.widget(t)
						if status.Find(after.Status.Conditions, status.Ready) != nil { // ours came through
							statustest.RequireStep(t, before, after)
						}
					}
				}
				got := w.widget(t)
				theirs := status.IsTrue(got.Status.Conditions, "Theirs")
				assert.Equal(t, name == "another writes first", theirs, "what another wrote is neither lost nor made up")
				status.Remove(&got.Status.Conditions, "Theirs")
				assert.ElementsMatch(t, s.want, say(got.Status.Conditions), "which came first may differ")
				assert.Equal(t, s.gen, got.Status.ObservedGeneration)

				sent := len(w.patches)
				last := s.seen[len(s.seen)-1]
				r := &widgets{client: w, clock: clock, size: func() (int, error) { return last.size, last.err }}
				_, _ = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "w"}})
				assert.Len(t, w.patches, sent, "a reconcile that sees nothing new writes nothing")
			})
		}
	}
}

func TestReconcileOfAnObjectThatIsGone(t *testing.T) {
	t.Parallel()
	r := &widgets{client: newWorld(), clock: clocktesting.NewFakePassiveClock(t0)}
	res, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "w"}})
	require.NoError(t, err)
	assert.Equal(t, ctrl.Result{}, res)
}

// TestBuildCrash runs a build through its stages, losing the answer to every write once.
func TestBuildCrash(t *testing.T) {
	t.Parallel()
	b := newBuild()
	w := newWorld(b)
	clock := clocktesting.NewFakePassiveClock(t0)
	read := func() *testkind.Build {
		out := &testkind.Build{}
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(b), out))
		return out
	}
	reconcile := func(stage mcfgv1.BuildStage) {
		before := read()
		obj := copyBuild(before)
		patch := status.NewPatcher(w, obj, status.Freezing(status.FinalBuildTypes()...))
		status.SetBuild(&obj.Status.Conditions, clock.Now(), status.Build{Stage: stage, Generation: 1})
		times := status.BuildTimes{Start: obj.Status.BuildStart, End: obj.Status.BuildEnd}
		if stage >= mcfgv1.BuildStageBuilding {
			times = times.Started(clock.Now())
		}
		if stage.IsFinal() {
			times = times.Ended(clock.Now())
		}
		obj.Status.BuildStart, obj.Status.BuildEnd = times.Start, times.End
		_, _ = patch.Finish(t.Context(), obj, ctrl.Result{}, nil)
		requireBuild(t, before, read())
		clock.SetTime(clock.Now().Add(300 * time.Millisecond))
	}
	for _, stage := range []mcfgv1.BuildStage{mcfgv1.BuildStagePending, mcfgv1.BuildStagePrepared, mcfgv1.BuildStageBuilding, mcfgv1.BuildStageSucceeded} {
		w.after = always(errPlain)
		reconcile(stage)
		w.after = nil
		reconcile(stage)
	}
	end := read()
	assert.Equal(t, mcfgv1.BuildStageSucceeded, status.BuildStageOf(end.Status.Conditions))
	assert.Equal(t, time.Second, end.Status.BuildEnd.Sub(end.Status.BuildStart.Time))

	reconcile(mcfgv1.BuildStageFailed) // too late
	assert.Equal(t, end, read())
}
