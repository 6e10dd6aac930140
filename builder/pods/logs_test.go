package pods

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/layerwright/layerwright/builder/backend"
)

func TestProgress(t *testing.T) {
	for want, p := range map[string]backend.Progress{
		"12 of 60 MB: registry/os":  {Step: backend.Fetch, Done: 12e6, Total: 60e6, Now: "registry/os"},
		"12 MB":                     {Step: backend.Push, Done: 12e6},
		"instruction 2: RUN x":      {Step: backend.Build, Done: 2, Now: "RUN x"},
		"instruction 2 of 9: RUN x": {Step: backend.Build, Done: 2, Total: 9, Now: "RUN x"},
	} {
		assert.Equal(t, want, progressText(p))
	}
	assert.LessOrEqual(t, len(cutLine(strings.Repeat("x", 500))), 123)

	last, found := lastProgress(strings.NewReader("hello\n" + `##layerwright {"step":"build","done":1}` + "\n" + strings.Repeat("x", 1<<20) + "\n" +
		`##layerwright {"step":"build","done":2}` + "\n##layerwright {broken\n" + `##layerwright {"step":"build","done":3`))
	assert.True(t, found)
	assert.Equal(t, backend.Progress{Step: backend.Build, Done: 2}, last, "neither of the broken lines")
	_, found = lastProgress(strings.NewReader("nothing"))
	assert.False(t, found)
}
