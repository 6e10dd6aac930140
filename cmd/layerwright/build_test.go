package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

const machineOSConfig = `---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSConfig
metadata: {name: worker}
spec:
  machineConfigPool: {name: worker}
  imageBuilder: {imageBuilderType: Job}
  renderedImagePushSecret: {name: push}
  renderedImagePushSpec: registry.example.com/os/worker:latest
`

// bench is a folder with a MachineConfig, and a base image.
type bench struct {
	t      *testing.T
	folder string
	args   []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	image, certificates := serveFixture(t)
	b := &bench{t: t, folder: t.TempDir()}
	b.write("config.yaml", machineConfig)
	b.args = []string{"-f", b.path("config.yaml"), "--base", image, "--registry-ca", certificates, "--cache-dir", b.path("cache")}
	return b
}

func (b *bench) path(file string) string { return filepath.Join(b.folder, file) }

func (b *bench) write(file, content string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(b.path(file), []byte(content), 0o600))
}

func (b *bench) run(command string, args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = execute(b.t.Context(), append(append([]string{command}, b.args...), args...), &out, &errOut)
	return code, out.String(), errOut.String()
}

func (b *bench) build(args ...string) *buildReport {
	b.t.Helper()
	code, stdout, stderr := b.run("build", append(args, "-o", "json")...)
	require.Equal(b.t, exitOK, code, stderr)
	report := &buildReport{}
	require.NoError(b.t, json.Unmarshal([]byte(stdout), report))
	return report
}

func TestBuildHasTheKeysOfRender(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, stdout, _ := b.run("render", "-o", "json")
	described := &offline.Report{}
	require.NoError(t, json.Unmarshal([]byte(stdout), described))
	server := registrytest.New(t, nil)
	report := b.build("--push", server.Host+"/os/worker:v1")
	assert.Equal(t, plan.Append, report.Action)
	assert.Equal(t, described.Keys, report.Keys)
	assert.Equal(t, described.MachineConfig, report.MachineConfig)
	assert.Equal(t, described.Base, report.Base)
	assert.Equal(t, []string{"worker-" + described.Keys.Build, "v1"}, report.Tags)
	require.Len(t, report.Platforms, 1)
	assert.Len(t, report.Platforms[0].Layers, 7)
	require.NotNil(t, report.Platforms[0].Pull)
	assert.Equal(t, report.Platforms[0].Layers[6], *report.Platforms[0].Pull)
	assert.Empty(t, report.KeyID)
}

func TestBuildIntoAFolderAndFromOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("osconfig.yaml", machineOSConfig)
	b.write("cosign.key", string(signtest.NewPair().Private))
	first := b.build("-f", b.path("osconfig.yaml"), "--push", "oci:"+b.path("image"))
	assert.True(t, strings.HasPrefix(first.Image, "registry.example.com/os/worker@"), first.Image)
	index, err := layout.ImageIndexFromPath(b.path("image"))
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))

	// An image as a base gives its configuration away, so this is the same image but for the base.
	b.args[3] = "oci:" + b.path("image") + ":worker"
	server := registrytest.New(t, nil)
	second := b.build("--push", server.Host+"/os/worker")
	assert.Equal(t, plan.Append, second.Action)
	assert.Equal(t, first.Platforms[0].Layers, second.Platforms[0].Layers)
	assert.Equal(t, "localhost/base@"+strings.SplitN(first.Image, "@", 2)[1], second.Base)
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("cosign.key", "no key")
	b.write("Containerfile", "FROM os-base-image\nRUN true\n")
	server := registrytest.New(t, nil)
	tests := map[string]struct {
		args []string
		code int
		says string
	}{
		"no place":              {nil, exitUsage, "nowhere to push: name REPOSITORY[:TAG] in a registry, or oci:FOLDER, with --push"},
		"a digest":              {[]string{"--push", "quay.io/os@sha256:" + strings.Repeat("a", 64)}, exitUsage, "is an image by its digest"},
		"no name":               {[]string{"--push", "quay.io/OS"}, exitUsage, "--push: "},
		"no folder":             {[]string{"--push", "oci:"}, exitUsage, "oci: needs the name of a folder"},
		"no architecture":       {[]string{"--push", "quay.io/os", "--architecture", "mips"}, exitUsage, "must be amd64"},
		"no key":                {[]string{"--push", "127.0.0.1:1/os", "--sign-key", b.path("cosign.key")}, exitFailure, "it is no private key as `cosign generate-key-pair` writes them"},
		"a signature for where": {[]string{"--push", "oci:" + b.path("x"), "--sign-key", b.path("cosign.key")}, exitFailure, "give the pool's MachineOSConfig too"},
		"a Containerfile":       {[]string{"--push", server.Host + "/os", "--containerfile", b.path("Containerfile")}, exitFailure, "no layerwright-builder was found to do it"},
		"content in a folder":   {[]string{"--push", "oci:" + b.path("y"), "--containerfile", b.path("Containerfile")}, exitFailure, "that takes registries to pull from and to push to"},
		"no builder":            {[]string{"--push", server.Host + "/os", "--containerfile", b.path("Containerfile"), "--builder", b.path("none")}, exitFailure, "no such file"},
		"no registry":           {[]string{"--push", "127.0.0.1:1/os"}, exitFailure, "127.0.0.1:1"},
		"a file":                {[]string{"--push", "oci:" + b.path("config.yaml")}, exitFailure, "opening the folder"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := b.run("build", tt.args...)
			assert.Equal(t, tt.code, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tt.says)
			assert.Equal(t, 1, strings.Count(stderr, "layerwright: "), "one line says what is wrong")
		})
	}
}

func TestReadKey(t *testing.T) {
	t.Parallel()
	pair := signtest.NewPair()
	readFile := func(string) ([]byte, error) { return pair.Private, nil }
	env := func(value string, isSet bool) func(string) (string, bool) {
		return func(string) (string, bool) { return value, isSet }
	}
	keys, err := readKey("cosign.key", readFile, env(signtest.Password, true))
	require.NoError(t, err)
	trusted, err := keys.Trusted(t.Context())
	require.NoError(t, err)
	require.Len(t, trusted.Keys, 1)
	assert.Equal(t, pair.ID(), trusted.Keys[0].ID())

	_, err = readKey("cosign.key", readFile, env("", false))
	require.EqualError(t, err, `reading the signing key "cosign.key": COSIGN_PASSWORD is not set, and the key has a password`)
	_, err = readKey("cosign.key", readFile, env("wrong", true))
	require.EqualError(t, err, `reading the signing key "cosign.key": the password does not open it`)
	_, err = readKey("cosign.key", func(string) ([]byte, error) { return nil, errors.New("no such file") }, env("", false))
	require.EqualError(t, err, "reading the signing key: no such file")
}
