package builds_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

// TestConfigurationInterruptsNoContent: with changes of files that come faster than the content is
// built, it is built once all the same.
func TestConfigurationInterruptsNoContent(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	phase := backend.Running
	s.Says = func(backend.Spec) backend.State { return backend.State{Phase: phase} }
	b := w.Builder(use)
	for i := range 4 {
		w.Rerender("worker", fmt.Sprint("change", i), "/etc/motd", fmt.Sprint(i))
		w.FourRounds(b)
	}
	assert.Equal(t, 1, s.Begun)
	first := s.Only().Key.Build
	assert.Equal(t, "Building", w.States()[first])
	active := 0
	for _, build := range w.Builds() {
		if !status.BuildStageOf(build.Status.Conditions).IsFinal() {
			active++
		}
	}
	assert.Equal(t, 2, active, "the one that makes the content, and the one that is wanted")
	assert.Contains(t, w.Says("worker", status.Ready), `it waits for build "`+first+`", which builds the same content`)

	phase = backend.Succeeded
	w.Settle(b)
	assert.Equal(t, 1, s.Begun, "the content was built once")
	assert.Len(t, w.Images(), 1, "what no one wants any more got its content, and no image")
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "3", w.Unpacked(image, "amd64", "etc/motd"))
	assert.Equal(t, "built for amd64", w.Unpacked(image, "amd64", "usr/share/built"))
}

// TestPoolsShareTheContentThatIsBeingBuilt and each gets its own configuration on it.
func TestPoolsShareTheContentThatIsBeingBuilt(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	w.Add(w.Rendered("infra", "1", "/etc/motd", "infra"), worldtest.NewPool("infra", "rendered-infra-1"), w.Config("infra"))
	w.EditConfig("infra", func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile = w.OSConfig("worker").Spec.Containerfile })
	phase := backend.Running
	s.Says = func(backend.Spec) backend.State { return backend.State{Phase: phase} }
	b := w.Builder(use)
	for range 5 {
		require.NoError(t, w.Round(b))
	}
	assert.Equal(t, 1, s.Begun)
	phase = backend.Succeeded
	w.Settle(b)
	assert.Equal(t, 1, s.Begun)
	for pool, motd := range map[string]string{"worker": "one", "infra": "infra"} {
		assert.Equal(t, "True Succeeded", w.Says(pool, status.Ready))
		assert.Equal(t, motd, w.Unpacked(string(w.OSConfig(pool).Status.CurrentImagePullSpec), "amd64", "etc/motd"))
	}
}
