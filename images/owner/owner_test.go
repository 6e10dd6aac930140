package owner_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/owner"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	reference := func(change func(*metav1.OwnerReference)) *metav1.OwnerReference {
		r := &metav1.OwnerReference{APIVersion: mcfgv1.GroupVersion.String(), Kind: owner.Kind, Name: "workers", UID: "1", Controller: new(true)}
		if change != nil {
			change(r)
		}
		return r
	}
	for name, tt := range map[string]struct {
		owner *metav1.OwnerReference
		is    bool
	}{
		"its own":                      {reference(nil), true},
		"none":                         {nil, false},
		"another kind":                 {reference(func(r *metav1.OwnerReference) { r.Kind = "MachineConfigPool" }), false},
		"an owner that does not rule":  {reference(func(r *metav1.OwnerReference) { r.Controller = nil }), false},
		"one that is gone":             {reference(func(r *metav1.OwnerReference) { r.Name = "gone" }), false},
		"another one of the same name": {reference(func(r *metav1.OwnerReference) { r.UID = "2" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			require.NoError(t, mcfgv1.AddToScheme(scheme))
			config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "workers", UID: "1"}}
			image := &mcfgv1alpha1.MachineOSImage{}
			if tt.owner != nil {
				image.OwnerReferences = []metav1.OwnerReference{*tt.owner}
			}
			got, err := owner.Config(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).Build(), image)
			require.NoError(t, err)
			assert.Equal(t, tt.is, got != nil)
		})
	}
	_, err := owner.Config(t.Context(), fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build(),
		&mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{*reference(nil)}}})
	require.ErrorContains(t, err, `reading MachineOSConfig "workers"`)
}
