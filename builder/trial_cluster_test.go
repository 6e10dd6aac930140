package builder_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/worldtest"
)

// testTrial tries a stream with the rights of deploy/, and a status that the API server checks.
func testTrial(t *testing.T, c *worldtest.Cluster) {
	t.Helper()
	w := &worldtest.World{T: t, Registry: c.Registry}
	set := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.OSImageStreamName}}
	set.Spec.DefaultStream = worldtest.OldStream
	c.Add(set)
	before := set.DeepCopy()
	set.Status.SetStreams([]mcfgv1.OSImageStreamSet{
		{Name: worldtest.OldStream, OSImage: mcfgv1.ImageDigestFormat(w.PushStream("9", nil)), OSExtensionsImage: mcfgv1.ImageDigestFormat(c.Base)},
		{Name: worldtest.NewStream, OSImage: mcfgv1.ImageDigestFormat(w.PushStream("10", nil)), OSExtensionsImage: mcfgv1.ImageDigestFormat(c.Base)},
	}, worldtest.OldStream)
	require.NoError(t, c.Status().Patch(t.Context(), set, client.MergeFrom(before)))

	config := c.Ready("worker", "")
	try := func(stream string) {
		change(c, &mcfgv1.MachineOSConfig{}, "worker", func(config *mcfgv1.MachineOSConfig) {
			if metav1.SetMetaDataAnnotation(&config.ObjectMeta, mcfgv1.AnnotationTryStream, stream); stream == "" {
				delete(config.Annotations, mcfgv1.AnnotationTryStream)
			}
		})
	}
	trial := func(condition func(t *assert.CollectT, trial *mcfgv1.StreamTrial)) *mcfgv1.StreamTrial {
		found := &mcfgv1.MachineOSConfig{}
		c.Eventually(func(t *assert.CollectT) {
			if assert.NoError(t, c.Get(c.T.Context(), client.ObjectKey{Name: "worker"}, found)) {
				condition(t, found.Status.StreamTrial)
			}
		})
		return found.Status.StreamTrial
	}
	reported := func(t *assert.CollectT, trial *mcfgv1.StreamTrial) {
		if assert.NotNil(t, trial) {
			assert.Equal(t, mcfgv1.StreamTrialReported, trial.State, trial.Message)
		}
	}
	try(worldtest.NewStream)
	result := trial(reported)
	assert.Equal(t, []string{`OtherOSImage: MachineConfig "50-motd", spec.osImageURL`}, result.Blockers)
	assert.True(t, c.Registry.Has(t, string(result.ImagePullSpec)))
	key := client.ObjectKey{Namespace: result.Report.Namespace, Name: result.Report.Name}
	report := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), key, report))
	assert.Contains(t, report.Data["report.txt"], "from stream rhel-10 to rhel-10", "the OS image that the MachineConfig names says that it is of it")

	// A MachineConfig changes: the pool gets another image, and the report is another one.
	inputs := result.Inputs
	change(c, &mcfgv1.MachineConfig{}, "50-motd", func(mc *mcfgv1.MachineConfig) { mc.Spec = c.MachineConfig("worker", "50-motd", "tried").Spec })
	c.Ready("worker", config.Status.CurrentImagePullSpec)
	trial(func(t *assert.CollectT, trial *mcfgv1.StreamTrial) {
		reported(t, trial)
		assert.NotEqual(t, inputs, trial.Inputs)
	})

	try("rhel-11")
	trial(func(t *assert.CollectT, trial *mcfgv1.StreamTrial) {
		if assert.NotNil(t, trial) {
			assert.Equal(t, mcfgv1.StreamTrialFailed, trial.State)
		}
	})
	try("")
	trial(func(t *assert.CollectT, trial *mcfgv1.StreamTrial) { assert.Nil(t, trial) })
	assert.True(t, apierrors.IsNotFound(c.Get(t.Context(), key, report)))
}
