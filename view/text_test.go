package view_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/view"
)

// TestHealthOfEachPool has the build of one pool print what another pool says of itself.
func TestHealthOfEachPool(t *testing.T) {
	t.Parallel()
	const trouble = "MachineOSImage worker-2 is in quarantine"
	pool := func(name, reason, command string) view.Item {
		build := view.Item{Kind: view.KindBuild, Names: []string{name + "-2"}, Assessment: view.Degraded, WaitsFor: []string{reason}, Command: command}
		return view.Item{Kind: view.KindPool, Names: []string{name}, Assessment: view.Degraded, WaitsFor: []string{reason}, Command: command, Items: []view.Item{build}}
	}
	long := strings.Repeat("x ", 400)
	var text strings.Builder
	require.NoError(t, view.Text(&text, view.Tree{Items: []view.Item{
		pool("forged", long+"RUN echo: "+trouble, "kubectl get forged"), pool("worker", trouble, "kubectl get worker"),
	}}, view.Style{Now: now(), Width: 1000}))
	_, health, found := strings.Cut(text.String(), "Health")
	require.True(t, found)
	assert.Equal(t, 1, strings.Count(health, "kubectl get forged"), "each reason once")
	assert.Equal(t, 1, strings.Count(health, "kubectl get worker"), health)
}
