package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
)

const machineConfig = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-motd
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  config:
    ignition:
      version: 3.5.0
    storage:
      files:
      - path: /etc/motd
        contents:
          source: data:,hello
`

// serveFixture runs a registry over TLS that has the tiny OS image, and returns the image's name
// and a file with the registry's certificate.
func serveFixture(t *testing.T) (image, certificates string) {
	t.Helper()
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	cache, err := toolchain.CacheDir()
	require.NoError(t, err)
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	require.NoError(t, err)
	set, err := maker.Build(t.Context(), fixtures.Tiny)
	require.NoError(t, err)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "https://") + "/os:tiny")
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, set.OS[fixtures.RHEL9]["amd64"], remote.WithTransport(server.Client().Transport)))

	certificates = filepath.Join(t.TempDir(), "ca.pem")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(certificates, encoded, 0o600))
	return ref.Name(), certificates
}

func TestRenderCommand(t *testing.T) {
	t.Parallel()
	image, certificates := serveFixture(t)
	folder := t.TempDir()
	file := filepath.Join(folder, "motd.yaml")
	require.NoError(t, os.WriteFile(file, []byte(machineConfig), 0o600))
	containerfile := filepath.Join(folder, "Containerfile")
	require.NoError(t, os.WriteFile(containerfile, []byte("FROM os-base-image\nRUN touch /etc/built\n"), 0o600))
	run := func(args ...string) (stdout, stderr string) {
		var out, errOut bytes.Buffer
		args = append([]string{
			"render", "-f", file, "--base", image, "--registry-ca", certificates,
			"--cache-dir", filepath.Join(folder, "cache"), "--output", filepath.Join(folder, "image"),
		}, args...)
		require.Equal(t, exitOK, execute(t.Context(), args, &out, &errOut), errOut.String())
		return out.String(), errOut.String()
	}

	stdout, stderr := run()
	assert.Contains(t, stdout, "file /etc/motd")
	assert.Contains(t, stdout, "nothing is built")
	assert.Contains(t, stderr, "reading an image: layer 1 of 6", "long work shows how far it is")

	stdout, stderr = run("--containerfile", containerfile, "--architecture", "amd64", "-o", "json")
	assert.Empty(t, stderr, "the base image is known by now")
	var report offline.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Len(t, report.Changes, 1)
	assert.Equal(t, "Containerfile added", report.Changes[0].String())
	assert.FileExists(t, filepath.Join(folder, "image", "amd64", "Containerfile"))
}

func TestRenderCommandRefuses(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "motd.yaml")
	require.NoError(t, os.WriteFile(file, []byte(machineConfig), 0o600))
	tests := map[string]struct {
		args     []string
		wantCode int
		want     string
	}{
		"no files":                 {args: nil, wantCode: exitUsage, want: "--filename"},
		"an architecture":          {args: []string{"-f", file, "--architecture", "mips"}, wantCode: exitUsage, want: `"mips"`},
		"a format":                 {args: []string{"-f", file, "-o", "xml"}, wantCode: exitUsage, want: "text or json"},
		"an argument":              {args: []string{file}, wantCode: exitUsage, want: "unknown command"},
		"a file that is not there": {args: []string{"-f", filepath.Join(folder, "none.yaml")}, wantCode: exitFailure, want: "none.yaml"},
		"no base image":            {args: []string{"-f", file}, wantCode: exitFailure, want: "--base"},
		"a Containerfile that is not there": {
			args: []string{"-f", file, "--containerfile", filepath.Join(folder, "none")}, wantCode: exitFailure, want: "reading the Containerfile",
		},
		"certificates that are not there": {
			args: []string{"-f", file, "--registry-ca", filepath.Join(folder, "none")}, wantCode: exitFailure, want: "certificates",
		},
		"certificates that are none": {
			args: []string{"-f", file, "--registry-ca", file}, wantCode: exitFailure, want: "no certificate in PEM",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			args := append([]string{"render", "--cache-dir", folder}, tt.args...)
			assert.Equal(t, tt.wantCode, execute(t.Context(), args, &stdout, &stderr))
			assert.Contains(t, stderr.String(), tt.want)
			assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line: %s", stderr.String())
			assert.Empty(t, stdout.String())
		})
	}
}

func TestJSONControlsNoTerminal(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b[2J\x7f\u009b2J\u202e\U000e0001é"
	var out bytes.Buffer
	require.NoError(t, printJSON(&out, map[string]string{hostile: hostile}))
	assert.Equal(t, "{\n  \"a\\u001b[2J\\u007f\\u009b2J\\u202e\\udb40\\udc01é\": \"a\\u001b[2J\\u007f\\u009b2J\\u202e\\udb40\\udc01é\"\n}\n", out.String()) //nolint:testifylint // what is equal as JSON may differ for a terminal
	var read map[string]string
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	assert.Equal(t, hostile, read[hostile], "programs read what it was")
}

func TestUnknownCertificateNamesTheFlag(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	transport, err := trusting("")
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	_, err = transport.RoundTrip(request) //nolint:bodyclose // there is no answer
	require.ErrorContains(t, err, "--registry-ca takes a file")
}
