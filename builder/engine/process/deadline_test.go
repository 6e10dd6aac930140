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

func TestAgeOfAProcess(t *testing.T) {
	t.Parallel()
	const stat = "1 (a ) b) S 0 1 1 0 -1 4194560 15 0 0 0 0 0 0 0 20 0 1 0 12345 1 2 3\n"
	age, err := ageOf(stat, "200.45 90.00\n")
	require.NoError(t, err)
	assert.Equal(t, 77*time.Second, age)
	for _, text := range []string{"", "1 (a) S 0", "1 (a) S 0 1 1 0 -1 4194560 15 0 0 0 0 0 0 0 20 0 1 0 x 1"} {
		_, err := ageOf(text, "200.45")
		assert.Error(t, err, text)
	}
	_, err = ageOf(stat, "")
	assert.Error(t, err)
}

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
