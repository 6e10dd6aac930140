//go:build e2e

package engine

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/builder/backend"
)

// files are those of an image, or of a tar, by path without the leading slash.
func files(t *testing.T, content io.ReadCloser) map[string]string {
	t.Helper()
	defer func() { assert.NoError(t, content.Close()) }()
	found := map[string]string{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		found[strings.TrimPrefix(strings.TrimPrefix(header.Name, "./"), "/")] = string(text)
	}
}

// added are the files of the layers that an image has and the tiny one has not.
func added(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	base, err := tiny.Layers()
	require.NoError(t, err)
	layers, err := image.Layers()
	require.NoError(t, err)
	require.Greater(t, len(layers), len(base))
	all := map[string]string{}
	for i, layer := range layers {
		if i < len(base) {
			want, err := base[i].Digest()
			require.NoError(t, err)
			got, err := layer.Digest()
			require.NoError(t, err)
			require.Equal(t, want, got, "the base is left as it is")
			continue
		}
		content, err := layer.Uncompressed()
		require.NoError(t, err)
		for path, text := range files(t, content) {
			all[path] = text
		}
	}
	return all
}

func TestBuilds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		containerfile string
		context       map[string]string
		want          map[string]string // files of the image
		gone          []string
	}{
		"a command": {
			containerfile: "FROM os-base-image\nRUN echo hello > /etc/hello\n",
			want:          map[string]string{"etc/hello": "hello\n"},
		},
		"heredocs": {
			containerfile: "FROM os-base-image\nRUN <<EOF\nset -e\necho one > /etc/one\necho two > /etc/two\nEOF\nCOPY <<END /etc/three\nthree\nEND\n",
			want:          map[string]string{"etc/one": "one\n", "etc/two": "two\n", "etc/three": "three\n"},
		},
		"files of the context": {
			containerfile: "FROM os-base-image\nCOPY motd /etc/motd\nADD motd /usr/share/motd\n",
			context:       map[string]string{"motd": "welcome\n"},
			want:          map[string]string{"etc/motd": "welcome\n", "usr/share/motd": "welcome\n"},
		},
		"stages": {
			containerfile: `FROM os-base-image AS tools
RUN mkdir -p /out && echo built > /out/agent
FROM os-base-image AS unused
RUN exit 1
FROM os-base-image
COPY --from=tools /out/agent /usr/bin/agent
`,
			want: map[string]string{"usr/bin/agent": "built\n"},
			gone: []string{"out/agent"},
		},
		"mounts": {
			containerfile: `FROM os-base-image AS tools
RUN mkdir -p /out && echo built > /out/agent
FROM os-base-image
RUN --mount=type=bind,from=tools,source=/out,target=/mnt-tools cp /mnt-tools/agent /etc/agent
RUN --mount=type=tmpfs,target=/scratch echo gone > /scratch/file
`,
			want: map[string]string{"etc/agent": "built\n"},
			gone: []string{"mnt-tools/agent", "scratch/file"},
		},
		"variables and a user": {
			containerfile: "FROM os-base-image\nARG GREETING=hi\nENV PLACE=/etc/greeting\nRUN echo $GREETING $TARGETARCH > $PLACE\nUSER 1000\nRUN id -u > /tmp/id\nUSER 0\nRUN cp /tmp/id /etc/id\n",
			want:          map[string]string{"etc/greeting": "hi\n", "etc/id": "1000\n"},
		},
		"without FROM": {
			containerfile: "RUN echo hello > /etc/hello\nLABEL quay.expires-after=24h\n",
			want:          map[string]string{"etc/hello": "hello\n"},
		},
		"from the image with the configuration": {
			containerfile: "FROM configs\nRUN echo hello > /etc/hello\n",
			want:          map[string]string{"etc/hello": "hello\n"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			p := newPod(t, h, tt.containerfile, tt.context)
			image := h.get(t, p.buildAndPush(t))
			content := files(t, mutate.Extract(image))
			for path, want := range tt.want {
				assert.Equal(t, want, content[path], path)
			}
			for _, path := range tt.gone {
				assert.NotContains(t, content, path)
			}
			config, err := image.ConfigFile()
			require.NoError(t, err)
			assert.Equal(t, "worker", config.Config.Labels["pool"])
			assert.Equal(t, "amd64", config.Architecture)
			assert.Equal(t, int64(1700000000), config.Created.Unix())
			assert.NotContains(t, config.Config.Labels, "io.buildah.version", "another builder of the same content makes the same image")
			manifest, err := image.Manifest()
			require.NoError(t, err)
			assert.Equal(t, types.OCIManifestSchema1, manifest.MediaType)
		})
	}
}

// TestNamesWithTagAndDigest has names as Renovate writes them, and instructions in their old form,
// which are what Containerfiles of bootable images have.
func TestNamesWithTagAndDigest(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	repository, digest, _ := strings.Cut(h.put(t, "os/tools", packages), "@")
	tools := repository + ":not-there@" + digest
	p := newPod(t, h, "ARG REPOSITORY="+repository+"\nARG DIGEST="+digest+"\nFROM ${REPOSITORY}:not-there@${DIGEST} AS tools\n"+
		"FROM configs\nLABEL containers.bootc 1\nENV LANG C.UTF-8\nSTOPSIGNAL SIGRTMIN+3\n"+
		"COPY --from=tools /usr/share/rpm-ostree /usr/share/a\nCOPY --from="+tools+" /usr/share/rpm-ostree /usr/share/b\n"+
		"RUN --mount=type=bind,from="+tools+",target=/tools ls /tools/usr/share > /etc/list && echo $LANG > /etc/lang\n", nil)
	image := h.get(t, p.buildAndPush(t))
	content := files(t, mutate.Extract(image))
	assert.Contains(t, content["etc/list"], "rpm-ostree")
	assert.Equal(t, "C.UTF-8\n", content["etc/lang"])
	assert.Contains(t, slices.Collect(maps.Keys(content)), "usr/share/a/extensions/repodata/repomd.xml")
	assert.Contains(t, slices.Collect(maps.Keys(content)), "usr/share/b/extensions/repodata/repomd.xml")
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "1", config.Config.Labels["containers.bootc"])
	assert.Equal(t, "SIGRTMIN+3", config.Config.StopSignal)
}

func TestPackagesComeFromTheExtensionsImage(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	extensions := h.put(t, "os/extensions", packages)
	p := newPod(t, h, "FROM os-base-image\nRUN --mount=type=bind,from="+extensions+",target=/packages ls /packages/usr/share > /etc/list\n", nil)
	content := files(t, mutate.Extract(h.get(t, p.buildAndPush(t))))
	assert.Contains(t, content["etc/list"], "rpm-ostree")
}

func TestTheSameInputsGiveTheSameDigest(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	const containerfile = "FROM os-base-image\nCOPY motd /etc/motd\nRUN mkdir -p /etc/d && echo hello > /etc/d/hello && touch /etc/d/empty\n"
	context := map[string]string{"motd": "welcome\n"}
	first := newPod(t, h, containerfile, context).buildAndPush(t)
	second := newPod(t, h, containerfile, context).buildAndPush(t)
	assert.Equal(t, first, second)

	other := newPod(t, h, containerfile, map[string]string{"motd": "good bye\n"}).buildAndPush(t)
	assert.NotEqual(t, first, other)
}

func TestSecondAttemptContinuesTheFirst(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN cat /proc/sys/kernel/random/uuid > /etc/once\nCOPY flag /etc/flag\nRUN test \"$(cat /etc/flag)\" = good\n", map[string]string{"flag": "bad"})
	p.succeed(t, backend.Fetch)
	require.NotNil(t, p.run(t, backend.Build).report.Failure)

	p.write(t, "context/flag", "good")
	second := p.succeed(t, backend.Build)
	assert.Contains(t, second.output, "--> Using cache")
	third := p.succeed(t, backend.Build)
	assert.Equal(t, 4, strings.Count(third.output, "--> Using cache"), "all of it:\n%s", third.output)
}

func TestLayersAreCompressedLikeTheBase(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		base v1.Image
		want types.MediaType
	}{
		"gzip":     {base: tiny, want: types.OCILayer},
		"zstd":     {base: repacked(t, tiny, compression.ZStd, types.OCILayerZStd), want: types.OCILayerZStd},
		"Docker's": {base: repacked(t, tiny, compression.GZip, types.DockerLayer), want: types.OCILayer},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			p := newPod(t, h, "FROM os-base-image\nRUN echo hello > /etc/hello\n", nil)
			p.base(t, tt.base)
			image := h.get(t, p.buildAndPush(t))
			manifest, err := image.Manifest()
			require.NoError(t, err)
			assert.Equal(t, types.OCIManifestSchema1, manifest.MediaType, "whatever the base is, the result is OCI")
			was, err := tt.base.Manifest()
			require.NoError(t, err)
			for i, layer := range was.Layers {
				assert.Equal(t, layer.Digest, manifest.Layers[i].Digest, "layers of the base are not compressed anew")
			}
			for _, layer := range manifest.Layers[len(was.Layers):] {
				assert.Equal(t, tt.want, layer.MediaType)
			}
		})
	}
}

func TestInputsAreForRunLinesOnly(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, `FROM os-base-image
RUN cat /etc/pki/entitlement/key.pem | wc -c > /etc/was && ls /etc/yum.repos.d /etc/pki/rpm-gpg /etc/layerwright/trust >> /etc/was
RUN echo mine > /etc/yum.repos.d/mine.repo && echo more >> /etc/pki/entitlement/key.pem && echo file > /etc/pki/file
`, nil)
	const secret = "entitled-to-everything"
	p.write(t, "inputs/"+backend.InputEntitlement+"/key.pem", secret)
	p.write(t, "inputs/"+backend.InputYumRepos+"/our.repo", "[our]\n")
	p.write(t, "inputs/"+backend.InputRPMKeys+"/RPM-GPG-KEY", "key\n")
	p.write(t, "trust/ca.pem", string(authority(t)))
	image := h.get(t, p.buildAndPush(t))
	content := added(t, image)

	assert.Equal(t, "22\n/etc/layerwright/trust:\nca.pem\n\n/etc/pki/rpm-gpg:\nRPM-GPG-KEY\n\n/etc/yum.repos.d:\nour.repo\n", content["etc/was"])
	assert.Equal(t, "file\n", content["etc/pki/file"], "what is beside an input is kept")
	for path, text := range content {
		assert.NotContains(t, text, secret, path)
		for _, place := range []string{"etc/pki/entitlement", "etc/yum.repos.d", "etc/pki/rpm-gpg", "etc/layerwright"} {
			assert.NotContains(t, path, place, "not even an empty folder is left")
		}
	}
	assert.Empty(t, p.grep(t, secret), "the store has none of it")
	config, err := image.RawConfigFile()
	require.NoError(t, err)
	assert.NotContains(t, string(config), secret)
}

func TestProxiesAreForRunLinesOnly(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN env\n", nil)
	p.succeed(t, backend.Fetch)
	cmd := p.command(t, backend.Build)
	cmd.Env = append(cmd.Env, "HTTPS_PROXY=http://proxy.example:3128", "TOKEN=of-the-container")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "HTTPS_PROXY=http://proxy.example:3128")
	assert.NotContains(t, string(out), "of-the-container", "nothing else of the container's environment is passed on")
	assert.NotContains(t, string(out), "LAYERWRIGHT_WORKER", "nor ours")
	p.succeed(t, backend.Export)
	p.login(t, pusher)
	image := h.get(t, p.succeed(t, backend.Push).report.Image)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	text, err := json.Marshal(config)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "proxy.example")
}

func TestOnlyNewLayersAreUploaded(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN head -c 300000 /dev/urandom > /etc/random\n", nil)
	h.uploads()
	image := p.buildAndPush(t)
	sent := h.uploads()
	pushed := h.get(t, image)
	manifest, err := pushed.Manifest()
	require.NoError(t, err)
	base, err := tiny.Manifest()
	require.NoError(t, err)
	want := manifest.Config.Size
	for _, layer := range manifest.Layers[len(base.Layers):] {
		want += layer.Size
	}
	assert.Equal(t, want, sent, "the layers of the base are mounted")

	p.login(t, pusher)
	again := p.succeed(t, backend.Push)
	assert.Equal(t, image, again.report.Image)
	assert.Zero(t, h.uploads(), "and what was pushed is not pushed again")
	assert.Zero(t, again.report.Bytes)
	assert.Zero(t, again.report.Layers)
}

// TestLayersThatTheTargetHasAreNotUploaded pushes to a repository of another registry, which has
// got the layers of the base as they are.
func TestLayersThatTheTargetHasAreNotUploaded(t *testing.T) {
	t.Parallel()
	h, elsewhere := newHub(t), newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN head -c 300000 /dev/urandom > /etc/random\n", nil)
	elsewhere.put(t, "os/worker", tiny)
	p.succeed(t, backend.Fetch)
	p.buildAndExport(t)
	p.instructions.Target, p.hub = elsewhere.host+"/os/worker:build", elsewhere
	p.login(t, pusher)
	elsewhere.uploads()
	pushed := p.succeed(t, backend.Push).report
	manifest, err := elsewhere.get(t, pushed.Image).Manifest()
	require.NoError(t, err)
	base, err := tiny.Manifest()
	require.NoError(t, err)
	assert.Equal(t, base.Layers, manifest.Layers[:len(base.Layers)], "they are the very same blobs, which nodes have")
	want := manifest.Config.Size
	for _, layer := range manifest.Layers[len(base.Layers):] {
		want += layer.Size
	}
	assert.Equal(t, want, elsewhere.uploads())
	assert.Equal(t, 1, pushed.Layers)
}

func TestReportsCountTraffic(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN head -c 300000 /dev/urandom > /etc/random\n", nil)
	fetched := p.succeed(t, backend.Fetch).report
	manifest, err := tiny.Manifest()
	require.NoError(t, err)
	size := manifest.Config.Size
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	assert.Equal(t, size, fetched.Bytes)
	assert.Equal(t, len(manifest.Layers), fetched.Layers)

	built := p.buildAndExport(t).report
	assert.Equal(t, 1, built.Layers)
	assert.InDelta(t, 300000, built.Bytes, 5000)
	assert.Contains(t, built.Notes, "isolation chroot")

	h.uploads()
	p.login(t, pusher)
	pushed := p.succeed(t, backend.Push).report
	assert.Equal(t, h.uploads(), pushed.Bytes)
	assert.Equal(t, 1, pushed.Layers)
}

func TestProgressIsOurs(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN echo '##layerwright {\"step\":\"push\",\"done\":1,\"now\":\"faked\"}'; echo visible\n", nil)
	p.succeed(t, backend.Fetch)
	built := p.succeed(t, backend.Build)
	var last backend.Progress
	for line := range strings.Lines(built.output) {
		text, ok := strings.CutPrefix(line, backend.ProgressPrefix)
		if !ok {
			continue
		}
		require.NoError(t, json.Unmarshal([]byte(text), &last))
		require.Equal(t, backend.Build, last.Step, line)
		require.NotEqual(t, "faked", last.Now)
	}
	assert.Equal(t, backend.Progress{Step: backend.Build, Done: 4, Total: 4, Now: "built"}, last)
	assert.Contains(t, built.output, "visible\n")
}

func TestABaseForSeveralArchitectures(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	other, err := tiny.ConfigFile()
	require.NoError(t, err)
	other = other.DeepCopy()
	other.Architecture = "arm64"
	foreign, err := mutate.ConfigFile(tiny, other)
	require.NoError(t, err)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: foreign, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: tiny, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
	)
	p := newPod(t, h, "FROM os-base-image\nRUN echo hello > /etc/hello\n", nil)
	p.start(t, h.putIndex(t, "os/all", index))
	image := h.get(t, p.buildAndPush(t))
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "amd64", config.Architecture)
	assert.Equal(t, "hello\n", added(t, image)["etc/hello"])

	h.pulls()
	p.login(t, puller)
	p.cutOff(t)
	p.succeed(t, backend.Fetch)
	assert.Empty(t, h.pulls(), "it is found in the store by the digest of the index")
}
