package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/view"
)

func TestStateIsReadOfAllKinds(t *testing.T) {
	t.Parallel()
	scheme, err := newScheme()
	require.NoError(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	var listed int
	failure := error(nil)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node, config).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			listed++
			return errors.Join(failure, c.List(ctx, list, options...))
		},
	}).Build()

	s, err := readState(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, 8, listed)
	assert.Equal(t, 1, s.Configs)
	assert.Contains(t, s.Objects, metrics.Objects{Kind: view.KindNode, Assessment: "Unmanaged", Step: "in no pool", Count: 1})

	failure = errors.New("no cache")
	_, err = readState(t.Context(), c)
	require.ErrorIs(t, err, failure)
}

// TestStateOnARealAPIServer reads from a cache with the settings of the controller's.
func TestStateOnARealAPIServer(t *testing.T) {
	t.Parallel()
	controlPlane(t)
	scheme, err := newScheme()
	require.NoError(t, err)
	manager, err := ctrl.NewManager(clustertest.ControlPlane(t), ctrl.Options{
		Scheme: scheme, Cache: cacheOptions(testOptions(t)), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	require.True(t, manager.GetCache().WaitForCacheSync(ctx))
	_, err = readState(ctx, manager.GetClient())
	require.NoError(t, err, "each kind is in the cache")
	stop()
	require.NoError(t, <-ended)
}
