package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/hack/release/images"
	"github.com/layerwright/layerwright/hack/release/releasetest"
	"github.com/layerwright/layerwright/hack/release/sums"
)

// newTestRelease is a release of small programs.
func newTestRelease(t *testing.T) *release {
	t.Helper()
	dir := t.TempDir()
	var clientPrograms []string
	for _, platform := range clientPlatforms {
		clientPrograms = append(clientPrograms, filepath.Join(platform, "client", "layerwright"))
	}
	releasetest.WritePrograms(t, filepath.Join(dir, "programs"), clientPrograms...)
	return &release{
		Release:  images.Release{Version: "v0.1.0", Revision: strings.Repeat("a", 40), Created: time.Unix(1_700_000_000, 0)},
		programs: filepath.Join(dir, "programs"), dist: filepath.Join(dir, "dist"), root: filepath.Join("..", ".."),
		platforms: imagePlatforms, clients: clientPlatforms,
		packages: map[string]string{"ca-certificates": "20230311+deb12u1", "libc6-dev": "2.36-9", "libc6-dev-arm64-cross": "2.36-8cross1"},
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	r, again := newTestRelease(t), newTestRelease(t) // in another folder, with other times of files
	for _, one := range []*release{r, again} {
		require.NoError(t, one.write(t.Context(), io.Discard))
	}
	t.Run("two runs give the same", func(t *testing.T) {
		t.Parallel()
		list, err := os.ReadFile(filepath.Join(r.dist, sums.File))
		require.NoError(t, err)
		second, err := os.ReadFile(filepath.Join(again.dist, sums.File))
		require.NoError(t, err)
		assert.Equal(t, string(list), string(second))
	})
	files, err := filepath.Glob(filepath.Join(r.dist, "*"))
	require.NoError(t, err)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	assert.Equal(t, []string{
		"SHA256SUMS", "install-olm-first.yaml", "install-openshift-machine-api.yaml", "install-openshift.yaml", "install.yaml",
		"krew.yaml", "layerwright-0.1.0.tgz", "layerwright-v0.1.0-bundle.tar",
		"layerwright-v0.1.0-darwin-amd64.tar.gz", "layerwright-v0.1.0-darwin-amd64.tar.gz.spdx.json",
		"layerwright-v0.1.0-darwin-arm64.tar.gz", "layerwright-v0.1.0-darwin-arm64.tar.gz.spdx.json",
		"layerwright-v0.1.0-linux-amd64.tar.gz", "layerwright-v0.1.0-linux-amd64.tar.gz.spdx.json",
		"layerwright-v0.1.0-linux-arm64.tar.gz", "layerwright-v0.1.0-linux-arm64.tar.gz.spdx.json",
		"layerwright-v0.1.0-windows-amd64.zip", "layerwright-v0.1.0-windows-amd64.zip.spdx.json",
		"layerwright-v0.1.0-windows-arm64.zip", "layerwright-v0.1.0-windows-arm64.zip.spdx.json",
		"release",
	}, files)
	_, err = sums.Check(filepath.Join(r.dist, releasedFolder), nil)
	require.NoError(t, err)

	t.Run("images are valid, and labelled", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"layerwright", "layerwright-agent", "layerwright-builder"} {
			index, err := layout.ImageIndexFromPath(filepath.Join(r.dist, releasedFolder, "images", name))
			require.NoError(t, err)
			require.NoError(t, validate.Index(index))
			list, err := index.IndexManifest()
			require.NoError(t, err)
			assert.Equal(t, "v0.1.0", list.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
			assert.Len(t, list.Manifests, 3, "the image, its SBOM and its provenance")
			image, err := index.ImageIndex(list.Manifests[0].Digest)
			require.NoError(t, err)
			described, err := image.IndexManifest()
			require.NoError(t, err)
			require.Len(t, described.Manifests, 2)
			assert.Equal(t, "linux/amd64", described.Manifests[0].Platform.String())
			assert.Equal(t, "linux/arm64", described.Manifests[1].Platform.String())
			assert.Equal(t, name, described.Annotations["org.opencontainers.image.title"])
			assert.Equal(t, "2023-11-14T22:13:20Z", described.Annotations["org.opencontainers.image.created"])
			assert.Equal(t, r.Revision, described.Annotations["org.opencontainers.image.revision"])
		}
	})
	t.Run("manifests name images by digest", func(t *testing.T) {
		t.Parallel()
		install, err := os.ReadFile(filepath.Join(r.dist, releasedFolder, "manifests", "install.yaml"))
		require.NoError(t, err)
		for _, name := range []string{images.Controller, images.Agent, images.Builder} {
			assert.Contains(t, string(install), name+"@sha256:")
		}
	})
	t.Run("archives have program, completions and licenses", func(t *testing.T) {
		t.Parallel()
		unix := []string{"kubectl-layerwright", "layerwright", "kubectl-machineconfig", "completions/kubectl_complete-layerwright", "completions/layerwright.bash", "completions/layerwright.zsh", "completions/layerwright.fish", "LICENSE", "THIRD-PARTY-LICENSES"}
		assert.Equal(t, unix, tarNames(t, filepath.Join(r.dist, "layerwright-v0.1.0-darwin-arm64.tar.gz")))
		archive, err := zip.OpenReader(filepath.Join(r.dist, "layerwright-v0.1.0-windows-arm64.zip"))
		require.NoError(t, err)
		defer func() { _ = archive.Close() }()
		require.Len(t, archive.File, len(unix)-len(clientLinks))
		assert.Equal(t, "kubectl-layerwright.exe", archive.File[0].Name)
	})
	t.Run("krew gets the checksums of the archives", func(t *testing.T) {
		t.Parallel()
		content, err := os.ReadFile(filepath.Join(r.dist, "krew.yaml"))
		require.NoError(t, err)
		var plugin struct {
			Spec struct{ Platforms []krewPlatform }
		}
		require.NoError(t, yaml.Unmarshal(content, &plugin))
		list, err := os.ReadFile(filepath.Join(r.dist, sums.File))
		require.NoError(t, err)
		require.Len(t, plugin.Spec.Platforms, len(clientPlatforms))
		for _, platform := range plugin.Spec.Platforms {
			assert.Contains(t, string(list), platform.SHA256+"  "+platform.URI[strings.LastIndex(platform.URI, "/")+1:]+"\n")
		}
	})
	t.Run("the bundle has the release and a program that loads it", func(t *testing.T) {
		t.Parallel()
		names := tarNames(t, filepath.Join(r.dist, "layerwright-v0.1.0-bundle.tar"))
		const root = "layerwright-v0.1.0-bundle/"
		for _, name := range []string{"load", "bin/load-linux-amd64", "bin/load-linux-arm64", "release/SHA256SUMS", "release/manifests/install.yaml", "release/images/layerwright/index.json"} {
			assert.Contains(t, names, root+name)
		}
	})
}

func TestPublish(t *testing.T) {
	t.Parallel()
	r := newTestRelease(t)
	require.NoError(t, os.MkdirAll(r.dist, 0o755))
	require.NoError(t, r.writeReleased(t.Context()))
	server := httptest.NewServer(releasetest.NewRegistry())
	t.Cleanup(server.Close)
	to := strings.TrimPrefix(server.URL, "http://") + "/lw"
	var stdout bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"publish", "--dist", r.dist, "--to", to}, &stdout, io.Discard))
	install := filepath.Join(r.dist, "published", "install.yaml")
	assert.Contains(t, stdout.String(), "kubectl apply --server-side -f "+install)
	manifest, err := os.ReadFile(install)
	require.NoError(t, err)
	assert.NotContains(t, string(manifest), images.Registry)
	chart, err := os.Open(filepath.Join(r.dist, "published", "layerwright-0.1.0.tgz"))
	require.NoError(t, err)
	defer func() { _ = chart.Close() }()
	uncompressed, err := gzip.NewReader(chart)
	require.NoError(t, err)
	files, err := io.ReadAll(uncompressed)
	require.NoError(t, err)
	assert.NotContains(t, string(files), images.Registry)
	assert.Contains(t, string(files), to+"/layerwright@sha256:")
	for line := range strings.Lines(stdout.String()) {
		pinned := strings.TrimSpace(line)
		if !strings.HasPrefix(pinned, to) {
			break
		}
		assert.Contains(t, string(manifest), pinned)
		ref, err := name.NewDigest(pinned)
		require.NoError(t, err)
		_, err = remote.Index(ref)
		require.NoError(t, err)
	}
	for args, wantErr := range map[string]string{
		"publish --dist " + r.dist:                      "name the registry",
		"publish --to " + to + " --dist " + t.TempDir(): "verifying the release, which `make release` makes",
		"deploy": `unknown command "deploy"`,
		"":       "the commands are check, build and publish",
	} {
		require.ErrorContains(t, run(t.Context(), strings.Fields(args), io.Discard, io.Discard), wantErr)
	}
}

func tarNames(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	var content io.Reader = bytes.NewReader(file)
	if strings.HasSuffix(path, ".gz") {
		content, err = gzip.NewReader(content)
		require.NoError(t, err)
	}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return names
		}
		require.NoError(t, err)
		names = append(names, header.Name)
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		options buildOptions
		wantErr string
	}{
		"no version":       {buildOptions{revision: "HEAD"}, "make release VERSION=v0.1.0"},
		"a strange one":    {buildOptions{version: "v1", revision: "HEAD"}, `version "v1"`},
		"a changed tree":   {buildOptions{version: "v0.1.0", revision: "abc-dirty"}, "commit them first"},
		"another platform": {buildOptions{version: "v0.1.0", revision: "HEAD", platforms: "windows-amd64"}, `platform "windows-amd64": there are images for linux-amd64 and linux-arm64`},
		"no such commit":   {buildOptions{version: "v0.1.0", revision: "nothing"}, `when commit "nothing" was made`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dist := filepath.Join(t.TempDir(), "dist")
			require.ErrorContains(t, build(t.Context(), dist, tt.options, io.Discard), tt.wantErr)
			_, err := os.Stat(dist)
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
}

func TestModulesWithoutALicenseAreRefused(t *testing.T) {
	t.Parallel()
	with, without := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(with, "LICENSE.md"), []byte("Do what you like."), 0o600))
	got, err := licensesOf(map[string]string{"a.test/one v1": with, "a.test/two v1": with})
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(got), "Do what you like."), "each text is there once")
	assert.Contains(t, string(got), "a.test/one v1\na.test/two v1\n")
	_, err = licensesOf(map[string]string{"a.test/bad v1": without})
	require.ErrorContains(t, err, "a.test/bad v1 has no license")
}

// TestProgramsOfTwoCheckouts compiles one commit in two places. One has a tag and a file that is
// not committed.
func TestProgramsOfTwoCheckouts(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	run := func(dir string, argv ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", argv, out)
	}
	var programs [][]byte
	for i, name := range []string{"one", filepath.Join("further", "down", "two")} {
		clone := filepath.Join(t.TempDir(), name)
		run(root, "git", "clone", "--quiet", "--shared", "--no-tags", ".", clone)
		// Of what is not committed, only the Makefile is part of this test.
		makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(clone, "Makefile"), makefile, 0o600))
		if i > 0 {
			run(clone, "git", "tag", "v0.0.0-test")
			require.NoError(t, os.WriteFile(filepath.Join(clone, "notes.txt"), nil, 0o600))
		}
		run(clone, "make", "binary", "PKG=./hack/release/releasetest/program", "OUT=program", "VERSION=v0.1.0", "REVISION=abc")
		program, err := os.ReadFile(filepath.Join(clone, "program"))
		require.NoError(t, err)
		programs = append(programs, program)
	}
	require.True(t, bytes.Equal(programs[0], programs[1]), "programs of the same commit differ")
}

// TestClientHasNoController compiles what administrators get, and looks at what it links.
func TestClientHasNoController(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export", "-tags=client", "../../cmd/layerwright")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	linked := strings.Fields(string(out))
	require.Contains(t, linked, "github.com/layerwright/layerwright/cmd/layerwright/offline")
	for _, heavy := range []string{"github.com/layerwright/layerwright/rollout", "github.com/layerwright/layerwright/pipelines", "github.com/vmware/govmomi/vim25"} {
		assert.False(t, slices.Contains(linked, heavy), heavy)
	}
}
