package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	tried := func(state mcfgv1.StreamTrialState, blockers ...string) *mcfgv1.StreamTrial {
		return &mcfgv1.StreamTrial{Stream: "new", State: state, Message: "1 blocker", Blockers: blockers, BlockerCount: int32(len(blockers))} //nolint:gosec // there are few
	}
	for name, test := range map[string]struct {
		change func(*migration)
		trial  *mcfgv1.StreamTrial
		code   int
		says   string
		stream string
	}{
		"moves":            {nil, tried(mcfgv1.StreamTrialReported), exitOK, "pool worker: follows stream new; layerwright status worker --watch", "new"},
		"dry run":          {func(m *migration) { m.dryRun = true }, tried(mcfgv1.StreamTrialReported), exitOK, "would follow stream new", ""},
		"not tried":        {nil, nil, exitHeld, "first run layerwright migrate worker --to new --check", ""},
		"is being tried":   {nil, tried(mcfgv1.StreamTrialRunning), exitHeld, "first run", ""},
		"blocked":          {nil, tried(mcfgv1.StreamTrialReported, "CgroupV1: a"), exitHeld, "1 blockers: CgroupV1: a", ""},
		"no such stream":   {func(m *migration) { m.stream = "newer" }, nil, exitFailure, `there is no stream "newer"; the streams are new, old`, ""},
		"unusable stream":  {func(m *migration) { m.stream = "half" }, nil, exitFailure, `stream "half" can't be used: ExtensionsImageMissing: add it`, ""},
		"no such pool":     {func(m *migration) { m.pool = "wroker" }, nil, exitFailure, `do you mean "worker"?`, ""},
		"check":            {func(m *migration) { m.check = true }, tried(mcfgv1.StreamTrialReported), exitOK, "1 blocker\n", ""},
		"check, blocked":   {func(m *migration) { m.check = true }, tried(mcfgv1.StreamTrialReported, "CgroupV1: a"), exitHeld, "can't move to stream new yet: 1 blockers", ""},
		"check that fails": {func(m *migration) { m.check = true }, tried(mcfgv1.StreamTrialFailed), exitDegraded, "the trial of stream new failed: 1 blocker", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
			config.Status.StreamTrial = test.trial
			streams := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
			streams.Status.AvailableStreams = []mcfgv1.OSImageStreamSet{{Name: "new"}, {Name: "old"}}
			streams.Status.UnusableStreams = []mcfgv1.UnusableOSImageStream{{Name: "half", Reason: "ExtensionsImageMissing", Message: "add it"}}
			var out, notes bytes.Buffer
			m := &migration{clusterBuild: *building(t, &out, &notes, nil, config, streams)}
			m.pool, m.stream = "worker", "new"
			if test.change != nil {
				test.change(m)
			}
			err := failed(m.run(t.Context()))
			if test.code == exitOK {
				require.NoError(t, err)
				assert.Contains(t, out.String(), test.says)
			} else {
				var ended interface{ exitCode() int }
				require.ErrorAs(t, err, &ended)
				assert.Equal(t, test.code, ended.exitCode())
				assert.Contains(t, err.Error(), test.says)
			}
			pool := &mcfgv1.MachineConfigPool{}
			require.NoError(t, m.from.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Name: "worker"}, pool))
			assert.Equal(t, test.stream, pool.Spec.OSImageStream.Name)
		})
	}
}

func TestMigrateFlags(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"no stream: name the one that the pool moves to with --to": nil,
		"--check changes nothing":                                  {"--to", "new", "--check", "--dry-run"},
		"--timeout goes with --check":                              {"--to", "new", "--timeout", "1s"},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, execute(t.Context(), append([]string{"migrate", "worker"}, args...), &stdout, &stderr))
		assert.Contains(t, stderr.String(), says)
	}
}
