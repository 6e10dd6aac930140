package builder

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// testTrial tries a stream with the rights of deploy/, and a status that the API server checks.
func testTrial(t *testing.T, c *cluster) {
	t.Helper()
	w := &world{t: t, registry: c.registry}
	set := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.OSImageStreamName}}
	set.Spec.DefaultStream = oldStream
	c.create(set)
	before := set.DeepCopy()
	set.Status.SetStreams([]mcfgv1.OSImageStreamSet{
		{Name: oldStream, OSImage: mcfgv1.ImageDigestFormat(w.pushStream("9", nil)), OSExtensionsImage: mcfgv1.ImageDigestFormat(c.base)},
		{Name: newStream, OSImage: mcfgv1.ImageDigestFormat(w.pushStream("10", nil)), OSExtensionsImage: mcfgv1.ImageDigestFormat(c.base)},
	}, oldStream)
	require.NoError(t, c.Status().Patch(t.Context(), set, client.MergeFrom(before)))

	config := c.ready("worker", "")
	try := func(stream string) {
		change(c, &mcfgv1.MachineOSConfig{}, "worker", func(config *mcfgv1.MachineOSConfig) {
			if metav1.SetMetaDataAnnotation(&config.ObjectMeta, mcfgv1.AnnotationTryStream, stream); stream == "" {
				delete(config.Annotations, mcfgv1.AnnotationTryStream)
			}
		})
	}
	trial := func(condition func(t *assert.CollectT, trial *mcfgv1.StreamTrial)) *mcfgv1.StreamTrial {
		found := &mcfgv1.MachineOSConfig{}
		c.eventually(func(t *assert.CollectT) {
			if assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: "worker"}, found)) {
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
	try(newStream)
	result := trial(reported)
	assert.Equal(t, []string{`OtherOSImage: MachineConfig "50-motd", spec.osImageURL`}, result.Blockers)
	assert.True(t, c.registry.has(t, string(result.ImagePullSpec)))
	key := client.ObjectKey{Namespace: result.Report.Namespace, Name: result.Report.Name}
	report := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), key, report))
	assert.Contains(t, report.Data["report.txt"], "from stream rhel-10 to rhel-10", "the OS image that the MachineConfig names says that it is of it")

	// A MachineConfig changes: the pool gets another image, and the report is another one.
	inputs := result.Inputs
	change(c, &mcfgv1.MachineConfig{}, "50-motd", func(mc *mcfgv1.MachineConfig) { mc.Spec = c.machineConfig("worker", "50-motd", "tried").Spec })
	c.ready("worker", config.Status.CurrentImagePullSpec)
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
