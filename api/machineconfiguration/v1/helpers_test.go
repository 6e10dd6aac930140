package v1

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSetStreams(t *testing.T) {
	t.Parallel()
	var status OSImageStreamStatus
	status.SetStreams([]OSImageStreamSet{
		{Name: "rhel-9"},
		{Name: "rhel-10", Lifecycle: StreamSupported},
		{Name: "rhel-8", Lifecycle: StreamDeprecated},
		{Name: "rhel-7", Lifecycle: StreamEndOfLife},
		{Name: "rhel-6", Lifecycle: StreamEndOfLife},
	}, "rhel-9")
	assert.Equal(t, "rhel-9,rhel-10,rhel-8,rhel-7,rhel-6", status.StreamNames)
	assert.Equal(t, "rhel-8", status.DeprecatedStreamNames)
	assert.Equal(t, "rhel-7,rhel-6", status.EndOfLifeStreamNames)
	status.SetStreams(nil, "")
	assert.Equal(t, OSImageStreamStatus{}, status)
}
