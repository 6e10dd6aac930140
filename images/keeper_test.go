package images

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/events"
)

// TestNothingIsSaidOfARemovedImage is about who waited while retention removed the image.
func TestNothingIsSaidOfARemovedImage(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, mcfgv1alpha1.AddToScheme(scheme))
	image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: "old"}}
	again := image.DeepCopy()
	again.UID = "new"
	recorder := kubeevents.NewFakeRecorder(1)
	for name, cluster := range map[string]*fake.ClientBuilder{
		"the object is gone":           fake.NewClientBuilder().WithScheme(scheme),
		"the object is there, but new": fake.NewClientBuilder().WithScheme(scheme).WithObjects(again),
	} {
		keeper := New(Options{Reader: cluster.Build(), Events: events.NewPublisher(recorder)})
		require.ErrorContains(t, keeper.Sign(t.Context(), nil, image), `MachineOSImage "worker-1" was removed meanwhile`, name)
		require.ErrorContains(t, keeper.Attest(t.Context(), nil, image, BuildDetails{}), "was removed meanwhile", name)
	}
	assert.Empty(t, recorder.Events)
}
