//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package process

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/report"
	"github.com/layerwright/layerwright/internal/fault"
)

func TestAPromisedUserNamespaceHasToBeThere(t *testing.T) {
	t.Parallel()
	const host, own = "         0          0 4294967295\n", "         0  131072      65536\n"
	require.NoError(t, checkIsolation(backend.IsolationUserNamespace, own))
	require.NoError(t, checkIsolation(backend.IsolationCapabilities, host), "it makes one itself")
	require.NoError(t, checkIsolation("", host))
	err := checkIsolation(backend.IsolationUserNamespace, host)
	require.ErrorContains(t, err, "the node gave the build no user namespace")
	assert.Equal(t, fault.Terminal, report.FailureOf(err).Class, "another attempt would be no safer")
}
