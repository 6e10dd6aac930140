package names_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/layerwright/layerwright/internal/names"
)

const key = "0123456789abcdef0123456789abcdef"

func TestNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "worker-"+key, names.MachineOSBuild("worker", key))
	assert.Equal(t, "worker-"+key, names.ImageTag("worker", key))
	assert.Equal(t, "worker-"+key, names.MachineOSImage("worker", "sha256:"+key+key))
	assert.Equal(t, "worker", names.PoolTag("worker"))
	assert.Equal(t, "stream-trial-worker", names.StreamTrial("worker"))
	assert.Equal(t, "trial-worker", names.TrialTag("worker"))
	assert.Equal(t, "verify-worker-"+key+"-01234567-2", names.VerificationJob("worker-"+key, key, 2))
	assert.Equal(t, "health-worker-3-example-com-fedcba98-01234567-1", names.HealthCheckJob("worker-3.example.com", "fedcba9876543210", key, 1))
}

func TestLongNamesFitAndStayApart(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("a", 240)+".x", strings.Repeat("a", 240)+".y"
	for _, name := range []func(string) string{
		func(pool string) string { return names.MachineOSBuild(pool, key) },
		func(pool string) string { return names.MachineOSImage(pool, "sha256:"+key+key) },
		names.StreamTrial,
	} {
		assert.LessOrEqual(t, len(name(a)), 253)
		assert.NotEqual(t, name(a), name(b))
	}
	image := func(pool string) string { return names.VerificationJob(pool, key, 0) }
	assert.LessOrEqual(t, len(image(a)), 63, "the names of its pods begin so")
	assert.NotEqual(t, image(a), image(b))
	node := func(node string) string { return names.HealthCheckJob(node, key, key, 0) }
	assert.LessOrEqual(t, len(node(a)), 63)
	assert.NotEqual(t, node(a), node(b))
	for _, tag := range []func(string) string{names.PoolTag, names.TrialTag, func(pool string) string { return names.ImageTag(pool, key) }} {
		assert.LessOrEqual(t, len(tag(a)), 128)
		assert.NotEqual(t, tag(a), tag(b))
	}
	assert.NotContains(t, names.ImageTag(strings.Repeat("a.", 60), key), ".-", "no name ends in a dot before the next part")
}

func TestObjectsOfABuild(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "build-worker-"+key, names.BuildObject("build", "worker-"+key, ""))
	assert.Equal(t, "build-worker-"+key+"-ppc64le", names.BuildObject("build", "worker-"+key, "ppc64le"))
	assert.Equal(t, "worker-"+key, names.BuildLabel("worker-"+key))

	long := func(pool string) string { return names.MachineOSBuild(strings.Repeat(pool+".", 100), key) }
	for _, name := range []func(build string) string{
		names.BuildLabel,
		func(build string) string { return names.BuildObject("build", build, "") },
		func(build string) string { return names.BuildObject("additionaltrustbundle", build, "ppc64le") },
	} {
		assert.LessOrEqual(t, len(name(long("a"))), 63)
		assert.NotEqual(t, name(long("a")), name(long("b")))
		assert.NotContains(t, name(long("a")), ".-")
	}
}
