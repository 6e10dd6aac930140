package credentials_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

func TestRepository(t *testing.T) {
	t.Parallel()
	for pushSpec, want := range map[mcfgv1.ImageTagFormat]string{
		"quay.io/team/os:latest":                   "quay.io/team/os",
		"registry:5000/os/worker:1":                "registry:5000/os/worker",
		"registry.ns.svc:5000/repository/name:tag": "registry.ns.svc:5000/repository/name",
		"127.0.0.1:5000/a/b/c/d:x":                 "127.0.0.1:5000/a/b/c/d",
		"[fd00::1]:5000/my.org/a__b/c--d:x":        "[fd00::1]:5000/my.org/a__b/c--d",
	} {
		got, err := credentials.Repository(pushSpec)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, pushSpec := range []mcfgv1.ImageTagFormat{
		"quay.io/UPPER/os:latest", "quay.io/os/-worker:1", "quay.io/os/../worker:1", "quay.io/.hidden/worker:1", "quay.io/os/a___b:1",
	} {
		_, err := credentials.Repository(pushSpec)
		require.ErrorContains(t, err, "spec.renderedImagePushSpec: ", pushSpec)
		assert.True(t, fault.IsTerminal(err))
	}
}
