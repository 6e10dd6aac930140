package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLintFiles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file, text string
		code       int
		stdout     string
		stderr     string
	}{
		"Containerfile": {"Containerfile", "FROM configs\nRUN true\n", exitOK, "", ""},
		"wrong":         {"Containerfile", "FROM configs\nRUN --security=insecure true\n", exitHeld, "Containerfile:2: Error: ", "1 to mend"},
		"warning":       {"Containerfile", "FROM fedora:latest AS a\nRUN true\nFROM configs\nCOPY --from=a /x /x\n", exitOK, "(UnpinnedImage)", ""},
		"MachineConfig": {"mc.yaml", `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {kernelType: fast}
`, exitHeld, `MachineConfig "50-a": Error: spec.kernelType: `, "1 to mend"},
		"two that contradict each other": {"mc.yaml", `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {kernelArguments: [quiet]}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 60-b, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.5.0}, kernelArguments: {shouldNotExist: [quiet]}}}
`, exitHeld, "quiet", "1 to mend"},
		"MachineOSConfig": {"mosc.yaml", `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSConfig
metadata: {name: worker}
spec:
  machineConfigPool: {name: worker}
  containerFile: [{content: "FROM nosuch"}, {containerfileArch: ARM64, configMapRef: {name: missing}}]
`, exitHeld, `MachineOSConfig "worker": Error: reading the Containerfiles`, "1 to mend"},
		"unknown field": {"mc.yaml", `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a}
spec: {kernelArgument: [quiet]}
`, exitFailure, "", "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), test.file)
			require.NoError(t, os.WriteFile(file, []byte(test.text), 0o600))
			var stdout, stderr bytes.Buffer
			code := execute(t.Context(), []string{"lint", file}, &stdout, &stderr)
			assert.Equal(t, test.code, code, "%s%s", stdout.String(), stderr.String())
			assert.Contains(t, stdout.String(), test.stdout)
			assert.Contains(t, stderr.String(), test.stderr)
		})
	}
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailure, execute(t.Context(), []string{"lint", "/nonexistent"}, &stdout, &stderr))
	assert.Equal(t, exitOK, execute(t.Context(), []string{"lint", "../../deploy/examples/containerfile.yaml"}, &stdout, &stderr), stdout.String()+stderr.String())
	assert.Equal(t, exitUsage, execute(t.Context(), []string{"lint"}, &stdout, &stderr))
}
