package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const events = `{"Action":"run","Package":"github.com/layerwright/layerwright/a","Test":"TestOne"}
{"Action":"output","Package":"github.com/layerwright/layerwright/a","Test":"TestOne","Output":"x"}
{"Action":"pass","Package":"github.com/layerwright/layerwright/a","Test":"TestOne/part/of it","Elapsed":1}
{"Action":"pass","Package":"github.com/layerwright/layerwright/a","Test":"TestOne/part","Elapsed":1}
{"Action":"pass","Package":"github.com/layerwright/layerwright/a","Test":"TestOne","Elapsed":2}
{"Action":"fail","Package":"github.com/layerwright/layerwright/a","Test":"TestTwo","Elapsed":3}
{"Action":"fail","Package":"github.com/layerwright/layerwright/a","Elapsed":5}
{"Action":"pass","Package":"github.com/layerwright/layerwright/b","Elapsed":7}
{"Action":"pa`

func TestRun(t *testing.T) {
	t.Parallel()
	folder := fstest.MapFS{
		"stages":    {Data: []byte("passed\t12\tgenerated files, lint\nFAILED\t90\ttests\n")},
		"unit.json": {Data: []byte(events)},
	}
	file := filepath.Join(t.TempDir(), "report.json")
	var out bytes.Buffer
	require.NoError(t, run(folder, file, &out))
	assert.Equal(t, `
=== slowest tests
fail         3 s  a.TestTwo
pass         2 s  a.TestOne
pass         1 s  a.TestOne/part

=== slowest packages
pass         7 s  b
fail         5 s  a

=== stages
passed      12 s  generated files, lint
FAILED      90 s  tests
`, out.String())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var read figures
	require.NoError(t, json.Unmarshal(text, &read))
	assert.Equal(t, []timed{{"passed", 12, "generated files, lint"}, {"FAILED", 90, "tests"}}, read.Stages)
	assert.Len(t, read.Tests, 3)
	assert.Len(t, read.Packages, 2)
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	stages := &fstest.MapFile{Data: []byte("passed\t1\tone\n")}
	for name, folder := range map[string]fstest.MapFS{
		"no stages":      {},
		"half a line":    {"stages": {Data: []byte("passed\t12\n")}},
		"no number":      {"stages": {Data: []byte("passed\tx\tname\n")}},
		"events of none": {"stages": stages, "unit.json": {Data: []byte("FAIL\n")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Error(t, run(folder, "", &bytes.Buffer{}))
		})
	}
}
