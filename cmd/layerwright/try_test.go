package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/try/story"
)

// TestTry tells the story of `make try`, which keeps what is known of base images in the user's
// cache folder.
func TestTry(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out bytes.Buffer
	err := story.Tell(t.Context(), &story.Options{
		Folder: t.TempDir(), Out: &out,
		Layerwright: func(ctx context.Context, out io.Writer, args ...string) error {
			if code := execute(ctx, args, out, out); code != exitOK {
				return errors.New("it failed")
			}
			return nil
		},
	})
	require.NoError(t, err, out.String())
	told := out.String()
	for _, want := range []string{
		`how +the configuration was appended in`, `amd64 +3 layers of \d+ \+ \d+ \+ \d+ bytes`, `attested +provenance, SBOM`, `signed +by the key [0-9a-f]{64}, and verified`,
		`how +the registry had the image already`, `a node that has the image [0-9a-f]{12} pulls \d{2,3} bytes`,
		`worker  \(moves to the newest image of the pool\)`, `sha256-[0-9a-f]{64}\.att  \(provenance and SBOM\)`, `make demo`,
	} {
		assert.Regexp(t, want, told)
	}
}
