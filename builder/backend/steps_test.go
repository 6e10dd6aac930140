package backend_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

func TestAReportFits(t *testing.T) {
	failure := func(message string, output ...string) *backend.Report {
		return &backend.Report{Step: backend.Build, Notes: []string{"chroot"}, Failure: &backend.StepFailure{
			Class: fault.Terminal, Reason: "BuildFailed", Message: message, Output: output,
		}}
	}
	for name, test := range map[string]struct {
		report                *backend.Report
		message, first, notes string
	}{
		"short":       {failure("line 7", "one", "two"), "line 7", "one", "chroot"},
		"much output": {failure("line 7", strings.Repeat("x", 2400), strings.Repeat("y", 2400)), "line 7", strings.Repeat("y", 2400), "chroot"},
		"huge line":   {failure("line 7", strings.Repeat("x", 5000)), "line 7", "", "chroot"},
		"huge text":   {failure(strings.Repeat("ä", 4096), "one"), strings.Repeat("ä", 1024), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := test.report.Encode()
			require.NoError(t, err)
			assert.LessOrEqual(t, len(text), backend.MaxReport)
			got, err := backend.ReadReport(string(text))
			require.NoError(t, err)
			assert.Equal(t, fault.Terminal, got.Failure.Class)
			assert.Equal(t, test.message, got.Failure.Message)
			if assert.Equal(t, test.first != "", len(got.Failure.Output) > 0) && test.first != "" {
				assert.Equal(t, test.first, got.Failure.Output[0])
			}
			assert.Equal(t, test.notes, strings.Join(got.Notes, ""))
		})
	}
}

func TestReadReportErrors(t *testing.T) {
	for _, text := range []string{"", "exit status 1", "{}", `{"step":"dance"}`} {
		_, err := backend.ReadReport(text)
		assert.ErrorContains(t, err, "reading the report of a build step", text)
	}
}

func TestTheImagesOfAReportFit(t *testing.T) {
	image := func(n int) backend.PulledImage {
		name := fmt.Sprintf("registry.example.com/tools/%04d", n)
		return backend.PulledImage{Name: name + ":1", Image: name + "@sha256:" + strings.Repeat("a", 64), Manifest: "sha256:" + strings.Repeat("b", 64)}
	}
	r := &backend.Report{Step: backend.Fetch, Bytes: 1, Layers: 2}
	for n := range 10 {
		r.Pulled = append(r.Pulled, image(n))
	}
	read := func() *backend.Report {
		text, err := r.Encode()
		require.NoError(t, err)
		assert.LessOrEqual(t, len(text), backend.MaxReport)
		got, err := backend.ReadReport(string(text))
		require.NoError(t, err)
		assert.Equal(t, int64(1), got.Bytes)
		return got
	}
	assert.Equal(t, r, read())
	for n := range 100 {
		r.Pulled = append(r.Pulled, image(10+n))
	}
	short := read()
	assert.Greater(t, len(short.Pulled), 10)
	assert.Equal(t, r.Pulled[:len(short.Pulled)], short.Pulled, "the last ones go")
	assert.Equal(t, 110-len(short.Pulled), short.PulledMissing, "and are counted")
	assert.Len(t, r.Pulled, 110, "the report itself is as it was")

	old, err := backend.ReadReport(`{"step":"fetch","bytes":1,"layers":2,"tookMillis":3}`)
	require.NoError(t, err)
	assert.Empty(t, old.Pulled, "of a builder from before")
}
