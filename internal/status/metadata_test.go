package status_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/internal/testkind"
)

func annotated(annotations map[string]string) *testkind.Widget {
	w := stored()
	w.Annotations = annotations
	return w
}

func TestAcknowledge(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		has, want map[string]string
		asked     bool
	}{
		"the request is removed, and nothing else": {map[string]string{"check": "", "mine": "1"}, map[string]string{"mine": "1"}, true},
		"each spelling of it":                      {map[string]string{"check": "yes", "check-too": ""}, nil, true},
		"no one has asked":                         {map[string]string{"mine": "1"}, map[string]string{"mine": "1"}, false},
		"there are no annotations":                 {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(annotated(tt.has))
			obj := w.widget(t)
			version := obj.ResourceVersion
			obj.Status.Size = 4 // it is written later
			asked, err := status.Acknowledge(t.Context(), w, obj, "check", "check-too")
			require.NoError(t, err)
			assert.Equal(t, tt.asked, asked)
			got := w.widget(t)
			assert.Len(t, got.Annotations, len(tt.want))
			for key, value := range tt.want {
				assert.Equal(t, value, got.Annotations[key])
			}
			assert.Len(t, obj.Annotations, len(tt.want), "the object in hand has it too")
			assert.Equal(t, got.ResourceVersion, obj.ResourceVersion, "and can be written again")
			assert.Equal(t, tt.asked, version != obj.ResourceVersion, "nothing is written for nothing")
			assert.Equal(t, 4, obj.Status.Size)
			assert.Zero(t, got.Status.Size)
		})
	}
}

func TestChangeMetadata(t *testing.T) {
	t.Parallel()
	label := func(o *testkind.Widget) { o.SetLabels(map[string]string{"a": "b"}) }
	t.Run("loses a race", func(t *testing.T) {
		t.Parallel()
		w := newWorld(stored())
		obj := w.widget(t)
		w.other(t, func(o *testkind.Widget) { o.Spec.Size = 7 })
		err := status.ChangeMetadata(t.Context(), w, obj, label)
		require.True(t, apierrors.IsConflict(err), "%v", err)
		require.ErrorContains(t, err, `changing Widget "`)
		assert.Empty(t, obj.Labels)
	})
	t.Run("the object is gone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(stored())
		obj := w.widget(t)
		require.NoError(t, w.Delete(t.Context(), w.widget(t)))
		require.NoError(t, status.ChangeMetadata(t.Context(), w, obj, label))
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	var made []string
	step := func(name string, err error) func(context.Context, *[]string) error {
		return func(_ context.Context, s *[]string) error {
			*s = append(*s, name)
			return err
		}
	}
	failure := errors.New("no")
	require.ErrorIs(t, status.Run(t.Context(), &made, step("a", nil), step("b", failure), step("c", nil)), failure)
	assert.Equal(t, []string{"a", "b"}, made)
	require.NoError(t, status.Run(t.Context(), &made))
}
