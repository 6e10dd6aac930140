package assembly

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	fakeregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/registry"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// scene is a registry, and what a run was told.
type scene struct {
	t    *testing.T
	host string
	Options
}

func newScene(t *testing.T, architectures ...string) *scene {
	t.Helper()
	server := httptest.NewServer(fakeregistry.New(fakeregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	client := registry.New(registry.Options{PlainHTTP: []string{host}})
	s := &scene{t: t, host: host, Options: Options{
		Instructions: t.TempDir(), Architectures: architectures, Image: host + "/os/worker:content-1", Results: t.TempDir(),
		Pull: client, Push: client, Clock: clocktesting.NewFakePassiveClock(now), Started: "1795262340", // a minute before
	}}
	all := map[string]map[string]string{}
	for _, architecture := range architectures {
		target := s.Image
		if len(architectures) > 1 {
			target += "-" + architecture
		}
		text, err := json.Marshal(&backend.Instructions{Target: target, PlainHTTP: []string{host}, Images: []backend.PinnedImage{{Name: "base", Image: host + "/os/base:1"}, {Name: "short"}}})
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(s.Instructions, architecture), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(s.Instructions, architecture, "instructions.json"), text, 0o600))
		all[architecture+"/push"] = map[string]string{"/etc/layerwright/instructions": backend.Fingerprint(map[string][]byte{"instructions.json": text})}
	}
	text, err := json.Marshal(all)
	require.NoError(t, err)
	s.Expected = string(text)
	return s
}

// push gives the registry an image for an architecture, and returns it by digest.
func (s *scene) push(tag, architecture string) string {
	s.t.Helper()
	image, err := random.Image(100, 2)
	require.NoError(s.t, err)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: architecture, RootFS: must(image.ConfigFile()).RootFS})
	require.NoError(s.t, err)
	reference, err := name.ParseReference(tag)
	require.NoError(s.t, err)
	require.NoError(s.t, remote.Write(reference, image))
	return reference.Context().Digest(must(image.Digest()).String()).String()
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (s *scene) result(file string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Results, file))
	require.NoError(s.t, err)
	return string(text)
}

// TestMirrorsOfThePool reads as registries.conf of the pool says.
func TestMirrorsOfThePool(t *testing.T) {
	t.Parallel()
	s := newScene(t, "amd64")
	s.push(s.host+"/mirrored/base:1", "amd64")
	command := Command{Options: s.Options, Registries: filepath.Join(t.TempDir(), "registries.conf")}
	use := func() error {
		var err error
		command.Pull, err = command.throughMirrors()
		return err
	}
	require.NoError(t, use(), "the pool has no such file")
	require.Error(t, Preflight(t.Context(), &command.Options))
	conf := "[[registry]]\nlocation = \"" + s.host + "/os\"\n[[registry.mirror]]\nlocation = \"" + s.host + "/mirrored\"\n"
	require.NoError(t, os.WriteFile(command.Registries, []byte(conf), 0o600))
	require.NoError(t, use())
	require.NoError(t, Preflight(t.Context(), &command.Options))
	require.NoError(t, os.WriteFile(command.Registries, []byte("[[registry]"), 0o600))
	require.ErrorContains(t, use(), "line 1")
}

func TestPreflightAsksTheRegistries(t *testing.T) {
	t.Parallel()
	s := newScene(t, "amd64")
	require.ErrorContains(t, Preflight(t.Context(), &s.Options), "os/base")
	s.push(s.host+"/os/base:1", "amd64")
	require.NoError(t, Preflight(t.Context(), &s.Options))
	assert.Equal(t, "1795262400", s.result(backend.ResultStarted))
}

// TestPreflightInThePodOfTheBuild has the instructions of the only architecture, and tells only
// what the build would fail by too.
func TestPreflightInThePodOfTheBuild(t *testing.T) {
	t.Parallel()
	s := newScene(t, "amd64")
	in := filepath.Join(s.Instructions, "amd64")
	command := &Command{Options: Options{Instructions: in, Architectures: s.Architectures, Results: s.Results}, Report: filepath.Join(in, "report")}
	said := func() *backend.Report {
		text, err := os.ReadFile(command.Report)
		require.NoError(t, err)
		report, err := backend.ReadReport(string(text))
		require.NoError(t, err)
		return report
	}
	var out strings.Builder
	assert.Equal(t, backend.ExitAdmin, command.Main(t.Context(), backend.Preflight, &out), "the base is not there")
	assert.Equal(t, mcfgv1.ReasonImageNotFound, said().Failure.Reason)
	s.push(s.host+"/os/base:1", "amd64")
	assert.Zero(t, command.Main(t.Context(), backend.Preflight, &out), out.String())
	ended, end := context.WithCancel(t.Context())
	end()
	assert.Zero(t, command.Main(ended, backend.Preflight, &out), "the build asks for itself")
	assert.Nil(t, said().Failure)
	assert.Contains(t, said().Notes[0], "preflight could not ask: ")
}

func TestAssembleOneArchitecture(t *testing.T) {
	t.Parallel()
	s := newScene(t, "amd64")
	_, err := Assemble(t.Context(), &s.Options)
	require.Error(t, err, "nothing was pushed")
	pushed := s.push(s.Image, "amd64")
	image, err := Assemble(t.Context(), &s.Options)
	require.NoError(t, err)
	assert.Equal(t, pushed, image)
	_, digest, _ := strings.Cut(pushed, "@")
	assert.Equal(t, s.Image, s.result(backend.ResultURL))
	assert.Equal(t, digest, s.result(backend.ResultDigest))
	assert.Equal(t, pushed, s.result(backend.ResultImages))
	assert.NotEqual(t, "0", s.result(backend.ResultSize))
	assert.Equal(t, "60", s.result(backend.ResultDuration))
}

func TestAssembleJoinsArchitectures(t *testing.T) {
	t.Parallel()
	s := newScene(t, "amd64", "arm64")
	first, second := s.push(s.Image+"-amd64", "amd64"), s.push(s.Image+"-arm64", "arm64")
	image, err := Assemble(t.Context(), &s.Options)
	require.NoError(t, err)
	assert.Equal(t, first+","+second, s.result(backend.ResultImages))
	resolved, err := s.Push.Resolve(t.Context(), s.Image)
	require.NoError(t, err)
	assert.Equal(t, image, resolved.Image, "the tag is that of the index")
	assert.Len(t, resolved.Platforms, 2)
	again, err := Assemble(t.Context(), &s.Options)
	require.NoError(t, err)
	assert.Equal(t, image, again)

	newest := s.push(s.Image+"-arm64.2", "arm64") // where tags are immutable
	_, err = Assemble(t.Context(), &s.Options)
	require.NoError(t, err)
	assert.Equal(t, first+","+newest, s.result(backend.ResultImages))
}

// TestForeignInstructionsAreRefused has someone who may write ConfigMaps name another image.
func TestForeignInstructionsAreRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, "amd64")
	file := filepath.Join(s.Instructions, "amd64", "instructions.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"target":"`+s.host+`/os/other:1"}`), 0o600))
	s.push(s.host+"/os/other:1", "amd64")
	_, err := Assemble(t.Context(), &s.Options)
	require.ErrorContains(t, err, "someone else wrote the ConfigMap")
}
