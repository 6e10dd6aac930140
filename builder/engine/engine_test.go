//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/folders"
	"github.com/layerwright/layerwright/builder/engine/report"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
	"github.com/layerwright/layerwright/internal/registry/wire"
)

// loop is a store in which a RUN line has made a layer lie below itself.
type loop struct{ storage.Store }

func (loop) Layer(id string) (*storage.Layer, error) {
	return &storage.Layer{ID: id, Parent: map[string]string{"top": "below", "below": "top"}[id]}, nil
}

func TestLayersInACircleEnd(t *testing.T) {
	t.Parallel()
	_, err := chain(loop{}, &storage.Image{ID: "image", TopLayer: "top"})
	require.EqualError(t, err, "reading the layers of image image: layer top lies below itself")
}

func TestLoginsAreForTheirRepositories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := `{"auths":{"quay.example":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("a:host")) + `"},` +
		`"quay.example/team":{"username":"b","password":"team"},"*.mirror.example":{"username":"c","password":"glob"},` +
		`"docker.io":{"username":"d","password":"hub"}}}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".dockerconfigjson"), []byte(text), 0o600))
	store, err := dockerconfig.ReadFolder(dir)
	require.NoError(t, err)
	var repositories []reference.Named
	for _, name := range []string{"quay.example/os/base", "quay.example/team/tool", "eu.mirror.example/os", "fedora", "elsewhere.example/x"} {
		named, err := reference.ParseNormalizedNamed(name)
		require.NoError(t, err)
		repositories = append(repositories, named)
	}
	file, err := authFile(store, repositories)
	require.NoError(t, err)
	var got struct {
		Auths map[string]struct{ Auth string }
	}
	require.NoError(t, json.Unmarshal(file, &got))
	logins := map[string]string{}
	for repository, login := range got.Auths {
		plain, err := base64.StdEncoding.DecodeString(login.Auth)
		require.NoError(t, err)
		logins[repository] = string(plain)
	}
	assert.Equal(t, map[string]string{
		"quay.example/os/base": "a:host", "quay.example/team/tool": "b:team", "eu.mirror.example/os": "c:glob", "docker.io/library/fedora": "d:hub",
	}, logins)
}

func TestWithoutASecretThereIsNoLogin(t *testing.T) {
	t.Parallel()
	store, err := dockerconfig.ReadFolder(filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	named, err := reference.ParseNormalizedNamed("quay.example/os/base")
	require.NoError(t, err)
	file, err := authFile(store, []reference.Named{named})
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{}}`, string(file))

	_, err = dockerconfig.ReadFolder(t.TempDir())
	require.Error(t, err, "a secret without credentials is a mistake")
	assert.Equal(t, fault.Waiting, report.FailureOf(err).Class)
}

func TestFilesInMemoryHaveNoName(t *testing.T) {
	t.Parallel()
	u, err := newUnnamed("x", []byte("content"))
	require.NoError(t, err)
	for range 2 {
		text, err := os.ReadFile(u.path())
		require.NoError(t, err)
		assert.Equal(t, "content", string(text))
	}
	link, err := os.Readlink(u.path())
	require.NoError(t, err)
	assert.Equal(t, "/memfd:x (deleted)", link)
	path := u.path()
	u.close()
	link, _ = os.Readlink(path) // another test may have a file of that number by now
	assert.NotContains(t, link, "memfd:x")
}

func TestExitLinesOfBuildahAreRemoved(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ lines, want []string }{
		"nothing":               {nil, nil},
		"both lines":            {[]string{"a", "subprocess exited with status 1", "subprocess exited with status 1"}, []string{"a"}},
		"behind a line":         {[]string{"a", "bsubprocess exited with status 1", "subprocess exited with status 1"}, []string{"a", "b"}},
		"a signal":              {[]string{"subprocess exited on killed", "subprocess exited with status 1"}, []string{}},
		"what the command says": {[]string{"subprocess exited with status 1", "a"}, []string{"subprocess exited with status 1", "a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, withoutBuildah(tt.lines))
		})
	}
}

func TestPlainHTTPIsTheControllers(t *testing.T) {
	t.Parallel()
	r := &run{Options: Options{Paths: folders.Paths{Work: t.TempDir(), Fetched: t.TempDir(), Registries: folders.Nowhere}}, step: backend.Fetch}
	r.instructions = &backend.Instructions{Architecture: mcfgv1.ArchitectureAMD64, PlainHTTP: []string{"10.1.2.3", "registry.example:5000"}}
	system, err := r.newSystem()
	require.NoError(t, err)
	t.Cleanup(system.close)
	for host, want := range map[string]bool{
		"127.0.0.1:5000": true, "localhost:5000": true, "10.1.2.3:5000": true, "registry.example:5000": true,
		"10.1.2.4:5000": false, "192.168.0.1": false, "quay.io": false, "registry.example:5001": false,
	} {
		image, err := reference.ParseNormalizedNamed(host + "/os")
		require.NoError(t, err)
		about, err := system.about(t.Context(), image)
		require.NoError(t, err)
		assert.Equal(t, want, about.DockerInsecureSkipTLSVerify == types.OptionalBoolTrue, host)
	}
}

func TestBuildsFollowNoRegistryIntoNetworks(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		registry, asked string
		want            string
	}{
		"the registry itself":                 {"10.1.2.3:5000", "10.1.2.3:5000", ""},
		"a public host of a public registry":  {"203.0.113.1", "203.0.113.2", ""},
		"a private host of a private one":     {"10.1.2.3:5000", "10.1.2.4", ""},
		"a private host of a public registry": {"203.0.113.1", "10.1.2.4:8080", "a private address"},
		"this machine":                        {"203.0.113.1", "127.0.0.1:10250", "a private address"},
		"where clouds keep credentials":       {"10.1.2.3:5000", "169.254.169.254", "clouds reserve for the machine itself"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image, err := reference.ParseNormalizedNamed(tt.registry + "/os")
			require.NoError(t, err)
			_, err = guarded(t.Context(), &wire.Pointers{}, []reference.Named{image})(&url.URL{Scheme: "https", Host: tt.asked, Path: "/v2/"})
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestARegistryMaySendNoMoreThanItSaid(t *testing.T) {
	t.Parallel()
	r := &run{Options: Options{Patience: time.Hour, Clock: clock.RealClock{}}, output: report.NewOutput(io.Discard, backend.Fetch, clock.RealClock{})}
	transfer, err := r.newTransfer(&signature.Policy{Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}})
	require.NoError(t, err)
	t.Cleanup(transfer.close)
	for _, tt := range []struct {
		size   int64
		offset uint64
		want   error
	}{{100, 100, nil}, {-1, 1000, nil}, {100, 101, errTooLong}} {
		ended, cancel := context.WithCancelCause(t.Context())
		events := make(chan types.ProgressProperties, 1)
		events <- types.ProgressProperties{Event: types.ProgressEventRead, Artifact: types.BlobInfo{Size: tt.size}, Offset: tt.offset}
		close(events)
		transfer.watch(imageCopy{what: "pulling x"}, events, cancel)
		require.ErrorIs(t, context.Cause(ended), tt.want)
		cancel(nil)
	}
}

func TestCauses(t *testing.T) {
	t.Parallel()
	missing := errors.New(`copier: stat: "/agent": no such file or directory`)
	looked := fmt.Errorf("checking on sources under %q: %w", "/var/lib/layerwright/storage/overlay/12ed/merged", missing)
	bound := errors.New(`resolving mountpoints for container "f402": sanitizing bind subdirectory "/var/lib/layerwright/storage/overlay/fdf2/merged/usr/packages": ` +
		`opening directory "usr/packages" under "/var/lib/layerwright/storage/overlay/fdf2/merged": no such file or directory: no such file or directory`)
	for said, err := range map[string]error{
		`"usr/packages": no such file or directory`: fmt.Errorf(`building at STEP "RUN --mount true": %w`, bound),
		`"/agent": no such file or directory`:       fmt.Errorf(`building at STEP "COPY /agent /usr/bin": %w`, looked),
		"no such stage":                             fmt.Errorf(`building at STEP "FROM a": %w`, errors.New("no such stage")),
		"it is full":                                errors.New("it is full"),
	} {
		assert.Equal(t, said, cause(err).Error())
	}
}
