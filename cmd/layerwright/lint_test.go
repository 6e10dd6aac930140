package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bomb is a document of a few lines that means billions.
func bomb() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 10; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	return text
}

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
		"one that would be read in part": {"Containerfile", "FROM configs\n" + strings.Repeat("#\n", longestContainerfile/2) + "RUN --security=insecure true\n", exitFailure, "", "it is longer than"},
		"a name that a terminal obeys": {"mc.yaml", `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a}
spec: {kernelType: "\u001b[2Jfast\u009b"}
`, exitHeld, `[2Jfast`, "1 to mend"},
		"aliases of aliases": {"mc.yaml", bomb(), exitFailure, "", "aliasing"},
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
			assert.False(t, strings.ContainsAny(stdout.String()+stderr.String(), "\x1b\u009b"), "%q", stdout.String())
		})
	}
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailure, execute(t.Context(), []string{"lint", "/nonexistent"}, &stdout, &stderr))
	assert.Equal(t, exitOK, execute(t.Context(), []string{"lint", "../../deploy/examples/containerfile.yaml"}, &stdout, &stderr), stdout.String()+stderr.String())
	assert.Equal(t, exitUsage, execute(t.Context(), []string{"lint"}, &stdout, &stderr))
}
