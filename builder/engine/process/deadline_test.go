//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package process

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/layerwright/layerwright/builder/engine"
)

// TestDeadline has a step end where its pod's time is over, and only where it was told that.
func TestDeadline(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	options := engine.Options{Clock: clock}
	options.Paths.Instructions = filepath.Join(t.TempDir(), "instructions.json")
	assert.Nil(t, deadline(&options), "there are none")
	require.NoError(t, os.WriteFile(options.Paths.Instructions, []byte(`{"target":"t"}`), 0o600))
	assert.Nil(t, deadline(&options), "the pod has one")
	require.NoError(t, os.WriteFile(options.Paths.Instructions, []byte(`{"timeoutSeconds":1}`), 0o600))
	over := deadline(&options)
	require.NotNil(t, over)
	clock.Step(time.Second)
	assert.NotEmpty(t, over)
}
