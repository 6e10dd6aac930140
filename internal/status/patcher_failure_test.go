package status_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/internal/testkind"
)

func TestFinishWhenTheWriteFails(t *testing.T) {
	t.Parallel()
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Widget"}, "w", nil)
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "widgets"}, "w")
	raw := reconcile.TerminalError(errors.New("raw"))
	in := func(d time.Duration) ctrl.Result { return ctrl.Result{RequeueAfter: d} }
	tests := map[string]struct {
		write, err error
		res, want  ctrl.Result
		wantErr    []error
		terminal   bool
		text       string
	}{
		"gone after a good reconcile":            {write: gone, res: in(minute), want: in(minute)},
		"gone while waiting":                     {write: gone, err: errWaiting, want: in(minute)},
		"gone after a transient error":           {write: gone, err: errPlain, wantErr: []error{errPlain}},
		"gone after a terminal error":            {write: gone, err: errTerminal, wantErr: []error{errTerminal}, terminal: true},
		"conflict after a good reconcile":        {write: errConflict, want: in(status.ConflictDelay)},
		"conflict, and the reconcile comes late": {write: errConflict, res: in(minute), want: in(status.ConflictDelay)},
		"conflict, and the reconcile comes soon": {write: errConflict, res: in(time.Millisecond), want: in(time.Millisecond)},
		"conflict while waiting":                 {write: errConflict, err: errWaiting, want: in(status.ConflictDelay)},
		"conflict after a terminal error":        {write: errConflict, err: errTerminal, want: in(status.ConflictDelay)},
		"conflict after a raw terminal":          {write: errConflict, err: raw, want: in(status.ConflictDelay)},
		"conflict after a transient error":       {write: errConflict, err: errPlain, wantErr: []error{errPlain}},
		"conflict after a conflict":              {write: errConflict, err: errConflict, want: in(status.ConflictDelay)},
		"refused after a good reconcile":         {write: invalid, wantErr: []error{invalid}, text: `writing status of Widget "/w": ` + invalid.Error()},
		"refused while waiting":                  {write: invalid, err: errWaiting, wantErr: []error{invalid, errWaiting}},
		"refused after a transient error":        {write: invalid, err: errPlain, wantErr: []error{invalid, errPlain}},
		"refused after a terminal error":         {write: invalid, err: errTerminal, wantErr: []error{invalid, errTerminal}},
		"refused after a raw terminal error":     {write: invalid, err: raw, wantErr: []error{invalid}, text: `terminal error: raw; writing status of Widget "/w": ` + invalid.Error()},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(stored())
			w.before = always(tt.write)
			obj := w.widget(t)
			patch := status.NewPatcher(w, obj)
			obj.Status.Size = 1
			var logged []string
			log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
			res, err := patch.Finish(logr.NewContext(t.Context(), log), obj, tt.res, tt.err)
			assert.Equal(t, tt.want, res)
			for _, want := range tt.wantErr {
				require.ErrorIs(t, err, want)
			}
			if tt.wantErr == nil {
				require.NoError(t, err)
			}
			if tt.text != "" {
				require.EqualError(t, err, tt.text)
			}
			assert.Equal(t, tt.terminal, errors.Is(err, reconcile.TerminalError(nil)), "the untold is tried again")
			if !tt.terminal && err != nil {
				assert.True(t, fault.IsTransient(err))
			}
			assert.Empty(t, logged, "nothing is logged and returned")
		})
	}
}

func TestFinishLosesARaceForReal(t *testing.T) {
	t.Parallel()
	w := newWorld(stored())
	obj := w.widget(t)
	patch := status.NewPatcher(w, obj)
	w.other(t, func(o *testkind.Widget) {
		status.Set(&o.Status.Conditions, t0, cond("Theirs", metav1.ConditionTrue, "R"))
	})
	status.Set(&obj.Status.Conditions, t0, cond("Ours", metav1.ConditionTrue, "R"))
	res, err := patch.Finish(t.Context(), obj, ctrl.Result{}, errTerminal)
	require.NoError(t, err)
	assert.Equal(t, ctrl.Result{RequeueAfter: status.ConflictDelay}, res)
	assert.Equal(t, []string{"Theirs=True R"}, say(w.widget(t).Status.Conditions), "theirs is not wiped out")
}

func TestFinishOfADeletedObject(t *testing.T) {
	t.Parallel()
	w := newWorld(stored())
	obj := w.widget(t)
	patch := status.NewPatcher(w, obj)
	require.NoError(t, w.Delete(t.Context(), stored()))
	obj.Status.Size = 1
	res, err := patch.Finish(t.Context(), obj, ctrl.Result{}, nil)
	require.NoError(t, err)
	assert.Equal(t, ctrl.Result{}, res)
}

func TestFinishOfARecreatedObject(t *testing.T) {
	t.Parallel()
	w := newWorld(stored())
	w.other(t, func(o *testkind.Widget) { o.Status.Size = 1 })
	obj := w.widget(t)
	patch := status.NewPatcher(w, obj)
	require.NoError(t, w.Delete(t.Context(), stored()))
	require.NoError(t, w.Create(t.Context(), widget()))
	obj.Status.Size = 2
	res, err := patch.Finish(t.Context(), obj, ctrl.Result{}, nil)
	require.NoError(t, err)
	assert.Equal(t, ctrl.Result{RequeueAfter: status.ConflictDelay}, res)
	assert.Zero(t, w.widget(t).Status.Size)
}

func TestFinishOfAnObjectThatWasNeverRead(t *testing.T) {
	t.Parallel()
	w := newWorld()
	obj := widget()
	patch := status.NewPatcher(w, obj)
	_, err := patch.Finish(t.Context(), obj, ctrl.Result{}, nil)
	require.EqualError(t, err, `comparing status of Widget "/w": the object was never read: it has no resourceVersion`)
	assert.Empty(t, w.patches)
}

func TestFinishWhenTimeIsUp(t *testing.T) {
	t.Parallel()
	expired, stop := context.WithDeadline(t.Context(), time.Unix(1, 0))
	t.Cleanup(stop)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx     context.Context //nolint:containedctx // the input of the test
		written bool
	}{
		"a reconcile that ran out of time still says so": {expired, true},
		"a process that ends says nothing more":          {cancelled, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(stored())
			obj := w.widget(t)
			patch := status.NewPatcher(w, obj)
			obj.Status.Size = 1
			_, err := patch.Finish(tt.ctx, obj, ctrl.Result{}, tt.ctx.Err())
			require.ErrorIs(t, err, tt.ctx.Err())
			assert.Equal(t, tt.written, w.widget(t).Status.Size == 1)
		})
	}
}
