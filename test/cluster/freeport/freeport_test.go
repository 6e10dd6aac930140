package freeport_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/cluster/freeport"
)

func TestListen(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 50 {
		l, err := freeport.Listen(t.Context(), "127.0.0.1")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		port := l.Addr().(*net.TCPAddr).Port
		assert.Less(t, port, 32768, "the kernel gives the others away")
		assert.False(t, seen[port])
		seen[port] = true
	}
	_, err := freeport.Listen(t.Context(), "192.0.2.1")
	require.ErrorContains(t, err, "looking for a free port of 192.0.2.1: ")
}
