package builder

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/status"
)

// TestConfigurationInterruptsNoContent: with changes of files that come faster than the content is
// built, it is built once all the same.
func TestConfigurationInterruptsNoContent(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	phase := backend.Running
	s.says = func(backend.Spec) backend.State { return backend.State{Phase: phase} }
	b := w.builder(use)
	for i := range 4 {
		w.rerender("worker", fmt.Sprint("change", i), "/etc/motd", fmt.Sprint(i))
		w.fourRounds(b)
	}
	assert.Equal(t, 1, s.ensure)
	first := s.only().Key.Build
	assert.Equal(t, "Building", w.states()[first])
	active := 0
	for _, build := range w.builds() {
		if !status.BuildStageOf(build.Status.Conditions).IsFinal() {
			active++
		}
	}
	assert.Equal(t, 2, active, "the one that makes the content, and the one that is wanted")
	assert.Contains(t, w.says("worker", status.Ready), `it waits for build "`+first+`", which builds the same content`)

	phase = backend.Succeeded
	w.settle(b)
	assert.Equal(t, 1, s.ensure, "the content was built once")
	assert.Len(t, w.images(), 1, "what no one wants any more got its content, and no image")
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	image := string(w.osConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "3", w.unpacked(image, "amd64", "etc/motd"))
	assert.Equal(t, "built for amd64", w.unpacked(image, "amd64", "usr/share/built"))
}

// TestPoolsShareTheContentThatIsBeingBuilt and each gets its own configuration on it.
func TestPoolsShareTheContentThatIsBeingBuilt(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	w.add(w.rendered("infra", "1", "/etc/motd", "infra"), newPool("infra", "rendered-infra-1"), w.config("infra"))
	w.editConfig("infra", func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile = w.osConfig("worker").Spec.Containerfile })
	phase := backend.Running
	s.says = func(backend.Spec) backend.State { return backend.State{Phase: phase} }
	b := w.builder(use)
	for range 5 {
		require.NoError(t, w.round(b))
	}
	assert.Equal(t, 1, s.ensure)
	phase = backend.Succeeded
	w.settle(b)
	assert.Equal(t, 1, s.ensure)
	for pool, motd := range map[string]string{"worker": "one", "infra": "infra"} {
		assert.Equal(t, "True Succeeded", w.says(pool, status.Ready))
		assert.Equal(t, motd, w.unpacked(string(w.osConfig(pool).Status.CurrentImagePullSpec), "amd64", "etc/motd"))
	}
}
