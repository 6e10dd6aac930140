package configs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/apitest"
)

// TestPoolsGetTheirConfigurationsFirst has nothing but a client: whoever does not wait would need
// more.
func TestPoolsGetTheirConfigurationsFirst(t *testing.T) {
	t.Parallel()
	config := &mcfgv1.MachineOSConfig{}
	config.Name = "worker"
	r := New(Options{
		Client: fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithObjects(config).Build(), Waits: func() bool { return true },
	})
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "worker"}})
	require.NoError(t, err)
	assert.Equal(t, ctrl.Result{RequeueAfter: waitAgain}, result)
}
