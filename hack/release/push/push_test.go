package push_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/hack/release/attached"
	"github.com/layerwright/layerwright/hack/release/images"
	"github.com/layerwright/layerwright/hack/release/push"
	"github.com/layerwright/layerwright/hack/release/releasetest"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// writeLayout writes the agent's image, signed if there is a key, and returns the folder of
// layouts.
func writeLayout(t *testing.T, key *sign.Key) string {
	t.Helper()
	dir := t.TempDir()
	releasetest.WritePrograms(t, filepath.Join(dir, "programs"))
	release := images.Release{Version: "v0.1.0", Revision: "abc", Created: time.Unix(1_700_000_000, 0)}
	index, err := release.Index(
		images.Programs{Folder: filepath.Join(dir, "programs", "linux-amd64")}.Agent(), images.Programs{Folder: filepath.Join(dir, "programs", "linux-arm64")}.Agent(),
	)
	require.NoError(t, err)
	image := attached.Image{Name: images.Agent, Tag: "v0.1.0", Index: index, Statements: []sign.Statement{
		{PredicateType: sign.PredicateSPDX, Predicate: []byte(`{"spdxVersion":"SPDX-2.3"}`)},
	}}
	require.NoError(t, attached.Write(t.Context(), filepath.Join(dir, "images", "layerwright-agent"), image, key))
	return filepath.Join(dir, "images")
}

func pushTo(ctx context.Context, folder, to string) (string, error) {
	pushed, err := push.Images(ctx, folder, to, func(string) {}, remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	return pushed["layerwright-agent"], err
}

func TestSignaturesAndStatementsArriveWithTheImage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(releasetest.NewRegistry())
	t.Cleanup(server.Close)
	ours, theirs := signtest.NewPair(), signtest.NewPair()
	to := strings.TrimPrefix(server.URL, "http://") + "/mirror"
	folder := writeLayout(t, ours.Key)
	pinned, err := pushTo(t.Context(), folder, to)
	require.NoError(t, err)
	assert.Regexp(t, "^"+to+"/layerwright-agent@sha256:", pinned)

	// Signatures are about the name in deploy/, wherever the image is: what verifies compares
	// digests, or is told of the other name.
	client := registry.New(registry.Options{})
	attachments, err := client.Attachments(t.Context(), pinned, sign.Signatures)
	require.NoError(t, err)
	require.Len(t, attachments, 1)
	assert.Contains(t, string(attachments[0].Content), `"docker-reference":"`+images.Agent+`"`)
	statements, err := client.Attachments(t.Context(), pinned, sign.Attestations)
	require.NoError(t, err)
	assert.Len(t, statements, 1)
	ref, err := name.NewDigest(pinned)
	require.NoError(t, err)
	tagged, err := remote.Get(ref.Context().Tag("v0.1.0"))
	require.NoError(t, err)
	assert.Equal(t, ref.DigestStr(), tagged.Digest.String())

	// Whoever mirrors a release signs it too, and a second push leaves that.
	_, err = theirs.Signer().Sign(t.Context(), client, pinned)
	require.NoError(t, err)
	_, err = pushTo(t.Context(), folder, to)
	require.NoError(t, err)
	attachments, err = client.Attachments(t.Context(), pinned, sign.Signatures)
	require.NoError(t, err)
	assert.Len(t, attachments, 2)
}

func TestUnsignedStatementsAreReferrers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(releasetest.NewRegistry())
	t.Cleanup(server.Close)
	pinned, err := pushTo(t.Context(), writeLayout(t, nil), strings.TrimPrefix(server.URL, "http://"))
	require.NoError(t, err)
	ref, err := name.NewDigest(pinned)
	require.NoError(t, err)
	index, err := remote.Referrers(ref)
	require.NoError(t, err)
	list, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, list.Manifests, 1)
	assert.Equal(t, "application/spdx+json", list.Manifests[0].ArtifactType)
}

func TestNothingIsUploadedTwice(t *testing.T) {
	t.Parallel()
	there := releasetest.NewRegistry()
	server := httptest.NewServer(there)
	t.Cleanup(server.Close)
	folder, to := writeLayout(t, nil), strings.TrimPrefix(server.URL, "http://")
	_, err := pushTo(t.Context(), folder, to)
	require.NoError(t, err)
	require.NotZero(t, there.Uploads())
	there.Reset()
	_, err = pushTo(t.Context(), folder, to)
	require.NoError(t, err)
	assert.Zero(t, there.Uploads())
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	folder := writeLayout(t, nil)
	refusing := func(status int) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			handler := func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					w.WriteHeader(status)
					return
				}
				releasetest.NewRegistry().ServeHTTP(w, r)
			}
			server := httptest.NewServer(http.HandlerFunc(handler))
			t.Cleanup(server.Close)
			return strings.TrimPrefix(server.URL, "http://")
		}
	}
	tests := map[string]struct {
		to      func(*testing.T) string
		wantErr string
	}{
		"no right to push":             {refusing(http.StatusForbidden), "the account has no right to push; log in to 127.0.0.1"},
		"no login":                     {refusing(http.StatusUnauthorized), "log in to 127.0.0.1"},
		"repositories have to be made": {refusing(http.StatusNotFound), "the registry does not make repositories by itself; create layerwright-agent"},
		"a certificate of an unknown authority": {func(t *testing.T) string {
			t.Helper()
			server := httptest.NewTLSServer(releasetest.NewRegistry())
			server.Config.ErrorLog = nil
			t.Cleanup(server.Close)
			return strings.TrimPrefix(server.URL, "https://")
		}, "name the certificate of its authority with --ca"},
		"a dead host": {func(t *testing.T) string {
			t.Helper()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			require.NoError(t, listener.Close())
			return listener.Addr().String()
		}, "no registry answers at 127.0.0.1"},
		"no registry": {func(*testing.T) string { return "https://example.com/x" }, `"https://example.com/x" is no registry`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := pushTo(t.Context(), folder, tt.to(t))
			require.ErrorContains(t, err, tt.wantErr)
		})
	}
}

// archived is the archive of a chart with one file.
func archived(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	require.NoError(t, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
	_, err := archive.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	require.NoError(t, compressed.Close())
	return out.Bytes()
}

func TestChartsNameTheRegistryToo(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "mine")
	const digest = "@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	chart := filepath.Join(from, "layerwright-0.1.0.tgz")
	require.NoError(t, os.WriteFile(chart, archived(t, "layerwright/values.yaml", "image: ghcr.io/layerwright/layerwright"+digest), 0o600))
	require.NoError(t, push.Manifests(from, to, map[string]string{"layerwright": "r.test/lw/layerwright" + digest}))
	got, err := os.ReadFile(filepath.Join(to, "layerwright-0.1.0.tgz"))
	require.NoError(t, err)
	compressed, err := gzip.NewReader(bytes.NewReader(got))
	require.NoError(t, err)
	archive := tar.NewReader(compressed)
	header, err := archive.Next()
	require.NoError(t, err)
	assert.Equal(t, "layerwright/values.yaml", header.Name)
	content, err := io.ReadAll(archive)
	require.NoError(t, err)
	assert.Equal(t, "image: r.test/lw/layerwright"+digest, string(content))
	_, err = archive.Next()
	require.ErrorIs(t, err, io.EOF)

	require.NoError(t, os.WriteFile(chart, []byte("half"), 0o600))
	require.ErrorContains(t, push.Manifests(from, to, nil), `rewriting "layerwright-0.1.0.tgz"`)
}

func TestManifestsNameTheRegistry(t *testing.T) {
	t.Parallel()
	from, to := filepath.Join(t.TempDir(), "manifests"), filepath.Join(t.TempDir(), "mine")
	const digest = "@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	require.NoError(t, os.MkdirAll(filepath.Join(from, "chart"), 0o755))
	text := "image: ghcr.io/layerwright/layerwright" + digest + "\nother: ghcr.io/layerwright/layerwright:v1\n"
	for _, file := range []string{"install.yaml", "chart/values.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(from, file), []byte(text), 0o600))
	}
	require.NoError(t, os.MkdirAll(to, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(to, "own"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(to, "install.yaml.new"), []byte("what an interruption left"), 0o600))
	for range 2 {
		require.NoError(t, push.Manifests(from, to, map[string]string{"layerwright": "r.test/lw/layerwright" + digest}))
		for _, file := range []string{"install.yaml", "chart/values.yaml"} {
			got, err := os.ReadFile(filepath.Join(to, file))
			require.NoError(t, err)
			assert.Equal(t, "image: r.test/lw/layerwright"+digest+"\nother: ghcr.io/layerwright/layerwright:v1\n", string(got))
		}
		assert.FileExists(t, filepath.Join(to, "own"), "the folder may be one that has more")
		assert.NoFileExists(t, filepath.Join(to, "install.yaml.new"))
	}
}
