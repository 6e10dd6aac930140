package status_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
)

func TestResult(t *testing.T) {
	t.Parallel()
	priority := 7
	in := func(d time.Duration) ctrl.Result { return ctrl.Result{RequeueAfter: d} }
	tests := map[string]struct {
		res      ctrl.Result
		err      error
		want     ctrl.Result
		wantErr  error
		terminal bool
	}{
		"a good end is left alone":             {res: in(time.Hour), want: in(time.Hour)},
		"waiting comes back":                   {err: errWaiting, want: in(minute)},
		"waiting, wrapped":                     {err: fmt.Errorf("a: %w", errWaiting), want: in(minute)},
		"waiting, but the step is sooner":      {res: in(time.Second), err: errWaiting, want: in(time.Second)},
		"waiting, sooner than the step":        {res: in(time.Hour), err: errWaiting, want: in(minute)},
		"waiting for a watch":                  {err: fault.NewWaiting("WaitingForPool", 0, nil), want: ctrl.Result{}},
		"waiting keeps the priority":           {res: ctrl.Result{Priority: &priority}, err: errWaiting, want: ctrl.Result{Priority: &priority, RequeueAfter: minute}},
		"terminal is not repeated":             {res: in(minute), err: errTerminal, wantErr: errTerminal, terminal: true},
		"terminal, wrapped":                    {err: fmt.Errorf("a: %w", errTerminal), wantErr: errTerminal, terminal: true},
		"terminal by controller-runtime's own": {err: reconcile.TerminalError(errPlain), wantErr: errPlain, terminal: true},
		"transient is returned":                {res: in(minute), err: errPlain, wantErr: errPlain},
		"a conflict is no error":               {err: fmt.Errorf("adding finalizer: %w", errConflict), want: in(status.ConflictDelay)},
		"waiting because of a conflict":        {err: fault.NewWaiting("WaitingForOwner", minute, errConflict), want: in(minute)},
		"parts of all classes are repeated":    {err: fault.Join(errTerminal, errWaiting, errPlain), wantErr: errPlain},
		"parts that wait or are hopeless wait": {err: fault.Join(errTerminal, errWaiting), want: in(minute)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := status.Result(tt.res, tt.err)
			assert.Equal(t, tt.want, res)
			if tt.wantErr == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, tt.wantErr)
			assert.Equal(t, tt.terminal, errors.Is(err, reconcile.TerminalError(nil)))
		})
	}
}
