package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPullsThatTakeTooLongGetMoreTime(t *testing.T) {
	t.Parallel()
	var p slowPull
	for _, want := range []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 8 * time.Hour} {
		assert.Equal(t, want, p.patience("os@sha256:1"))
		p.ended("os@sha256:1")
	}
	assert.Equal(t, time.Hour, p.patience("os@sha256:2"), "another image")
	p.ended("os@sha256:2")
	assert.Equal(t, 2*time.Hour, p.patience("os@sha256:2"))
}
