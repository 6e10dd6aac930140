package offline_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/manifests"
	registries "github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/osimage/baseimage"
)

// osImage is a small OS image: the links that matter, accounts, and rpm-ostree.
func osImage(t *testing.T, goarch string) v1.Image {
	t.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, header := range []tar.Header{
		{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "etc/passwd", Mode: 0o644, Size: int64(len(accounts))},
		{Name: "usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "usr/bin/rpm-ostree", Mode: 0o755, Size: int64(len(accounts))},
		{Name: "bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"},
		{Name: "root", Typeflag: tar.TypeSymlink, Linkname: "var/roothome"},
	} {
		require.NoError(t, w.WriteHeader(&header))
		if header.Size > 0 {
			_, err := io.WriteString(w, accounts)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil })
	require.NoError(t, err)
	image, err := mutate.AppendLayers(empty.Image, layer)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.Architecture, config.OS = goarch, "linux"
	image, err = mutate.ConfigFile(image, config)
	require.NoError(t, err)
	return image
}

const accounts = "root:x:0:0::/root:/bin/sh\nchrony:x:995:993::/:/sbin/nologin\n"

// multiArch is an index of OS images, with an attestation beside them.
func multiArch(t *testing.T, goarchs ...string) v1.ImageIndex {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for _, goarch := range goarchs {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: osImage(t, goarch), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: goarch}},
		})
	}
	return mutate.AppendManifests(index, mutate.IndexAddendum{
		Add: empty.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}},
	})
}

// serveImages runs a registry with base images os:amd64 and os:multi and extensions ext:1, and
// returns its name.
func serveImages(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	tag := func(text string) name.Tag {
		ref, err := name.NewTag(host + "/" + text)
		require.NoError(t, err)
		return ref
	}
	require.NoError(t, ggcr.Write(tag("os:amd64"), osImage(t, "amd64")))
	require.NoError(t, ggcr.Write(tag("os:riscv"), osImage(t, "riscv64")))
	require.NoError(t, ggcr.WriteIndex(tag("os:multi"), multiArch(t, "amd64", "arm64")))
	require.NoError(t, ggcr.WriteIndex(tag("os:none"), multiArch(t)))
	require.NoError(t, ggcr.Write(tag("ext:1"), empty.Image))
	return host
}

const chrony = `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-chrony, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  kernelArguments: [nosmt]
  config:
    ignition: {version: 3.5.0}
    passwd:
      users: [{name: core, passwordHash: "$6$secret"}]
    storage:
      files:
      - {path: /etc/chrony.conf, mode: 0640, user: {name: chrony}, contents: {source: "data:,server%20ntp"}}
      - {path: /root/.bashrc, contents: {source: "data:,secret"}}
      - {path: /bin/tool, mode: 0755, contents: {source: "data:,x"}}
`

const osConfig = `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSConfig
metadata: {name: worker}
spec:
  machineConfigPool: {name: worker}
  imageBuilder: {imageBuilderType: Job}
  renderedImagePushSecret: {name: push}
  renderedImagePushSpec: registry.example.com/os/worker:latest
  containerFile:
  - content: |
      FROM os-base-image
      RUN dnf install -y tree && dnf clean all && ostree container commit
`

const stream = `
apiVersion: machineconfiguration.openshift.io/v1
kind: OSImageStream
metadata: {name: cluster}
spec:
  defaultStream: rhel-10
  images:
  - {name: rhel-10, osImage: "HOST/os:amd64", osExtensionsImage: "HOST/ext:1"}
`

// given are objects in YAML, with HOST for the registry's name.
func given(t *testing.T, host string, texts ...string) *offline.Cluster {
	t.Helper()
	scheme, err := offline.NewScheme()
	require.NoError(t, err)
	reader := &manifests.Reader{Scheme: scheme, Stdin: strings.NewReader(strings.ReplaceAll(strings.Join(texts, "\n---\n"), "HOST", host))}
	set, err := reader.Read([]string{manifests.Stdin})
	require.NoError(t, err)
	return offline.NewCluster(set)
}

func render(t *testing.T, options offline.Options) (*offline.Result, *offline.Report, error) {
	t.Helper()
	options.Indexer, options.Fetcher = baseimage.New(baseimage.Options{}), remote.New(remote.Options{})
	result, err := offline.Render(t.Context(), options)
	if err != nil {
		return nil, nil, err
	}
	report, err := result.Report()
	require.NoError(t, err)
	return result, report, nil
}

func TestRenderReport(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	result, report, err := render(t, offline.Options{Cluster: given(t, host, chrony, osConfig, stream)})
	require.NoError(t, err)

	assert.Equal(t, "worker", report.Pool)
	assert.Equal(t, []string{"50-chrony"}, report.Sources)
	assert.Regexp(t, "^"+host+"/os@sha256:[a-f0-9]{64}$", report.Base)
	assert.Regexp(t, "^"+host+"/ext@sha256:[a-f0-9]{64}$", report.Extensions)
	assert.Equal(t, result.Description.Inputs.Keys(), report.Keys)
	require.Len(t, report.Platforms, 1)
	p := report.Platforms[0]
	assert.Equal(t, mcfgv1.Amd64, p.Architecture)
	assert.Equal(t, containerfiles.AppendAfter, p.Strategy)
	assert.Equal(t, []string{"file /etc/chrony.conf", "file /usr/bin/tool"}, p.Layer.Items)
	assert.Equal(t, []string{report.Base}, p.Images)
	state := strings.Join(p.NodeState, "\n")
	assert.Contains(t, state, "nosmt")
	assert.Contains(t, state, "user core")
	assert.Contains(t, state, "/var/roothome/.bashrc")

	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	for _, want := range []string{report.Keys.Build, report.Keys.Content, report.Base, "file /usr/bin/tool", "/var/roothome/.bashrc", "AppendAfter"} {
		assert.Contains(t, text.String(), want)
	}
	assert.NotContains(t, text.String(), "secret", "what is printed may be read by anybody")
	encoded, err := json.Marshal(report)
	require.NoError(t, err)
	assert.NotContains(t, string(encoded), "secret")
}

func TestRenderIsTheSameTwice(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	layers := func() (config, text string) {
		result, _, err := render(t, offline.Options{Cluster: given(t, host, chrony, osConfig, stream)})
		require.NoError(t, err)
		var buffer bytes.Buffer
		_, err = result.Platforms[0].Config.WriteTo(&buffer)
		require.NoError(t, err)
		return buffer.String(), result.Platforms[0].Containerfile.Text
	}
	config, text := layers()
	again, textAgain := layers()
	assert.Equal(t, config, again)
	assert.Equal(t, text, textAgain)
}

// TestRenderOverAnImageThatLayerwrightMade has a base image with configuration on top, of which
// nothing counts.
func TestRenderOverAnImageThatLayerwrightMade(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	base, err := ggcr.Head(must(name.NewTag(host + "/os:amd64")))
	require.NoError(t, err)
	once := func(image string) []byte {
		config := strings.ReplaceAll(chrony, `path: /bin/tool, mode: 0755,`, `path: /bin/tool, overwrite: false,`)
		result, _, err := render(t, offline.Options{Cluster: given(t, host, config, osConfig), Base: image})
		require.NoError(t, err)
		var layer bytes.Buffer
		_, err = result.Platforms[0].Config.WriteTo(&layer)
		require.NoError(t, err)
		return layer.Bytes()
	}
	first := once(host + "/os:amd64")
	made, err := registries.New(registries.Options{}).Append(t.Context(), registries.AppendRequest{
		Content: host + "/os@" + base.Digest.String(), Repository: host + "/made", Tags: []string{"1"},
		Layer: func(context.Context, v1.Platform, v1.Image) (registries.Opener, error) {
			return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(first)), nil }, nil
		},
	})
	require.NoError(t, err)
	again := once(made.Image)
	assert.Equal(t, first, again)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestRenderChoosesInputs(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	worker := func(image string) string {
		return strings.ReplaceAll(osConfig, "  imageBuilder:", "  baseOSImagePullSpec: HOST/"+image+"\n  baseOSExtensionsImagePullSpec: HOST/ext:1\n  imageBuilder:")
	}
	infra := strings.ReplaceAll(strings.ReplaceAll(chrony, "50-chrony", "60-infra"), "role: worker", "role: infra")
	tests := map[string]struct {
		options offline.Options
		objects []string
		check   func(t *testing.T, report *offline.Report)
	}{
		"nothing is built without a Containerfile": {
			objects: []string{chrony, stream},
			check: func(t *testing.T, report *offline.Report) {
				t.Helper()
				assert.Empty(t, report.Platforms[0].Containerfile)
				assert.Empty(t, report.Inputs.Containerfiles)
			},
		},
		"the base image of the MachineOSConfig": {
			objects: []string{chrony, worker("os:multi")},
			check: func(t *testing.T, report *offline.Report) {
				t.Helper()
				require.Len(t, report.Platforms, 2)
				assert.Equal(t, mcfgv1.Arm64, report.Platforms[1].Architecture)
				assert.NotEmpty(t, report.Extensions)
			},
		},
		"the caller's base image before all others": {
			options: offline.Options{Base: host + "/os:multi", Architectures: []mcfgv1.ContainerfileArch{mcfgv1.Arm64}},
			objects: []string{chrony, worker("os:amd64"), stream},
			check: func(t *testing.T, report *offline.Report) {
				t.Helper()
				require.Len(t, report.Platforms, 1)
				assert.Equal(t, mcfgv1.Arm64, report.Platforms[0].Architecture)
			},
		},
		"the caller's Containerfile": {
			options: offline.Options{Containerfile: &containerfiles.Source{Arch: mcfgv1.NoArch, Name: "Containerfile", Text: "FROM configs\nRUN true\n"}},
			objects: []string{chrony, osConfig, stream},
			check: func(t *testing.T, report *offline.Report) {
				t.Helper()
				assert.Equal(t, containerfiles.ConfigFirst, report.Platforms[0].Strategy)
				assert.NotEmpty(t, report.Platforms[0].Findings, "there is no check at its end")
			},
		},
		"accounts may come with the content": {
			objects: []string{strings.Replace(chrony, "name: chrony}", "name: ntp}", 1), osConfig, stream},
			check: func(t *testing.T, report *offline.Report) {
				t.Helper()
				assert.Equal(t, []string{"user ntp"}, report.Platforms[0].Layer.Expected)
				assert.Empty(t, report.Platforms[0].Layer.DiffID)
				var text bytes.Buffer
				require.NoError(t, report.WriteText(&text))
				assert.Contains(t, text.String(), "made when the content is built")
				assert.Contains(t, text.String(), "user ntp")
			},
		},
		"a custom pool joins the workers' configuration": {
			options: offline.Options{Pool: "infra"},
			objects: []string{chrony, infra, osConfig, stream},
			check: func(t *testing.T, report *offline.Report) {
				t.Helper()
				assert.Equal(t, []string{"50-chrony", "60-infra"}, report.Sources)
				assert.Empty(t, report.Platforms[0].Containerfile, "the MachineOSConfig is another pool's")
			},
		},
		"things that play no part are named": {
			objects: []string{
				chrony, stream, strings.Replace(osConfig, "- content", "- containerfileArch: S390X\n    content", 1),
				"apiVersion: v1\nkind: Secret\nmetadata: {name: push}\n",
			},
			check: func(t *testing.T, report *offline.Report) {
				t.Helper()
				unused := strings.Join(report.Unused, "\n")
				assert.Contains(t, unused, `Secret "push"`)
				assert.Contains(t, unused, "Containerfile for S390X")
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.options.Cluster = given(t, host, tt.objects...)
			_, report, err := render(t, tt.options)
			require.NoError(t, err)
			tt.check(t, report)
		})
	}
}

func TestRenderTakesARenderedMachineConfig(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	first, report, err := render(t, offline.Options{Cluster: given(t, host, chrony, stream)})
	require.NoError(t, err)
	encoded, err := json.Marshal(first.Rendered.MachineConfig)
	require.NoError(t, err)
	rendered := string(encoded)

	_, again, err := render(t, offline.Options{Cluster: given(t, host, rendered)})
	require.NoError(t, err)
	assert.Equal(t, report.Keys, again.Keys)
	assert.Equal(t, report.MachineConfig, again.MachineConfig)

	other := strings.Replace(rendered, report.MachineConfig, "rendered-worker-0123", 1)
	_, _, err = render(t, offline.Options{Cluster: given(t, host, rendered, other)})
	require.ErrorContains(t, err, "2 rendered MachineConfigs")
}

func TestRenderErrors(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	tests := map[string]struct {
		options    offline.Options
		objects    []string
		want       []string
		wantReason string
	}{
		"nothing for the pool":         {objects: []string{stream}, want: []string{`no MachineConfig for pool "worker"`, "role=worker"}},
		"no base image":                {objects: []string{chrony}, want: []string{"nothing names a base image", "--base"}},
		"a base image that is not one": {options: offline.Options{Base: "not an image"}, objects: []string{chrony}, want: []string{`"not an image"`}},
		"a base image that is gone":    {options: offline.Options{Base: host + "/os:gone"}, objects: []string{chrony}, want: []string{"os:gone", "MANIFEST_UNKNOWN"}},
		"no image for linux":           {options: offline.Options{Base: host + "/os:none"}, objects: []string{chrony}, want: []string{"no image for linux"}},
		"an architecture no one has":   {options: offline.Options{Base: host + "/os:riscv"}, objects: []string{chrony}, want: []string{`architecture "riscv64"`}},
		"an architecture it lacks": {
			options: offline.Options{Base: host + "/os:multi", Architectures: []mcfgv1.ContainerfileArch{mcfgv1.S390}},
			objects: []string{chrony}, want: []string{"no image for S390X", "AMD64"},
		},
		"a folder that is no layout": {options: offline.Options{Base: "oci:/nowhere"}, objects: []string{chrony}, want: []string{"/nowhere"}},
		"an extensions image that is gone": {
			options: offline.Options{Extensions: host + "/ext:gone"}, objects: []string{chrony, stream}, want: []string{"extensions image", "ext:gone"},
		},
		"a stream that is not offered": {
			objects: []string{chrony, stream, "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: worker}\nspec: {osImageStream: {name: rhel-11}}\n"},
			want:    []string{`pool "worker"`, "rhel-11", "rhel-10"},
		},
		"a ConfigMap that is in no file": {
			objects: []string{chrony, stream, strings.Split(osConfig, "  - content")[0] + "  - configMapRef: {name: extra}\n"},
			want:    []string{`MachineOSConfig "worker"`, `ConfigMap "extra"`, "give its file too"},
		},
		"a Containerfile that cannot be built": {
			options:    offline.Options{Containerfile: &containerfiles.Source{Arch: mcfgv1.NoArch, Name: "Containerfile", Text: "FROM configs\nRUN true\nCOPPY a b\n"}},
			objects:    []string{chrony, stream},
			want:       []string{"line 3", "COPPY"},
			wantReason: mcfgv1.ReasonInvalidContainerfile,
		},
		"an owner that the base lacks": {
			objects:    []string{strings.Replace(chrony, "name: chrony}", "name: ntp}", 1), stream},
			want:       []string{`MachineConfig "50-chrony": spec.config.storage.files`, "/etc/chrony.conf", "ntp"},
			wantReason: mcfgv1.ReasonInvalidMachineConfig,
		},
		"an extension that no one knows": {
			objects:    []string{strings.Replace(chrony, "  config:", "  extensions: [usbgard]\n  config:", 1), stream},
			want:       []string{"usbgard", "usbguard"},
			wantReason: mcfgv1.ReasonInvalidMachineConfig,
		},
		"a MachineConfig that cannot be read": {objects: []string{strings.Replace(chrony, "3.5.0", "9.9.9", 1), stream}, want: []string{"50-chrony", "9.9.9"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.options.Cluster = given(t, host, tt.objects...)
			_, _, err := render(t, tt.options)
			require.Error(t, err)
			for _, want := range tt.want {
				assert.Contains(t, err.Error(), want)
			}
			assert.Equal(t, tt.wantReason, fault.Reason(err))
		})
	}
}

func TestRenderReportsASharedProblemOnce(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	_, _, err := render(t, offline.Options{
		Base:    host + "/os:multi",
		Cluster: given(t, host, strings.Replace(chrony, "name: chrony}", "name: ntp}", 1)),
	})
	require.Error(t, err)
	assert.Equal(t, 1, strings.Count(err.Error(), "/etc/chrony.conf"), err)
}

func TestRenderReadsImagesFromFolders(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	folder := filepath.Join(t.TempDir(), "with:colon")
	path, err := layout.Write(folder, empty.Index)
	require.NoError(t, err)
	tagged := func(tag string) layout.Option {
		return layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})
	}
	require.NoError(t, path.AppendImage(osImage(t, "amd64"), tagged("amd64")))
	require.NoError(t, path.AppendIndex(multiArch(t, "amd64", "arm64"), tagged("multi")))

	_, report, err := render(t, offline.Options{Cluster: given(t, host, chrony), Base: "oci:" + folder + ":multi"})
	require.NoError(t, err)
	assert.Len(t, report.Platforms, 2)
	_, report, err = render(t, offline.Options{Cluster: given(t, host, chrony), Base: "oci:" + folder + ":amd64"})
	require.NoError(t, err)
	assert.Len(t, report.Platforms, 1)
	_, _, err = render(t, offline.Options{Cluster: given(t, host, chrony), Base: "oci:" + folder})
	require.ErrorContains(t, err, "2 images")
	_, _, err = render(t, offline.Options{Cluster: given(t, host, chrony), Base: "oci:" + folder + ":none"})
	require.ErrorContains(t, err, "0 images")
}

func TestRenderFetchesFilesByURL(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	const hash = "sha256-2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"
	withURL := strings.Replace(chrony, `{source: "data:,server%20ntp"}`, `{source: "http://files.example/chrony", verification: {hash: `+hash+`}}`, 1)
	options := offline.Options{Cluster: given(t, host, withURL, stream), Indexer: baseimage.New(baseimage.Options{})}

	options.Fetcher = fetcher(func(sources []remote.Source) ([][]byte, error) {
		require.Len(t, sources, 1)
		assert.Equal(t, "http://files.example/chrony", sources[0].URL)
		return [][]byte{[]byte("hello")}, nil
	})
	result, err := offline.Render(t.Context(), options)
	require.NoError(t, err)
	var found bool
	for _, entry := range result.Platforms[0].Config.Entries() {
		if entry.Path == "etc/chrony.conf" {
			found = true
			content, err := entry.Content()
			require.NoError(t, err)
			assert.Equal(t, "hello", string(content))
			assert.Equal(t, 995, entry.UID)
		}
	}
	assert.True(t, found)

	options.Fetcher = fetcher(func([]remote.Source) ([][]byte, error) { return [][]byte{[]byte("other")}, nil })
	_, err = offline.Render(t.Context(), options)
	require.ErrorContains(t, err, "/etc/chrony.conf", "another content than the hash says is refused")
	unreachable := errors.New("no route to host")
	options.Fetcher = fetcher(func([]remote.Source) ([][]byte, error) { return nil, unreachable })
	_, err = offline.Render(t.Context(), options)
	require.ErrorIs(t, err, unreachable)
}

type fetcher func(sources []remote.Source) ([][]byte, error)

func (f fetcher) FetchAll(_ context.Context, sources []remote.Source) ([][]byte, error) {
	return f(sources)
}

func TestWriteAndCompare(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	folder := filepath.Join(t.TempDir(), "image")
	previous, err := offline.Previous(folder)
	require.NoError(t, err)
	require.Nil(t, previous)

	result, report, err := render(t, offline.Options{Cluster: given(t, host, chrony, osConfig, stream)})
	require.NoError(t, err)
	require.NoError(t, result.Write(folder, report))
	for _, file := range []string{"image.json", "machineconfig.yaml", "amd64/Containerfile", "amd64/config.tar", "amd64/node-state.json"} {
		info, err := os.Stat(filepath.Join(folder, file))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode(), file)
	}
	state, err := os.ReadFile(filepath.Join(folder, "amd64/node-state.json"))
	require.NoError(t, err)
	assert.Contains(t, string(state), "$6$secret", "the node agent needs it")

	compare := func(objects ...string) string {
		previous, err := offline.Previous(folder)
		require.NoError(t, err)
		result, report, err := render(t, offline.Options{Cluster: given(t, host, objects...)})
		require.NoError(t, err)
		report.Compare(previous)
		require.NoError(t, result.Write(folder, report))
		var text bytes.Buffer
		require.NoError(t, report.WriteText(&text))
		return text.String()
	}
	assert.Contains(t, compare(chrony, osConfig, stream), "The same image as the last time")
	assert.Contains(t, compare(strings.Replace(chrony, "nosmt", "quiet", 1), osConfig, stream), "The same image as the last time",
		"kernel arguments need no image")
	text := compare(strings.Replace(chrony, "server%20ntp", "server%20b", 1), stream)
	assert.Contains(t, text, "file /etc/chrony.conf changed")
	assert.Contains(t, text, "Containerfile removed")
	assert.NoFileExists(t, filepath.Join(folder, "amd64/Containerfile"), "there is nothing to build any more")

	require.NoError(t, os.WriteFile(filepath.Join(folder, "image.json"), []byte("{"), 0o600))
	_, err = offline.Previous(folder)
	require.ErrorContains(t, err, "image.json")
}
