package configs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRetriesAreOfOneBuild(t *testing.T) {
	t.Parallel()
	var r retries
	assert.Zero(t, r.of("worker", "worker-a"))
	r.note("worker", "worker-a")
	r.note("worker", "worker-a")
	r.note("other", "other-a")
	assert.Equal(t, 2, r.of("worker", "worker-a"))
	assert.Zero(t, r.of("worker", "worker-b"), "another image begins anew")
	r.note("worker", "worker-b")
	assert.Equal(t, 1, r.of("worker", "worker-b"))
	r.forget("worker")
	assert.Zero(t, r.of("worker", "worker-b"))
	assert.Equal(t, 1, r.of("other", "other-a"))
}
