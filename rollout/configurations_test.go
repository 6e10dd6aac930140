package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

// configured gives the pool a configuration that the image new fits, as renderer and builder do.
func (w *world) configured(config string) {
	w.t.Helper()
	pool := w.pool()
	pool.Spec.Configuration.Name = config
	require.NoError(w.t, w.Update(w.t.Context(), pool))
	image := w.image("new")
	image.Status.RenderedMachineConfig = config
	require.NoError(w.t, w.Status().Update(w.t.Context(), image))
}

func (w *world) image(name string) *mcfgv1alpha1.MachineOSImage {
	w.t.Helper()
	image := &mcfgv1alpha1.MachineOSImage{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: name}, image))
	return image
}

// annotated changes an annotation of a Node, as its agent does.
func (w *world) annotated(name, key, value string) {
	w.t.Helper()
	n := w.node(name)
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
	require.NoError(w.t, w.Update(w.t.Context(), n))
}

// configs are the configurations that nodes have, each with image 1.
func (w *world) configs(names ...string) []string {
	w.t.Helper()
	var out []string
	for _, name := range names {
		a := w.node(name).Annotations
		require.Equal(w.t, nodestest.Pinned("1"), a[mcfgv1.AnnotationCurrentImage])
		out = append(out, a[mcfgv1.AnnotationCurrentConfig])
	}
	return out
}

// inConfigurations is a pool of two nodes that run the newest image with rendered-1.
func inConfigurations(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, newPool("rendered-1", func(p *mcfgv1.MachineConfigPool) {
		p.Spec.Rollout = &mcfgv1.RolloutSpec{HaltThreshold: new(intstr.FromInt32(1))}
	}), newConfig("rendered-1", "0"), newConfig("rendered-2", "0"), newConfig("rendered-3", "0"), newLayer("1"), newImage("new", "1", "rendered-1"),
		newNode("a", nodestest.HavingImage("1")), newNode("b", nodestest.HavingImage("1")))
	w.settle()
	return w
}

func TestTheImageStaysAndTheConfigurationChanges(t *testing.T) {
	t.Parallel()
	w := inConfigurations(t)
	for _, config := range []string{"rendered-2", "rendered-3", "rendered-1"} {
		w.configured(config)
		w.settle()
		assert.Equal(t, []string{config, config}, w.configs("a", "b"))
		assert.Equal(t, "2/2 updated", w.pool().Status.Rollout.Summary)
		assert.Equal(t, "true", w.node("a").Annotations[mcfgv1.AnnotationLiveOnly], "it takes no slot")
		assert.Empty(t, w.node("a").Annotations[mcfgv1.AnnotationStageImage], "there is nothing to pull")
	}
}

// TestAConfigurationThatFailsIsHeldAlone lets a node fail with kernel arguments: the image has
// proven itself before.
func TestAConfigurationThatFailsIsHeldAlone(t *testing.T) {
	t.Parallel()
	w := inConfigurations(t)
	w.configured("rendered-2")
	w.reconcile()
	require.Equal(t, "rendered-2", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])
	w.annotated("a", mcfgv1.AnnotationReason, "no root device")
	w.annotated("a", mcfgv1.AnnotationState, mcfgv1.NodeStateDegraded)
	w.reconcile()
	assert.Equal(t, "rendered-2", w.image("new").Status.Quarantine.RenderedMachineConfig)
	w.annotated("a", mcfgv1.AnnotationState, mcfgv1.NodeStateDone)
	w.settle()
	assert.Equal(t, []string{"rendered-1", "rendered-1"}, w.configs("a", "b"))
	assert.True(t, status.IsTrue(w.pool().GetConditions(), typeRolloutDegraded))

	w.configured("rendered-1") // the change is taken back
	w.settle()
	assert.False(t, status.IsTrue(w.pool().GetConditions(), typeRolloutDegraded))
	assert.Equal(t, "2/2 updated", w.pool().Status.Rollout.Summary)

	w.configured("rendered-2")
	w.settle()
	assert.True(t, status.IsTrue(w.pool().GetConditions(), typeRolloutDegraded))
	assert.Equal(t, []string{"rendered-1", "rendered-1"}, w.configs("a", "b"))

	w.configured("rendered-3")
	w.settle()
	assert.Equal(t, []string{"rendered-3", "rendered-3"}, w.configs("a", "b"))
	assert.False(t, status.IsTrue(w.pool().GetConditions(), typeRolloutDegraded))
}

// TestWhatANodeHadBeforeIsNotOnTrial takes a change back for which a node waits for its slot.
func TestWhatANodeHadBeforeIsNotOnTrial(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-1", checked(podsCheck())), newConfig("rendered-1", "0"), newConfig("rendered-2", "0"), newLayer("1"),
		newImage("new", "1", "rendered-1"), newNode("a", nodestest.HavingImage("1")), newNode("b", nodestest.HavingImage("1")))
	w.settle()
	w.configured("rendered-2")
	w.reconcile()
	require.Equal(t, "true", w.node("a").Annotations[mcfgv1.AnnotationLiveOnly])
	for _, name := range []string{"a", "b"} {
		w.annotated(name, mcfgv1.AnnotationStagedChange, mcfgv1.NodeChangeReboot)
		w.annotated(name, mcfgv1.AnnotationStagedImage, nodestest.Pinned("1"))
	}
	w.shelf.objects = []*unstructured.Unstructured{pod("a", "1", "Failed")}
	w.configured("rendered-1")
	w.reconcile()
	w.reconcile()
	require.Equal(t, "rendered-1", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])
	for hours := range 3 {
		w.clock.SetTime(t0.Add(time.Duration(hours) * time.Hour))
		w.reconcile()
	}
	assert.Nil(t, w.image("new").Quarantined())
	assert.False(t, status.IsTrue(w.pool().GetConditions(), typeRolloutDegraded), "%v", w.pool().Status.Rollout)
	assert.Equal(t, "2/2 updated", w.pool().Status.Rollout.Summary)
}
