//go:build e2e

package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
)

// TestForeignConfigMapEndsTheStep gives steps files that the Job does not know.
func TestForeignConfigMapEndsTheStep(t *testing.T) {
	t.Parallel()
	p := newPod(t, newHub(t), "FROM os-base-image\nCOPY motd /etc/motd\n", map[string]string{"motd": "welcome\n"})
	// run gives the step what the controller would have put there: the instructions, and the files
	// of the context.
	run := func(step backend.Step, instructions, motd string) ended {
		mounted := filepath.Join(p.dir, "mounted")
		require.NoError(t, os.RemoveAll(mounted))
		none := filepath.Join(p.dir, "no-registries")
		cmd := p.command(t, step, "--instructions", filepath.Join(mounted, "instructions.json"),
			"--registries", filepath.Join(none, "registries.conf"), "--policy", filepath.Join(none, "policy.json"))
		text, err := os.ReadFile(filepath.Join(p.dir, "instructions.json"))
		require.NoError(t, err)
		p.write(t, "mounted/instructions.json", string(text)+instructions)
		p.write(t, "context/motd", motd)
		expected := map[string]string{mounted: backend.Fingerprint(map[string][]byte{"instructions.json": text})}
		if step == backend.Build {
			expected[filepath.Join(p.dir, "context")] = backend.Fingerprint(map[string][]byte{"motd": []byte("welcome\n")})
		} else {
			require.NoError(t, removeAll(p, "context"))
		}
		variable, err := json.Marshal(expected)
		require.NoError(t, err)
		cmd.Env = append(cmd.Env, backend.ExpectedVariable+"="+string(variable))
		out, err := cmd.CombinedOutput()
		if err != nil {
			require.NotNil(t, cmd.ProcessState, "%v", err)
		}
		return p.ended(t, step, cmd.ProcessState.ExitCode(), string(out))
	}
	refused := func(e ended, where string) {
		t.Helper()
		require.NotNil(t, e.report.Failure, e.output)
		assert.Equal(t, mcfgv1.ReasonInputsChanged, e.report.Failure.Reason)
		assert.Equal(t, backend.ExitAdmin, e.code)
		assert.Contains(t, e.report.Failure.Message, where)
	}
	refused(run(backend.Fetch, " ", ""), "mounted are not those that the controller made")
	require.Nil(t, run(backend.Fetch, "", "").report.Failure)
	refused(run(backend.Build, "", "other\n"), "context are not those that the controller made")
	e := run(backend.Build, "", "welcome\n")
	require.Nil(t, e.report.Failure, e.output)
	require.Nil(t, run(backend.Export, "", "").report.Failure)
	p.login(t, pusher)
	refused(run(backend.Push, " ", ""), "mounted are not those")
	e = run(backend.Push, "", "")
	require.Nil(t, e.report.Failure, e.output)
	assert.Equal(t, "welcome\n", added(t, p.hub.get(t, e.report.Image))["etc/motd"])
}
