package registry_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	settings "github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory" // looked up by name
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	memory "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/compose"
	distribution "github.com/layerwright/layerwright/test/cluster/registry"
)

// fast tries as often as in earnest, without the waits.
var fast = remote.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}

var (
	pusher = distribution.Account{Name: "push", Password: "hunter2-push", Push: true}
	puller = distribution.Account{Name: "pull", Password: "hunter2-pull"}
)

// logins is a keychain with a login for each registry.
type logins map[string]distribution.Account

// Resolve finds the login by the registry's host.
func (l logins) Resolve(target authn.Resource) (authn.Authenticator, error) {
	account, ok := l[target.RegistryStr()]
	if !ok {
		return authn.Anonymous, nil
	}
	return account.Login(), nil
}

// serve runs a handler on a loopback port and returns its host.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handlers of these tests break connections
	server.Start()
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// inMemory is a registry that checks little and forgets everything.
func inMemory() http.Handler { return strict(memory.New(memory.Logger(log.New(io.Discard, "", 0)))) }

// strictest is the registry that most clusters run, without its disk, whose pace is another matter.
func strictest(t *testing.T, accounts ...distribution.Account) http.Handler {
	t.Helper()
	config := &settings.Configuration{
		Version: settings.MajorMinorVersion(0, 1),
		Storage: settings.Storage{
			"inmemory":    settings.Parameters{},
			"delete":      settings.Parameters{"enabled": true},
			"maintenance": settings.Parameters{"uploadpurging": map[any]any{"enabled": false}},
		},
	}
	config.Log.AccessLog.Disabled = true
	app := handlers.NewApp(t.Context(), config)
	accounts = append(accounts, pusher, puller)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		i := slices.IndexFunc(accounts, func(a distribution.Account) bool { return a.Name == name && a.Password == password })
		switch {
		case i < 0:
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		case !accounts[i].Push && r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, problem("DENIED", "account "+name+" may pull but not push"))
		default:
			app.ServeHTTP(w, r)
		}
	})
}

// client is one that tries again at once, and logs in as pusher everywhere.
func client(t *testing.T, change ...func(o *registry.Options)) *registry.Client {
	t.Helper()
	options := registry.Options{Backoff: fast, Keychain: pusher, Transport: transport(t)}
	for _, c := range change {
		c(&options)
	}
	return registry.New(options)
}

// file is one entry of a layer.
type file struct{ name, body string }

// archive is a small tar archive.
func archive(t *testing.T, files ...file) []byte {
	t.Helper()
	out := &bytes.Buffer{}
	w := tar.NewWriter(out)
	for _, f := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.body)), Format: tar.FormatPAX}))
		_, err := w.Write([]byte(f.body))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func opener(content []byte) registry.Opener {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
}

// configuration makes the same configuration layer for every platform.
func configuration(t *testing.T, body string) compose.LayerFunc {
	t.Helper()
	content := archive(t, file{"etc/motd", body})
	return func(context.Context, v1.Platform, v1.Image) (registry.Opener, error) { return opener(content), nil }
}

// layerOf makes a layer of a media type.
func layerOf(t *testing.T, mediaType types.MediaType, files ...file) v1.Layer {
	t.Helper()
	if mediaType == types.OCIUncompressedLayer {
		return static.NewLayer(archive(t, files...), mediaType)
	}
	method := compression.GZip
	if mediaType == types.OCILayerZStd {
		method = compression.ZStd
	}
	content := archive(t, files...)
	layer, err := tarball.LayerFromOpener(tarball.Opener(opener(content)), tarball.WithMediaType(mediaType), tarball.WithCompression(method))
	require.NoError(t, err)
	return layer
}

// shape says what a made image looks like.
type shape struct {
	mediaType types.MediaType // OCI where empty
	layers    []types.MediaType
	arch      string // amd64 where empty
	noHistory bool
	body      string // of the only file of each layer
}

var epoch = time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)

// three is an ordinary image.
var three = shape{layers: []types.MediaType{types.OCILayer, types.OCILayer, types.OCILayer}}

// make makes the image.
func (s shape) make(t *testing.T) v1.Image {
	t.Helper()
	mediaType, configType := types.OCIManifestSchema1, types.OCIConfigJSON
	if s.mediaType == types.DockerManifestSchema2 {
		mediaType, configType = s.mediaType, types.DockerConfigJSON
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, mediaType), configType)
	for i, layerType := range s.layers {
		addendum := mutate.Addendum{Layer: layerOf(t, layerType, file{fmt.Sprintf("usr/lib/%d", i), s.body}), MediaType: layerType}
		if !layerType.IsDistributable() {
			addendum.URLs = []string{"https://example.test/foreign"}
		}
		addendum.History = v1.History{Created: v1.Time{Time: epoch}, CreatedBy: fmt.Sprintf("layer %d", i)}
		var err error
		img, err = mutate.Append(img, addendum)
		require.NoError(t, err)
	}
	config, err := img.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", s.arch, v1.Time{Time: epoch}
	if config.Architecture == "" {
		config.Architecture = "amd64"
	}
	config.Config.Labels = map[string]string{"containers.bootc": "1", "stays": "yes"}
	config.Config.Cmd = []string{"/sbin/init"}
	if s.noHistory {
		config.History = nil
	}
	img, err = mutate.ConfigFile(img, config)
	require.NoError(t, err)
	return img
}

// indexOf makes an index of images by their architectures, with an attestation for each as BuildKit
// adds them.
func indexOf(t *testing.T, mediaType types.MediaType, shapes ...shape) v1.ImageIndex {
	t.Helper()
	list := mutate.IndexMediaType(empty.Index, mediaType)
	for _, s := range shapes {
		img := s.make(t)
		digest, err := img.Digest()
		require.NoError(t, err)
		attestation := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		attestation, err = mutate.Append(attestation, mutate.Addendum{Layer: layerOf(t, types.OCILayer, file{"sbom " + s.arch, digest.String()})})
		require.NoError(t, err)
		list = mutate.AppendManifests(list,
			mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: s.arch}}},
			mutate.IndexAddendum{Add: attestation, Descriptor: v1.Descriptor{
				Platform:    &v1.Platform{OS: "unknown", Architecture: "unknown"},
				Annotations: map[string]string{"vnd.docker.reference.digest": digest.String(), "vnd.docker.reference.type": "attestation-manifest"},
			}})
	}
	return list
}

// push brings an image or an index to a repository and returns its name by digest.
func push(t *testing.T, repository string, what remote.Taggable) string {
	t.Helper()
	tag, err := name.NewTag(repository + ":base")
	require.NoError(t, err)
	options := []remote.Option{remote.WithContext(t.Context()), remote.WithAuth(pusher.Login()), remote.WithTransport(transport(t))}
	require.NoError(t, remote.Push(tag, what, options...))
	digest, err := what.(interface{ Digest() (v1.Hash, error) }).Digest()
	require.NoError(t, err)
	return tag.Digest(digest.String()).String()
}

// get reads what a registry has under a name.
func get(t *testing.T, ref string) *remote.Descriptor {
	t.Helper()
	parsed, err := name.ParseReference(ref)
	require.NoError(t, err)
	desc, err := remote.Get(parsed, remote.WithContext(t.Context()), remote.WithTransport(transport(t)),
		remote.WithAuth(pusher.Login()))
	require.NoError(t, err)
	return desc
}

// getImage reads an image back and checks every byte of it.
func getImage(t *testing.T, ref string) v1.Image {
	t.Helper()
	img, err := get(t, ref).Image()
	require.NoError(t, err)
	requireSound(t, img)
	return img
}

// getIndex reads an index back and checks every byte of it.
func getIndex(t *testing.T, ref string) v1.ImageIndex {
	t.Helper()
	list, err := get(t, ref).ImageIndex()
	require.NoError(t, err)
	digest, err := list.Digest()
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(ref, digest.String()))
	manifest, err := list.IndexManifest()
	require.NoError(t, err)
	for _, desc := range manifest.Manifests {
		img, err := list.Image(desc.Digest)
		require.NoError(t, err)
		requireSound(t, img)
	}
	return list
}

// requireSound checks digests, sizes and diff IDs against the bytes, and that the history has one
// entry for each layer.
func requireSound(t *testing.T, img v1.Image) {
	t.Helper()
	manifest, err := img.Manifest()
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	layers, err := img.Layers()
	require.NoError(t, err)
	require.Len(t, config.RootFS.DiffIDs, len(layers))
	gzip, here := true, true
	for i, layer := range layers {
		if !manifest.Layers[i].MediaType.IsDistributable() {
			here = false // it may be elsewhere
			continue
		}
		digest, size := hashOf(t, layer.Compressed)
		require.Equal(t, manifest.Layers[i].Digest, digest)
		require.Equal(t, manifest.Layers[i].Size, size)
		diffID, _ := hashOf(t, layer.Uncompressed)
		require.Equal(t, config.RootFS.DiffIDs[i], diffID)
		gzip = gzip && strings.HasSuffix(string(manifest.Layers[i].MediaType), "gzip")
	}
	if gzip && here { // validate reads nothing else
		require.NoError(t, validate.Image(img))
	}
	entries := len(slices.DeleteFunc(slices.Clone(config.History), func(h v1.History) bool { return h.EmptyLayer }))
	require.Len(t, layers, entries, "history and layers go together")
}

func hashOf(t *testing.T, open func() (io.ReadCloser, error)) (v1.Hash, int64) {
	t.Helper()
	body, err := open()
	require.NoError(t, err)
	defer body.Close()
	digest, size, err := v1.SHA256(body)
	require.NoError(t, err)
	return digest, size
}

// topFiles are the files of the highest layer.
func topFiles(t *testing.T, img v1.Image) []file {
	t.Helper()
	layers, err := img.Layers()
	require.NoError(t, err)
	body, err := layers[len(layers)-1].Uncompressed()
	require.NoError(t, err)
	defer body.Close()
	var files []file
	for r := tar.NewReader(body); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		files = append(files, file{header.Name, string(content)})
	}
}

func appended(t *testing.T, c *registry.Client, request registry.AppendRequest) *registry.Result {
	t.Helper()
	result, err := c.Append(t.Context(), request)
	require.NoError(t, err)
	return result
}

// journal notes the requests that a handler gets.
type journal struct {
	mu    sync.Mutex
	lines []string
}

// wrap notes each request before it is served.
func (j *journal) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		j.mu.Lock()
		j.lines = append(j.lines, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
		j.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// count is how many requests contain all of the parts.
func (j *journal) count(parts ...string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, line := range j.lines {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			n++
		}
	}
	return n
}

func (j *journal) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = nil
}

// tripper is a function that serves as a transport.
type tripper func(r *http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a response of a registry.
func answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)), Request: r,
	}
}

// isPing reports whether a request only asks how to log in.
func isPing(u *url.URL) bool { return u.Path == "/v2/" }

// slug makes a name of a repository of a test's.
func slug(name string) string {
	return strings.Trim(regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(strings.ToLower(name), "-"), "-")
}
