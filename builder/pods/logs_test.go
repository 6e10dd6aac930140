package pods

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/layerwright/layerwright/builder/backend"
)

func TestProgress(t *testing.T) {
	last, found := lastProgress(strings.NewReader("hello\n" + `##layerwright {"step":"build","done":1}` + "\n" + strings.Repeat("x", 1<<20) + "\n" +
		`##layerwright {"step":"build","done":2}` + "\n##layerwright {broken\n" + `##layerwright {"step":"build","done":3`))
	assert.True(t, found)
	assert.Equal(t, backend.Progress{Step: backend.Build, Done: 2}, last, "neither of the broken lines")
	_, found = lastProgress(strings.NewReader("nothing"))
	assert.False(t, found)
}
