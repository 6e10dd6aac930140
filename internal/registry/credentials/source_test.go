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
	} {
		got, err := credentials.Repository(pushSpec)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := credentials.Repository("quay.io/UPPER/os:latest")
	require.ErrorContains(t, err, "spec.renderedImagePushSpec: ")
	assert.True(t, fault.IsTerminal(err))
}
