package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

// asProgram makes the test binary behave as the program itself, so that a test can see its signals,
// exit codes and output.
const asProgram = "LAYERWRIGHT_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	klog.SetLogger(logr.Discard()) // client-go's own lines; set here because no client may run meanwhile
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m)
}

// program prepares a run of the program with no environment but what is given.
func program(t *testing.T, env []string, args ...string) (*exec.Cmd, *syncBuffer) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append([]string{asProgram + "=1", "HOME=" + t.TempDir()}, env...)
	stderr := &syncBuffer{}
	cmd.Stderr = stderr
	return cmd, stderr
}

func exitCodeOf(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode()
}

func TestExecuteHelp(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want []string
	}{
		"no arguments teach the commands": {
			want: []string{"controller", "version", "Examples:", "layerwright controller --leader-elect=false"},
		},
		"controller teaches its flags with defaults and units": {
			args: []string{"controller", "--help"},
			want: []string{
				"Examples:",
				"--kubeconfig",
				"--leader-elect ", "(default true)",
				"--leader-election-namespace", "$POD_NAMESPACE",
				"--metrics-bind-address", `(default ":8443")`,
				"--metrics-cert-dir", "tls.crt and tls.key",
				"--health-probe-bind-address", `(default ":8081")`,
				"--graceful-shutdown-timeout", "(default 30s)",
				"--rendered-config-limit", "(default 10)",
				"--release-version", "$RELEASE_VERSION",
				"--namespace", "--max-concurrent-builds", "(default 32)", "--base-image-cache-dir",
				"--log-level", "(default info)",
				"--log-format", "json|text", "(default json)",
			},
		},
		"version teaches its formats": {
			args: []string{"version", "--help"},
			want: []string{"text|json|yaml", "(default text)", "layerwright version -o json"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			require.Equal(t, exitOK, execute(t.Context(), tt.args, &stdout, &stderr), stderr.String())
			for _, want := range tt.want {
				assert.Contains(t, stdout.String(), want)
			}
			assert.Empty(t, stderr.String())
		})
	}
}

// pflag takes what stands between back quotes in a flag's description for the name of its value.
func TestValuesOfFlagsAreNamedInOneWord(t *testing.T) {
	t.Parallel()
	for _, cmd := range newRootCommand().Commands() {
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			value, _ := pflag.UnquoteUsage(flag)
			assert.NotContains(t, value, " ", "%s --%s", cmd.Name(), flag.Name)
		})
	}
}

func TestBadCommandLineIsOneLine(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want string
	}{
		"unknown command":       {args: []string{"contoller"}, want: `unknown command "contoller": the commands are boot-images, build, check, controller, diff, explain, export, images, lint, logs, migrate, render, report, rollout, status, streams, trial, verify, version`},
		"trial of no files":     {args: []string{"trial", "--stream", "rhel-10"}, want: "no files: name files or folders"},
		"trial of no stream":    {args: []string{"trial", "-f", "cluster.yaml"}, want: "no stream: name the one that the pool might move to"},
		"unknown flag":          {args: []string{"controller", "--metrics"}, want: "unknown flag: --metrics"},
		"argument too many":     {args: []string{"controller", "now"}, want: `unknown command "now" for "layerwright controller"`},
		"log level":             {args: []string{"controller", "--log-level=loud"}, want: "must be error, info, debug or a number from 0 to 7"},
		"log level with bodies": {args: []string{"controller", "--log-level=8"}, want: "must be error, info, debug or a number from 0 to 7"},
		"log format":            {args: []string{"controller", "--log-format=xml"}, want: "must be json or text"},
		"duration without unit": {args: []string{"controller", "--graceful-shutdown-timeout=30"}, want: "missing unit in duration"},
		"negative duration":     {args: []string{"controller", "--graceful-shutdown-timeout=-1s"}, want: "--graceful-shutdown-timeout -1s: must not be negative"},
		"negative limit":        {args: []string{"controller", "--rendered-config-limit=-1"}, want: "--rendered-config-limit -1: must not be negative"},
		"no builds":             {args: []string{"controller", "--max-concurrent-builds=0"}, want: "--max-concurrent-builds 0: must be at least 1"},
		"metrics address":       {args: []string{"controller", "--metrics-bind-address=8443"}, want: `--metrics-bind-address "8443": must be host:port`},
		"empty metrics address": {args: []string{"controller", "--metrics-bind-address="}, want: `--metrics-bind-address "": must be host:port`},
		"health address":        {args: []string{"controller", "--health-probe-bind-address=::1"}, want: `--health-probe-bind-address "::1": must be host:port`},
		"missing certificate":   {args: []string{"controller", "--metrics-cert-dir=/no/such/dir"}, want: "--metrics-cert-dir: open /no/such/dir/tls.crt"},
		"version format":        {args: []string{"version", "-o", "xml"}, want: "must be text, json or yaml"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			assert.Equal(t, exitUsage, execute(t.Context(), tt.args, &stdout, &stderr))
			assert.Contains(t, stderr.String(), tt.want)
			assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line: %s", stderr.String())
			assert.True(t, strings.HasPrefix(stderr.String(), "layerwright: "), stderr.String())
			assert.Empty(t, stdout.String())
		})
	}
}

func TestExecuteVersion(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, execute(t.Context(), []string{"version", "-o", "json"}, &stdout, &stderr), stderr.String())
	var got version.Info
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &got))
	assert.Equal(t, version.Current(), got)
}

func TestPrintVersion(t *testing.T) {
	t.Parallel()
	info := version.Info{Version: "v1.2.3", Revision: "0123abcd", GoVersion: "go1.26.8", Platform: "linux/amd64"}
	tests := map[string]struct{ format, want string }{
		"text is for people": {
			format: "text",
			want:   "layerwright v1.2.3\n  revision: 0123abcd\n  go:       go1.26.8\n  platform: linux/amd64\n",
		},
		"json": {
			format: "json",
			want: `{
  "version": "v1.2.3",
  "revision": "0123abcd",
  "goVersion": "go1.26.8",
  "platform": "linux/amd64"
}
`,
		},
		"yaml": {
			format: "yaml",
			want:   "goVersion: go1.26.8\nplatform: linux/amd64\nrevision: 0123abcd\nversion: v1.2.3\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			require.NoError(t, printVersion(&out, info, tt.format))
			assert.Equal(t, tt.want, out.String())
		})
	}
}

func TestPrintVersionReportsAClosedPipe(t *testing.T) {
	t.Parallel()
	err := printVersion(brokenWriter{}, version.Info{}, "text")
	require.ErrorIs(t, err, errBroken)
	assert.Equal(t, exitFailure, execute(t.Context(), []string{"version"}, brokenWriter{}, &bytes.Buffer{}))
}

var errBroken = errors.New("broken pipe")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestOneLine(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a; b; c", oneLine("a\nb\r\n\nc\n"))
	assert.Equal(t, "a", oneLine("a"))
}

func TestProgramStartErrors(t *testing.T) {
	t.Parallel()
	closed := ownAddress(t)
	unreachable := t.TempDir() + "/kubeconfig"
	writeKubeconfig(t, unreachable, "http://"+closed)

	tests := map[string]struct {
		env      []string
		args     []string
		wantCode int
		want     string
	}{
		"outside a pod without a namespace": {
			args:     []string{"controller"},
			wantCode: exitUsage,
			want:     "layerwright: --leader-election-namespace is needed outside a pod (or POD_NAMESPACE, or --leader-elect=false)\n",
		},
		"no cluster anywhere": {
			args:     []string{"controller", "--leader-elect=false"},
			wantCode: exitFailure,
			want:     "layerwright: finding the cluster: no kubeconfig and no pod's service account: pass --kubeconfig or set KUBECONFIG\n",
		},
		"kubeconfig that does not exist": {
			env:      []string{"POD_NAMESPACE=layerwright-test"},
			args:     []string{"controller", "--kubeconfig=/no/such/file"},
			wantCode: exitFailure,
			want:     "layerwright: finding the cluster: --kubeconfig: stat /no/such/file: no such file or directory\n",
		},
		"API server that no one runs": {
			env:      []string{"POD_NAMESPACE=layerwright-test", "KUBECONFIG=" + unreachable},
			args:     []string{"controller", "--log-level=error"},
			wantCode: exitFailure,
			want:     "layerwright: reaching the API server at http://" + closed + ": dial tcp " + closed + ": connect: connection refused\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, stderr := program(t, tt.env, tt.args...)
			assert.Equal(t, tt.wantCode, exitCodeOf(t, cmd.Run()))
			assert.Equal(t, tt.want, stderr.String())
		})
	}
}

// assertLogLines expects every line to be a JSON object and each message to be among them.
func assertLogLines(t *testing.T, output string, messages ...string) {
	t.Helper()
	seen := map[string]bool{}
	for line := range strings.Lines(output) {
		var entry struct{ Time, Level, Msg string }
		if assert.NoError(t, json.Unmarshal([]byte(line), &entry), line) {
			assert.NotEmpty(t, entry.Time, line)
			assert.Contains(t, []string{"error", "info", "debug"}, entry.Level, line)
			seen[entry.Msg] = true
		}
	}
	for _, message := range messages {
		assert.True(t, seen[message], "no line says %q in:\n%s", message, output)
	}
}
