//go:build e2e

package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// streamed is a cluster with two streams.
type streamed struct {
	*builds
	t    *testing.T
	sets map[string]mcfgv1.OSImageStreamImages
}

// newStreamed offers the streams of the fixtures, of which version 9 is the default, until the test
// ends.
func newStreamed(t *testing.T) *streamed {
	t.Helper()
	s := &streamed{builds: newBuilds(t), t: t, sets: fixtureStreams(t)}
	s.offers(nine, "", nine, ten)
	return s
}

// offers says which streams there are; age is the lifecycle of version 9.
func (s *streamed) offers(byDefault string, age mcfgv1.StreamLifecycle, names ...string) {
	s.t.Helper()
	var images []mcfgv1.OSImageStreamImages
	for _, name := range names {
		set := s.sets[name]
		if name == nine {
			set.Lifecycle = age
		}
		images = append(images, set)
	}
	s.offer(s.t, byDefault, images...)
}

// streamedPool is a pool on one of the streams, with an image of its own.
type streamedPool struct {
	*layered
	s *streamed
}

// pool makes a pool that names a stream, or none, and a file of its own. The pool has no nodes, so
// it is where it should be at once.
func (s *streamed) pool(name, stream string) *streamedPool {
	s.t.Helper()
	p := &streamedPool{layered: &layered{builds: s.builds, t: s.t, name: name, patience: buildPatience}, s: s}
	s.t.Cleanup(p.clean)
	mc, pool := p.machineConfig("one"), p.pool()
	mc.Spec.OSImageURL = ""
	pool.Spec.OSImageStream.Name = stream
	for _, object := range []client.Object{mc, pool} {
		require.NoError(s.t, s.Create(s.t.Context(), object))
	}
	return p
}

// build asks for the pool's image.
func (p *streamedPool) build() {
	p.ask(func(config *mcfgv1.MachineOSConfig) {
		config.Spec.BaseImagePullSecret.Name, config.Spec.RenderedImagePushSecret.Name = stack.PullSecret, stack.PushSecret
		config.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(p.registry.Host + "/" + imagesPath + "/" + p.name + ":latest")
	})
}

// isOn waits until the pool is on a stream, its configuration has the stream's image, and its own
// image, if it has one, was made of that.
func (p *streamedPool) isOn(stream string, hasImage bool) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		pool := p.read(t)
		require.Equal(t, []string{stream, stream}, []string{pool.Status.OSImageStream.Name, pool.Annotations[mcfgv1.AnnotationRememberedStream]})
		rendered := &mcfgv1.MachineConfig{}
		require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: pool.Spec.Configuration.Name}, rendered))
		require.Equal(t, string(p.s.sets[stream].OSImage), rendered.Spec.OSImageURL)
		if !hasImage {
			return
		}
		config := p.config(t)
		require.Equal(t, "True Succeeded", conditionText(config.Status.Conditions, "Ready"))
		require.Equal(t, stream, config.Status.OSImageStream.Name)
		require.NotEmpty(t, config.Status.CurrentImagePullSpec)
		file, err := p.image(t, string(config.Status.CurrentImagePullSpec)).ConfigFile()
		require.NoError(t, err)
		require.Equal(t, []string{digestIn(string(p.s.sets[stream].OSImage)), stream},
			[]string{file.Config.Labels[mcfgv1.ImageLabelBaseDigest], file.Config.Labels[mcfgv1.ImageLabelStream]})
	})
}

func (p *streamedPool) read(t require.TestingT) *mcfgv1.MachineConfigPool {
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: p.name}, pool))
	return pool
}

// moves names another stream, once the policies know of it.
func (p *streamedPool) moves(stream string) {
	p.t.Helper()
	change(p.layered, &mcfgv1.MachineConfigPool{}, p.name, func(pool *mcfgv1.MachineConfigPool) { pool.Spec.OSImageStream.Name = stream })
}

// poolHas waits until a condition of the pool begins so.
func (p *streamedPool) poolHas(conditionType, prefix string) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		got := p.poolSays(t, conditionType)
		assert.True(t, strings.HasPrefix(got, prefix), "%s is %q, not %q", conditionType, got, prefix)
	})
}

// seen is what an administrator gets to see.
func (s *streamed) seen(args ...string) string {
	s.t.Helper()
	script := `eval "$("$0" --name ` + clusterName + ` env)" && exec kubectl "$@"`
	cmd := exec.CommandContext(s.t.Context(), "sh", append([]string{"-c", script, program}, args...)...)
	cmd.Dir = repository
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, string(out))
	return string(out)
}

// cell is what the first row of a table has in a column; it may be empty.
func cell(table, column string) string {
	header, rows, _ := strings.Cut(table, "\n")
	at := strings.Index(header, column)
	if at < 0 || at >= len(rows) || rows[at] == ' ' {
		return ""
	}
	return strings.Fields(rows[at:])[0]
}

// testPoolsOnStreams has pools on different streams, on a real cluster with a real registry: their
// images are made of different bases, and nothing but a person's word moves one to another.
func testPoolsOnStreams(t *testing.T) {
	s := newStreamed(t)
	const deprecated = "Stream 'rhel9-coreos' is deprecated and will be removed in a future release. Migrate to 'rhel10-coreos' before upgrading."

	// Two pools, two bases.
	workers, infra := s.pool(mcfgv1.PoolWorker, ""), s.pool("e2e-streams-infra", ten)
	workers.build()
	infra.build()
	workers.isOn(nine, true)
	infra.isOn(ten, true)
	first := workers.config(t).Status.CurrentImagePullSpec

	// The default changes. A new pool goes there, which shows that the change has been seen.
	s.offers(ten, "", nine, ten)
	s.pool("e2e-streams-new", "").isOn(ten, false)
	workers.isOn(nine, true)
	assert.Equal(t, first, workers.config(t).Status.CurrentImagePullSpec)
	assert.Len(t, workers.machineOSBuilds(t.Context(), t), 1, "nothing was built")

	// Deprecation, the end, and removal.
	s.offers(ten, mcfgv1.StreamDeprecated, nine, ten)
	workers.poolHas("OSStreamDeprecated", "True StreamEndOfLife "+deprecated)
	infra.poolHas("OSStreamDeprecated", "False")
	table := s.seen("get", "machineconfigpool", mcfgv1.PoolWorker, "-o", "wide")
	assert.Equal(t, []string{nine, "True"}, []string{cell(table, "STREAM"), cell(table, "DEPRECATED")})
	assert.Contains(t, s.seen("describe", "machineconfigpool", mcfgv1.PoolWorker), deprecated)
	assert.Contains(t, s.seen("events", "--for", "machineconfigpool/worker"), deprecated)
	s.offers(ten, mcfgv1.StreamEndOfLife, nine, ten)
	s.upgradeable("False DeprecatedOSStreamInUse Cannot upgrade: MachineConfigPool 'worker' is using deprecated stream 'rhel9-coreos' which is not supported in " +
		"this release. Migrate pool to 'rhel10-coreos' before upgrading.")
	s.offers(ten, "", ten)
	workers.poolHas("OSStreamDeprecated", "True StreamRemoved Stream 'rhel9-coreos' is no longer available: the pool keeps its image")
	workers.poolHas("Degraded", "False")
	workers.isOn(nine, true)
	assert.Equal(t, first, workers.config(t).Status.CurrentImagePullSpec)

	// Forward, and no way back.
	s.offers(nine, "", nine, ten)
	workers.poolHas("OSStreamDeprecated", "False")
	workers.moves(ten)
	workers.isOn(ten, true)
	s.upgradeable("True Succeeded")
	builds := workers.machineOSBuilds(t.Context(), t)
	assert.Len(t, builds, 2)
	pool := workers.read(t)
	back := client.MergeFrom(pool.DeepCopy()) // a patch goes through whatever the controller writes meanwhile
	pool.Spec.OSImageStream.Name = nine
	require.ErrorContains(t, s.Patch(t.Context(), pool, back), "'rhel9-coreos' is older than 'rhel10-coreos', and nodes cannot go back")
	workers.moves("")
	s.pool("e2e-streams-newer", nine).isOn(nine, false)
	workers.isOn(ten, true)
	assert.Len(t, workers.machineOSBuilds(t.Context(), t), 2)
}

// upgradeable waits until the OSImageStream says so.
func (s *streamed) upgradeable(prefix string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(t *assert.CollectT) {
		got := conditionText(s.streams(s.t.Context(), t).Status.Conditions, mcfgv1.StreamsUpgradeable)
		assert.True(t, strings.HasPrefix(got, prefix), "Upgradeable is %q, not %q", got, prefix)
	}, buildPatience, buildTick)
}
