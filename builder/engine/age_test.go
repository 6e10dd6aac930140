//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAgeOfAProcess(t *testing.T) {
	t.Parallel()
	const stat = "1 (a ) b) S 0 1 1 0 -1 4194560 15 0 0 0 0 0 0 0 20 0 1 0 12345 1 2 3\n"
	age, err := ageOf(stat, "200.45 90.00\n")
	require.NoError(t, err)
	assert.Equal(t, 77*time.Second, age)
	for _, text := range []string{"", "1 (a) S 0", "1 (a) S 0 1 1 0 -1 4194560 15 0 0 0 0 0 0 0 20 0 1 0 x 1"} {
		_, err := ageOf(text, "200.45")
		require.Error(t, err, text)
	}
	_, err = ageOf(stat, "")
	require.Error(t, err)
}
