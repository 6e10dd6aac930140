package main

import (
	"errors"
	"io"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	progress = "fuzz: elapsed: 30s, execs: 55691 (0/sec), new interesting: 22 (total: 534)\n"
	race     = progress + "--- FAIL: FuzzRead (30.16s)\n    context deadline exceeded\nFAIL\n"
	finding  = progress + "--- FAIL: FuzzRead (30.16s)\n    --- FAIL: FuzzRead (0.00s)\n        read_test.go:9: context deadline exceeded\n    \n" +
		"    Failing input written to testdata/fuzz/FuzzRead/0123456789abcdef\n    To re-run:\n    go test -run=FuzzRead/0123456789abcdef\n" +
		"FAIL\n"
	hangs = progress + "--- FAIL: FuzzRead (30.16s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\n" +
		"    Failing input written to testdata/fuzz/FuzzRead/0123456789abcdef\nFAIL\n"
	minimized = progress + "--- FAIL: FuzzRead (30.16s)\n    --- FAIL: FuzzRead (0.00s)\n        context deadline exceeded\n    \n" +
		"FAIL\n"
)

func TestOnlyATimeoutIsRetried(t *testing.T) {
	t.Parallel()
	failed := errors.New("exit status 1")
	type outcome struct {
		said string
		err  error
	}
	for name, test := range map[string]struct {
		outcomes []outcome
		runs     int
		fails    bool
	}{
		"no finding":                       {outcomes: []outcome{{progress, nil}}, runs: 1},
		"the end of its time":              {outcomes: []outcome{{race, failed}, {progress, nil}}, runs: 2},
		"the end of its time, twice":       {outcomes: []outcome{{race, failed}, {race, failed}}, runs: 2, fails: true},
		"a finding after it":               {outcomes: []outcome{{race, failed}, {finding, failed}}, runs: 2, fails: true},
		"a finding that says the same":     {outcomes: []outcome{{finding, failed}}, runs: 1, fails: true},
		"a finding without a file":         {outcomes: []outcome{{minimized, failed}}, runs: 1, fails: true},
		"a program that hangs":             {outcomes: []outcome{{hangs, failed}}, runs: 1, fails: true},
		"a failure that says nothing more": {outcomes: []outcome{{"", failed}}, runs: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			said, err := try(target{folder: "manifests", name: "FuzzRead"}, func() (string, error) {
				now := test.outcomes[runs]
				runs++
				return now.said, now.err
			})
			assert.Equal(t, test.runs, runs)
			for _, each := range test.outcomes {
				assert.Contains(t, said, each.said, "what is printed")
			}
			if test.fails {
				require.ErrorIs(t, err, failed)
				assert.ErrorContains(t, err, "FuzzRead in manifests: ")
				return
			}
			assert.NoError(t, err)
		})
	}
}

func TestTargetsAreFound(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	targets, err := find(fstest.MapFS{
		"go.mod":          file("module example.com"),
		"root_test.go":    file("package root\n\nfunc FuzzRoot(f *testing.F) {}\n"),
		"a/b/b_test.go":   file("package b\n\nfunc FuzzOne(f *testing.F) {}\n\nfunc TestFuzz(t *testing.T) {}\n\nfunc FuzzTwo(f *testing.F) {}\n"),
		"a/b/b.go":        file("package b\n\nfunc Fuzz(f int) {}\n"),
		"tool/go.mod":     file("module example.com/tool"),
		"tool/t_test.go":  file("package tool\n\nfunc FuzzTool(f *testing.F) {}\n"),
		"a/notes_test.md": file("func FuzzNotes(\n"),
	})
	require.NoError(t, err)
	assert.Equal(t, []target{{"a/b", "FuzzOne"}, {"a/b", "FuzzTwo"}, {".", "FuzzRoot"}}, targets)

	assert.ErrorContains(t, run(t.Context(), fstest.MapFS{}, options{each: "1s"}, io.Discard), "no fuzz target here")
}

func TestFindingOf(t *testing.T) {
	t.Parallel()
	const file = "testdata/fuzz/FuzzRead/0123456789abcdef"
	folder := fstest.MapFS{file: {Data: []byte("go test fuzz v1\nstring(\"0\")\n")}}
	assert.Equal(t, file+"\ngo test fuzz v1\nstring(\"0\")\n", findingOf(folder, finding))
	assert.Contains(t, findingOf(fstest.MapFS{}, finding), file+": open")
	for _, none := range []string{progress, race, minimized, ""} {
		assert.Empty(t, findingOf(folder, none))
	}
}
