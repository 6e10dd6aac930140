package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/rollout/agent/hostcheck"
)

func TestHostCheck(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	tests := map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"a host without programs":  {[]string{"--host-root=" + root}, exitMend, ""},
		"a host that is not there": {[]string{"--host-root=" + root + "/none"}, exitFailure, "layerwright-agent: looking for the host's root: stat " + root + "/none/etc: no such file or directory\n"},
		"a root that is no path":   {[]string{"--host-root=host"}, exitUsage, "layerwright-agent: --host-root \"host\": must be an absolute path\n"},
		"another output":           {[]string{"-o", "yaml"}, exitUsage, "layerwright-agent: invalid argument \"yaml\" for \"-o, --output\" flag: must be text or json\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, append([]string{"host-check"}, tt.args...)...)
			assert.Equal(t, tt.code, code)
			assert.Equal(t, tt.stderr, stderr)
			assert.Equal(t, code == exitMend, stdout != "")
		})
	}
}

func TestHostCheckOutputs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	const says = "the host has neither bootc nor rpm-ostree: Layerwright updates hosts that were deployed from images"
	_, text, _ := run(t, "host-check", "--host-root="+root)
	assert.Contains(t, text, "\nmend     deployments        "+says+"\n")
	_, content, _ := run(t, "host-check", "--host-root="+root, "-o", "json")
	var report hostcheck.Report
	require.NoError(t, json.Unmarshal([]byte(content), &report))
	assert.Contains(t, report.Checks, hostcheck.Check{What: "deployments", Result: hostcheck.Mend, Answer: says})
	assert.NotEmpty(t, report.Agent)
}
