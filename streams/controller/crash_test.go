package controller

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// TestACrashAfterAnyWriteEndsInTheSameState makes the process end after each of its writes, in
// turn: from nothing, and in an upgrade.
func TestACrashAfterAnyWriteEndsInTheSameState(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, crashAfter int) *world {
		t.Helper()
		w := newWorld(t)
		writes := 0
		w.after = func() error {
			if writes++; writes == crashAfter {
				return errors.New("killed")
			}
			return nil
		}
		for _, version := range []string{"4.21.0", "4.22.1"} {
			w.options.ReleaseImage = w.release(version, w.registry.addStream("rhel-9", version), w.registry.addStream("rhel-10", version))
			w.options.ReleaseVersion = version
			for range 10 { // a crash is no end
				_ = w.reconcile()
				o := w.get()
				if o != nil && o.Annotations[mcfgv1.AnnotationReleaseImageVersion] == version {
					require.Equal(t, image("rhel-9-"+version), w.images()["rhel-9"], "who sees the release sees its images")
				}
			}
		}
		return w
	}
	want := run(t, 0)
	require.Positive(t, want.writes)
	for n := 1; n <= want.writes; n++ {
		got := run(t, n)
		assert.Equal(t, want.get().Status.AvailableStreams, got.get().Status.AvailableStreams, "after write %d", n)
		assert.Equal(t, want.get().Annotations, got.get().Annotations, "after write %d", n)
		assert.Equal(t, want.conditions(), got.conditions(), "after write %d", n)
		assert.Equal(t, want.get().Spec, got.get().Spec, "after write %d", n)
	}
}

func TestClusterOf(t *testing.T) {
	t.Parallel()
	assert.Equal(t, cluster{"4.22.0", "quay.io/r:2", "4.18.3"}, clusterOf(version("4.22.0", "quay.io/r:2", "4.21.0", "4.18.3")))
	assert.Equal(t, cluster{"4.22.0", "", "4.22.0"}, clusterOf(version("4.22.0", "")), "it is being installed")
	assert.Equal(t, cluster{}, clusterOf(&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"history": "odd"}}}))
}
