package configs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/status"
)

func TestVerdictsWakeTheirMachineOSConfig(t *testing.T) {
	t.Parallel()
	before := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: mcfgv1.GroupVersion.String(), Kind: owner.Kind, Name: "worker", Controller: new(true)},
	}}}
	after := before.DeepCopy()
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	status.Set(&after.Status.Conditions, now, metav1.Condition{
		Type: mcfgv1alpha1.ImageVerified, Status: metav1.ConditionTrue, Reason: mcfgv1alpha1.ReasonVerified,
	})
	p := imageJudged()
	assert.True(t, p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
	assert.False(t, p.Update(event.UpdateEvent{ObjectOld: after, ObjectNew: after}))
	assert.False(t, p.Create(event.CreateEvent{Object: after}))
	ready := after.DeepCopy()
	status.Set(&ready.Status.Conditions, now, metav1.Condition{Type: status.Ready, Status: metav1.ConditionTrue, Reason: "Ready"})
	assert.True(t, p.Update(event.UpdateEvent{ObjectOld: after, ObjectNew: ready}), "the pool's tag may move")
	assert.True(t, p.Update(event.UpdateEvent{ObjectOld: ready, ObjectNew: after}))
	requests := configOfImage(t.Context(), after)
	require.Len(t, requests, 1)
	assert.Equal(t, "worker", requests[0].Name)
	after.OwnerReferences = nil
	assert.Empty(t, configOfImage(t.Context(), after))
}

func TestAnAnnotationThatNamesAnotherBuildWakesIt(t *testing.T) {
	t.Parallel()
	named := func(annotation string) *mcfgv1.MachineOSConfig {
		c := &mcfgv1.MachineOSConfig{}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationCurrentMachineOSBuild, annotation)
		c.Status.MachineOSBuild = &mcfgv1.ObjectReference{Name: "worker-1"}
		return c
	}
	gone := named("")
	gone.Annotations = nil
	p := configChanged()
	assert.True(t, p.Update(event.UpdateEvent{ObjectOld: named("worker-1"), ObjectNew: named("worker-gone")}))
	assert.True(t, p.Update(event.UpdateEvent{ObjectOld: named("worker-1"), ObjectNew: gone}))
	assert.False(t, p.Update(event.UpdateEvent{ObjectOld: named("worker-gone"), ObjectNew: named("worker-1")}), "that was put right")
	assert.False(t, p.Update(event.UpdateEvent{ObjectOld: named("worker-gone"), ObjectNew: named("worker-gone")}))
}
