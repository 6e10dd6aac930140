package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

// TestCommandsWithoutRights asks a real API server as someone who may read nothing.
func TestCommandsWithoutRights(t *testing.T) {
	t.Parallel()
	kubeconfig := clustertest.Kubeconfig(t)
	for _, args := range [][]string{{"images", "worker"}, {"explain", "worker"}, {"diff", "worker"}, {"verify", "worker-1"}} {
		var stdout, stderr bytes.Buffer
		args = append(args, "--kubeconfig", kubeconfig, "--as", "someone")
		assert.Equal(t, exitFailure, execute(t.Context(), args, &stdout, &stderr), args)
		assert.Contains(t, stderr.String(), "you may not list ", args)
		assert.Empty(t, stdout.String(), args)
	}
}
