package enforcement

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// TestASlowImageKeepsNoOneElseWaiting has the image of one pool read only after that of another.
func TestASlowImageKeepsNoOneElseWaiting(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	policies := &basePolicies{}
	reads := func(name string, first func() error) error {
		base := &recipe.Base{Image: name, Platforms: []recipe.Platform{{Image: name}}}
		files, err := policies.read(name, base, func(*recipe.Platform) (signaturepolicy.Files, error) {
			return signaturepolicy.Files{signaturepolicy.PolicyPath: []byte(name)}, first()
		})
		if err == nil {
			assert.Equal(t, name, string(files[signaturepolicy.PolicyPath]))
		}
		return err
	}
	nothing := func() error { return nil }
	require.NoError(t, reads("slow", func() error {
		done := make(chan error, 1)
		go func() { done <- reads("quick", nothing) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}))

	for _, name := range []string{"slow", "quick"} {
		require.NoError(t, reads(name, func() error { return assert.AnError }), "%s was read, and is remembered", name)
	}
}
