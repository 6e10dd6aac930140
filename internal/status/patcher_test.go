package status_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/internal/testkind"
	"github.com/layerwright/layerwright/internal/status/statustest"
)

// world is a fake API server that remembers the status patches and can be told to fail them.
type world struct {
	client.WithWatch

	patches []string
	// before and after are called around a status patch; an error of theirs is the patch's.
	before, after func() error
}

func newWorld(objects ...client.Object) *world {
	w := &world{}
	w.WithWatch = fake.NewClientBuilder().WithScheme(testkind.Scheme()).WithObjects(objects...).
		WithStatusSubresource(&testkind.Widget{}, &testkind.Build{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: w.patch}).Build()
	return w
}

func (w *world) patch(
	ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	w.patches = append(w.patches, string(data))
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.before != nil {
		if err := w.before(); err != nil {
			return err
		}
	}
	if err := c.SubResource(sub).Patch(ctx, obj, patch, opts...); err != nil {
		return err
	}
	if w.after != nil {
		return w.after()
	}
	return nil
}

func (w *world) widget(t *testing.T) *testkind.Widget {
	t.Helper()
	out := &testkind.Widget{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "w"}, out))
	return out
}

// other writes as another controller does.
func (w *world) other(t *testing.T, change func(*testkind.Widget)) {
	t.Helper()
	other := w.widget(t)
	change(other)
	require.NoError(t, w.Status().Update(t.Context(), other))
}

func always(err error) func() error { return func() error { return err } }

func stored(conditions ...metav1.Condition) *testkind.Widget {
	out := widget(conditions...)
	out.Generation = 3
	for i := range out.Status.Conditions {
		out.Status.Conditions[i].LastTransitionTime = status.Second(t0)
	}
	return out
}

func TestFinishWritesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(stored())
	obj := w.widget(t)
	patch := status.NewPatcher(w, obj)
	obj.Status.Size = 4
	status.SetSummary(&obj.Status.Conditions, t0, 3, status.Summary{State: status.StateReady, Reason: "Succeeded"})
	version := obj.ResourceVersion
	obj.Spec.Size = 99 // a mistake, which a status write must not spread
	obj.Labels = map[string]string{"a": "b"}

	res, err := patch.Finish(t.Context(), obj, ctrl.Result{RequeueAfter: minute}, nil)
	require.NoError(t, err)
	assert.Equal(t, ctrl.Result{RequeueAfter: minute}, res)

	require.Len(t, w.patches, 1)
	assert.JSONEq(t, `{
		"metadata": {"resourceVersion": "`+version+`"},
		"status": {
			"size": 4,
			"count": 0,
			"observedGeneration": 3,
			"conditions": [{
				"type": "Ready", "status": "True", "reason": "Succeeded", "message": "",
				"observedGeneration": 3, "lastTransitionTime": "2026-01-02T02:04:05Z"
			}]
		}
	}`, w.patches[0])
	got := w.widget(t)
	assert.Equal(t, int64(3), got.Status.ObservedGeneration)
	assert.Zero(t, got.Spec.Size)
	assert.Empty(t, got.Labels)
	assert.Equal(t, got.ResourceVersion, obj.ResourceVersion, "the object in hand can be written again")
	assert.Equal(t, 99, obj.Spec.Size, "and keeps what it held")
	statustest.RequireConsistent(t, got)
}

func TestFinishWritesZerosOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(stored())
	for _, size := range []int{0, 4} {
		obj := w.widget(t)
		patch := status.NewPatcher(w, obj)
		obj.Status.Size = size // is left out where it is 0
		_, err := patch.Finish(t.Context(), obj, ctrl.Result{}, nil)
		require.NoError(t, err)
	}
	require.Len(t, w.patches, 2)
	assert.Contains(t, w.patches[0], `"count":0`, "which no one wrote before")
	assert.NotContains(t, w.patches[1], "count")
}

func TestFinishWritesNothingIfNothingChanged(t *testing.T) {
	t.Parallel()
	before := stored(cond("Ready", metav1.ConditionTrue, "Succeeded"))
	before.Status.ObservedGeneration = 3
	w := newWorld(before)
	obj := w.widget(t)
	patch := status.NewPatcher(w, obj)
	// The condition goes to False and back within the reconcile: that is no transition.
	status.Set(&obj.Status.Conditions, t0.Add(minute), cond("Ready", metav1.ConditionFalse, "Odd"))
	status.Set(&obj.Status.Conditions, t0.Add(minute), cond("Ready", metav1.ConditionTrue, "Succeeded"))

	_, err := patch.Finish(t.Context(), obj, ctrl.Result{}, nil)
	require.NoError(t, err)
	assert.Empty(t, w.patches)
}

func TestFinishMovesObservedGeneration(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		observed int64
		err      error
		options  []status.Option
		set      int64
		want     int64
	}{
		"after a good reconcile":                 {observed: 1, want: 3},
		"not after a transient error":            {observed: 1, err: errPlain, want: 1},
		"not while waiting":                      {observed: 1, err: errWaiting, want: 1},
		"not after a conflict":                   {observed: 1, err: errConflict, want: 1},
		"after a terminal error: it was refused": {observed: 1, err: errTerminal, want: 3},
		"never back":                             {observed: 5, want: 5},
		"not if another controller moves it":     {observed: 1, options: []status.Option{status.KeepGeneration()}, want: 1},
		"not by the reconciler":                  {observed: 1, set: 3, err: errPlain, want: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := stored()
			before.Status.ObservedGeneration = tt.observed
			w := newWorld(before)
			obj := w.widget(t)
			patch := status.NewPatcher(w, obj, tt.options...)
			if tt.set != 0 {
				obj.Status.ObservedGeneration = tt.set
			}
			_, _ = patch.Finish(t.Context(), obj, ctrl.Result{}, tt.err)
			assert.Equal(t, tt.want, w.widget(t).Status.ObservedGeneration)
		})
	}
}

func TestFinishObservesTheGenerationThatWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(stored())
	obj := w.widget(t)
	patch := status.NewPatcher(w, obj)
	obj.Generation = 4 // what a write of the reconciler's own may return with
	_, err := patch.Finish(t.Context(), obj, ctrl.Result{}, nil)
	require.NoError(t, err)
	assert.Equal(t, int64(3), w.widget(t).Status.ObservedGeneration)
}

func TestFinishOfAKindWithoutObservedGeneration(t *testing.T) {
	t.Parallel()
	b := &testkind.Build{}
	b.Name = "b"
	w := newWorld(b)
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "b"}, b))
	patch := status.NewPatcher(w, b)
	_, err := patch.Finish(t.Context(), b, ctrl.Result{}, nil)
	require.NoError(t, err)
	assert.Empty(t, w.patches)
}

func TestFinishKeepsForeignConditions(t *testing.T) {
	t.Parallel()
	theirs, ours := cond("NodesUpdated", metav1.ConditionFalse, "Draining"), cond("Ready", metav1.ConditionFalse, "Old")
	old := cond("Obsolete", metav1.ConditionTrue, "Old")
	w := newWorld(stored(theirs, ours, old))
	obj := w.widget(t)
	patch := status.NewPatcher(w, obj, status.Owning("Ready", "Obsolete", "New"))
	obj.Status.Conditions = nil
	for _, c := range []metav1.Condition{
		cond("New", metav1.ConditionTrue, "R"), cond("Ready", metav1.ConditionTrue, "R"),
		cond("NodesUpdated", metav1.ConditionTrue, "Mistake"), cond("Foreign", metav1.ConditionTrue, "Mistake"),
	} {
		status.Set(&obj.Status.Conditions, t0, c)
	}
	_, err := patch.Finish(t.Context(), obj, ctrl.Result{}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"NodesUpdated=False Draining", "Ready=True R", "New=True R"}, say(w.widget(t).Status.Conditions))
}

func TestFinishAfterAWriteOfTheReconcilersOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(stored(cond("NodesUpdated", metav1.ConditionFalse, "Draining")))
	obj := w.widget(t)
	patch := status.NewPatcher(w, obj, status.Owning("Ready"))
	w.other(t, func(o *testkind.Widget) { // no one here has seen this yet
		status.Set(&o.Status.Conditions, t0, cond("NodesUpdated", metav1.ConditionTrue, "Done"))
		o.Status.ObservedGeneration = 2
	})
	base := obj.DeepCopyObject().(client.Object)
	obj.Finalizers = []string{"test.example/f"}
	require.NoError(t, w.Patch(t.Context(), obj, client.MergeFrom(base)), "the finalizer step")

	status.Set(&obj.Status.Conditions, t0, cond("Ready", metav1.ConditionUnknown, "R"))
	_, err := patch.Finish(t.Context(), obj, ctrl.Result{}, errWaiting)
	require.NoError(t, err)
	require.Len(t, w.patches, 1)
	got := w.widget(t)
	assert.Equal(t, []string{"NodesUpdated=True Done", "Ready=Unknown R"}, say(got.Status.Conditions), "no conflict, nothing lost")
	assert.Equal(t, int64(2), got.Status.ObservedGeneration)
	assert.Equal(t, []string{"test.example/f"}, got.Finalizers)
}

func TestFinishFreezes(t *testing.T) {
	t.Parallel()
	w := newWorld(stored(cond("Succeeded", metav1.ConditionTrue, "Done"), cond("Ready", metav1.ConditionTrue, "Done")))
	obj := w.widget(t)
	patch := status.NewPatcher(w, obj, status.Freezing(status.FinalBuildTypes()...))
	status.Set(&obj.Status.Conditions, t0.Add(minute), cond("Succeeded", metav1.ConditionFalse, "Mistake"))
	obj.Status.Size = 5
	_, err := patch.Finish(t.Context(), obj, ctrl.Result{}, nil)
	require.NoError(t, err)
	got := w.widget(t)
	assert.Equal(t, []string{"Succeeded=True Done", "Ready=True Done"}, say(got.Status.Conditions))
	assert.Equal(t, 5, got.Status.Size, "the rest of the status is not frozen")
}

// A patch must be JSON that names nothing but the status and the version it is for.
func TestFinishNeverPatchesMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(stored())
	obj := w.widget(t)
	patch := status.NewPatcher(w, obj)
	obj.Finalizers, obj.Annotations, obj.Status.Size = []string{"a/b"}, map[string]string{"a": "b"}, 1
	_, err := patch.Finish(t.Context(), obj, ctrl.Result{}, nil)
	require.NoError(t, err)
	var sent map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(w.patches[0]), &sent))
	assert.Len(t, sent, 2)
	assert.Len(t, sent["metadata"], 1)
	assert.Contains(t, sent["metadata"], "resourceVersion")
}
