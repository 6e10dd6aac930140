//go:build e2e

package engine

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const laptopConfig = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-motd, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/motd, contents: {source: "data:,TEXT"}}]}}}
`

// laptop is where a person runs layerwright, with a login to the hub.
type laptop struct {
	dir string
	hub *hub
}

// built is what layerwright says of an image.
type built struct{ Image, Action string }

func newLaptop(t *testing.T, containerfile string) *laptop {
	t.Helper()
	// Machines with podman have this folder, which no one but root may look into.
	require.NoError(t, os.MkdirAll("/var/lib/containers", 0o700))
	l := &laptop{dir: t.TempDir(), hub: newHub(t)}
	login, err := pusher.DockerConfig(l.hub.host)
	require.NoError(t, err)
	l.write(t, "docker/config.json", string(login))
	l.write(t, "Containerfile", containerfile)
	l.hub.put(t, "os/base", tiny)
	return l
}

func (l *laptop) write(t *testing.T, file, content string) {
	t.Helper()
	path := filepath.Join(l.dir, file)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// build makes the image with a text in /etc/motd.
func (l *laptop) build(t *testing.T, text string) (image built, output string, err error) {
	t.Helper()
	l.write(t, "motd.yaml", string(bytes.ReplaceAll([]byte(laptopConfig), []byte("TEXT"), []byte(text))))
	at := func(name string) string { return filepath.Join(l.dir, name) }
	cmd := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(program), "layerwright"),
		"build", "-f", at("motd.yaml"), "--containerfile", at("Containerfile"), "--cache-dir", at("cache"),
		"--base", l.hub.host+"/os/base:latest", "--push", l.hub.host+"/os/worker", "-o", "json")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=" + l.temporary(t), "DOCKER_CONFIG=" + at("docker"), "COSIGN_PASSWORD=hunter2-of-the-key"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); err == nil {
		require.NoError(t, json.Unmarshal(stdout.Bytes(), &image))
	}
	return image, stderr.String(), err
}

// temporary is a folder that others than root reach, as those of machines are.
func (l *laptop) temporary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "laptop-") //nolint:usetesting // that of the test is root's alone
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left, "what a build needed goes with it")
		require.NoError(t, os.RemoveAll(dir))
	})
	return dir
}

func TestALaptopBuildsAContainerfile(t *testing.T) {
	t.Parallel()
	l := newLaptop(t, "FROM os-base-image\nRUN echo built > /etc/built && cat /proc/self/uid_map > /etc/ids && chown 5:7 /etc/built\n"+
		"RUN cat /proc/1/cmdline > /etc/first && cat /proc/*/environ > /etc/environments 2> /dev/null; grep -q PATH= /etc/environments\n")
	first, output, err := l.build(t, "hello")
	require.NoError(t, err, output)
	assert.Equal(t, "Build", first.Action)
	content := files(t, mutate.Extract(l.hub.get(t, first.Image)))
	assert.Equal(t, "built\n", content["etc/built"])
	assert.Equal(t, "hello", content["etc/motd"])
	assert.NotRegexp(t, `^\s*0\s+0\s`, content["etc/ids"], "root of the build is not root of the machine")
	assert.Contains(t, content["etc/first"], "layerwright-builder", "no process of the machine's is there to be seen or killed")
	assert.NotContains(t, output+content["etc/environments"], "hunter2", "neither theirs nor that of another process")

	again, output, err := l.build(t, "hello")
	require.NoError(t, err, output)
	assert.Equal(t, built{Image: first.Image, Action: "Reuse"}, again)
	changed, output, err := l.build(t, "changed")
	require.NoError(t, err, output)
	assert.Equal(t, "Append", changed.Action, "another file is no reason to build")
}

func TestALaptopSaysWhichLineFailed(t *testing.T) {
	t.Parallel()
	l := newLaptop(t, "FROM os-base-image\nRUN echo almost; exit 3\n")
	_, output, err := l.build(t, "hello")
	require.Error(t, err)
	assert.Contains(t, output, "line 2")
	assert.Contains(t, output, "almost")
}
