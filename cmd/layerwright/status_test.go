package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

const recorded = "../../view/testdata"

func TestStatusOfARecordedCluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args   []string
		code   int
		stdout []string
		stderr string
	}{
		"all":           {[]string{"done.yaml"}, exitOK, []string{"Pools\n", "worker-0, +2", "Rollout\n"}, ""},
		"pools alone":   {[]string{"done.yaml", "--details", "none"}, exitOK, []string{"worker  Done        3/3"}, ""},
		"each node":     {[]string{"done.yaml", "--details=nodes"}, exitOK, []string{"worker-0  Done", "worker-1  Done"}, ""},
		"one pool":      {[]string{"done.yaml", "worker"}, exitOK, []string{"worker"}, ""},
		"misspelt":      {[]string{"done.yaml", "wroker"}, exitFailure, nil, `there is no pool "wroker"; do you mean "worker"? The pools are worker`},
		"no pool":       {[]string{"no-pool.yaml"}, exitOK, nil, noPools},
		"json":          {[]string{"build-failed.yaml", "-o", "json"}, exitOK, []string{`"assessment": "Degraded"`, `"command": "layerwright logs worker-2"`}, ""},
		"yaml":          {[]string{"build-failed.yaml", "-o", "yaml"}, exitOK, []string{"assessment: Degraded"}, ""},
		"wide":          {[]string{"build-failed.yaml", "-o", "wide"}, exitOK, []string{"SHOULD HAVE", "No match for argument: nosuch Error: Unable to find a match: nosuch\n"}, ""},
		"health":        {[]string{"halted.yaml", "--details=health"}, exitOK, []string{"acts next: you"}, ""},
		"wait, slow":    {[]string{"build-building.yaml", "--timeout=1ns"}, exitTimedOut, []string{"Progressing"}, "not at its end after 1ns"},
		"no such file":  {[]string{"nosuch.yaml"}, exitFailure, nil, "no such file"},
		"no such words": {[]string{"done.yaml", "--details=some"}, exitUsage, nil, "must be default, none, nodes, health or all"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			args := append([]string{"status", "--from-dir", filepath.Join(recorded, test.args[0])}, test.args[1:]...)
			require.Equal(t, test.code, execute(t.Context(), args, &stdout, &stderr), stderr.String())
			for _, text := range test.stdout {
				assert.Contains(t, stdout.String(), text)
			}
			assert.Contains(t, stderr.String(), test.stderr)
			assert.NotContains(t, stdout.String(), "\x1b", "no terminal, no colour")
		})
	}
}

// jumping is a clock on which waiting takes no time.
type jumping struct{ *clocktesting.FakeClock }

func (j jumping) After(d time.Duration) <-chan time.Time {
	j.Step(d)
	at := make(chan time.Time, 1)
	at <- j.Now()
	return at
}

// waiting is a screen that waits for the end of clusters that follow each other; the last one
// stays. An empty name is one that does not answer.
func waiting(stdout, stderr *bytes.Buffer, steps ...string) *statusScreen {
	o := &statusOptions{timeout: time.Hour}
	o.output.Value, o.details.Value = "text", "default"
	clock := jumping{clocktesting.NewFakeClock(time.Date(2026, 11, 23, 20, 0, 0, 0, time.UTC))}
	s := &statusScreen{statusOptions: o, clock: clock, out: stdout, notes: stderr, survey: func(context.Context) (*survey.Survey, error) {
		step := steps[0]
		if len(steps) > 1 {
			steps = steps[1:]
		}
		if step == "" {
			return nil, errors.New("connection refused")
		}
		return survey.ReadFiles(filepath.Join(recorded, step+".yaml"))
	}}
	s.look()
	return s
}

func TestStatusWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		steps []string
		code  int
		says  string
	}{
		"done":               {[]string{"build-building", "done"}, exitOK, ""},
		"failed":             {[]string{"done", "build-failed"}, exitDegraded, "pool worker is Degraded: "},
		"held":               {[]string{"waits-drain-blocked"}, exitHeld, "pool worker is Held: "},
		"held for a moment":  {[]string{"waits-drain-blocked", "waits-drain-blocked", "waits-staging", "done"}, exitOK, ""},
		"failed for a while": {[]string{"build-failed", "build-building", "done"}, exitOK, ""},
		"no pool":            {[]string{"no-pool"}, exitHeld, noPools},
		"slow":               {[]string{"build-building"}, exitTimedOut, "not at its end after 1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			err := waiting(&stdout, &stderr, test.steps...).run(t.Context())
			assert.Contains(t, stdout.String(), "Rollout\n", "the end is shown")
			if test.code == exitOK {
				require.NoError(t, err)
				return
			}
			var ended *endError
			require.ErrorAs(t, err, &ended)
			assert.Equal(t, test.code, ended.code)
			assert.Contains(t, ended.text, test.says)
		})
	}
	// The controller is heard of for the first time after a minute.
	var out, notes bytes.Buffer
	screen := waiting(&out, &notes, "done")
	recordedOnly, begin := screen.survey, screen.clock.Now()
	screen.survey = func(ctx context.Context) (*survey.Survey, error) {
		read, err := recordedOnly(ctx)
		read.Renewed = begin
		if now := screen.clock.Now(); now.Sub(begin) > time.Minute {
			read.Renewed = now
		}
		return read, err
	}
	require.NoError(t, screen.run(t.Context()))
	assert.Greater(t, screen.clock.Since(begin), time.Minute, "what it says before may be old")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	require.ErrorContains(t, waiting(&stdout, &stderr, "build-building").run(ctx), "interrupted", "never taken for the end")
}

// TestStatusFollows has a cluster go through a rollout, with a time in which it does not answer.
func TestStatusFollows(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	s := waiting(&stdout, &stderr, "build-building", "build-building", "", "waits-staging", "done")
	s.watch = true
	require.NoError(t, s.run(t.Context()))
	assert.Equal(t, 3, strings.Count(stdout.String(), "Pools\n"), "what did not change is not repeated:\n%s", stdout.String())
	assert.Equal(t, "layerwright: no answer, trying again: connection refused\n", stderr.String())
}

// TestStatusThatCannotBeRead asks a real API server.
func TestStatusThatCannotBeRead(t *testing.T) {
	t.Parallel()
	kubeconfig := clustertest.Kubeconfig(t)
	var stdout, stderr bytes.Buffer
	unknown := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(unknown, nil, 0o600))
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"no kubeconfig": {[]string{"--kubeconfig", unknown}, "no cluster: name a kubeconfig"},
		"no context":    {[]string{"--kubeconfig", kubeconfig, "--context", "other"}, `kubeconfig: context "other" does not exist`},
		"no rights":     {[]string{"--kubeconfig", kubeconfig, "--as", "someone"}, "you may not list "},
		"no server":     {[]string{"--kubeconfig", kubeconfig, "--server", "https://127.0.0.1:1"}, "connection refused"},
	} {
		stderr.Reset()
		assert.Equal(t, exitFailure, execute(t.Context(), append([]string{"status"}, test.args...), &stdout, &stderr), name)
		assert.Contains(t, stderr.String(), test.says, name)
	}
}
