package objects

import (
	"testing"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestRetriesAreOfOneBuild(t *testing.T) {
	t.Parallel()
	config := &mcfgv1.MachineOSConfig{}
	assert.Zero(t, RetriesOf(config, "worker-a"))
	NoteRetry(config, "worker-a")
	NoteRetry(config, "worker-a")
	assert.Equal(t, 2, RetriesOf(config, "worker-a"))
	assert.Zero(t, RetriesOf(config, "worker-b"), "another image begins anew")
	NoteRetry(config, "worker-b")
	assert.Equal(t, 1, RetriesOf(config, "worker-b"))
	assert.Equal(t, "worker-b 1", config.Annotations[mcfgv1.AnnotationBuildRetries])
	for _, forged := range []string{"worker-b -3", "worker-b", "worker-b many"} {
		config.Annotations[mcfgv1.AnnotationBuildRetries] = forged
		assert.Zero(t, RetriesOf(config, "worker-b"), forged)
	}
}
