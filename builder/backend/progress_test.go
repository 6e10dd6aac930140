package backend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestProgress(t *testing.T) {
	for want, p := range map[string]Progress{
		"12 of 60 MB: registry/os":  {Step: Fetch, Done: 12e6, Total: 60e6, Now: "registry/os"},
		"12 MB":                     {Step: Push, Done: 12e6},
		"instruction 2: RUN x":      {Step: Build, Done: 2, Now: "RUN x"},
		"instruction 2 of 9: RUN x": {Step: Build, Done: 2, Total: 9, Now: "RUN x"},
	} {
		assert.Equal(t, want, p.String())
	}
	assert.LessOrEqual(t, len(Progress{Now: strings.Repeat("x", 500)}.String()), 130)
}
