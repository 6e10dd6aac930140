package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
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
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// osRegistry serves images of streams over TLS, to who logs in.
type osRegistry struct {
	host, certificates, authFile string
	transport                    http.RoundTripper
}

func newOSRegistry(t *testing.T) *osRegistry {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	r := &osRegistry{
		host: strings.TrimPrefix(server.URL, "https://"), certificates: filepath.Join(dir, "ca.pem"), authFile: filepath.Join(dir, "auth.json"),
		transport: server.Client().Transport,
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(r.certificates, encoded, 0o600))
	auth := fmt.Sprintf(`{"auths":{%q:{"username":"me","password":"secret"}}}`, r.host)
	require.NoError(t, os.WriteFile(r.authFile, []byte(auth), 0o600))
	return r
}

// push stores an image with labels, and returns its name by digest.
func (r *osRegistry) push(t *testing.T, repository string, labels map[string]string) string {
	t.Helper()
	image, err := mutate.Config(empty.Image, v1.Config{Labels: labels})
	require.NoError(t, err)
	ref, err := name.ParseReference(r.host + "/" + repository + ":1")
	require.NoError(t, err)
	login, err := keychainOf(r.authFile)
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, image, remote.WithTransport(r.transport), remote.WithAuthFromKeychain(login)))
	digest, err := image.Digest()
	require.NoError(t, err)
	return ref.Context().Digest(digest.String()).String()
}

// stream pushes both images of a stream, and returns the tags that name them.
func (r *osRegistry) stream(t *testing.T, stream string) (osImage, extensions string) {
	t.Helper()
	return r.push(t, stream, map[string]string{mcfgv1.ImageLabelStream: stream, mcfgv1.ImageLabelBootc: "1"}),
		r.push(t, stream+"-extensions", map[string]string{mcfgv1.ImageLabelStream: stream, mcfgv1.ImageLabelExtensions: "true"})
}

// run runs the command, and returns what it prints.
func (r *osRegistry) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	code = execute(t.Context(), append([]string{"streams", "--registry-ca", r.certificates, "--authfile", r.authFile}, args...), &out, &problems)
	return code, out.String(), problems.String()
}

func TestStreamsOfAFileWithTheListOfImages(t *testing.T) {
	t.Parallel()
	r := newOSRegistry(t)
	os9, ext9 := r.stream(t, "rhel-9")
	os10, ext10 := r.stream(t, "rhel-10")
	alone := r.push(t, "alone", map[string]string{mcfgv1.ImageLabelStream: "alone", mcfgv1.ImageLabelBootc: "1"})
	var tags []string
	for tag, image := range map[string]string{
		"rhel-coreos": os9, "rhel-coreos-extensions": ext9, "rhel-coreos-10": os10, "rhel-coreos-10-extensions": ext10, "rhel-coreos-x": alone,
	} {
		tags = append(tags, fmt.Sprintf(`{"name":%q,"from":{"kind":"DockerImage","name":%q}}`, tag, image))
	}
	file := filepath.Join(t.TempDir(), "image-references")
	list := `{"kind":"ImageStream","metadata":{"name":"4.21.0"},"spec":{"tags":[` + strings.Join(tags, ",") + `]}}`
	require.NoError(t, os.WriteFile(file, []byte(list), 0o600))

	code, out, problems := r.run(t, "--image-references", file)
	require.Zero(t, code, problems)
	assert.Equal(t, fmt.Sprintf(`rhel-10 (Supported)
  OS image    %s
  extensions  %s
rhel-9 (default, Supported)
  OS image    %s
  extensions  %s
alone (not usable: ExtensionsImageMissing)
`, os10, ext10, os9, ext9), out)
	assert.Contains(t, problems, `IncompleteStreams (ExtensionsImageMissing): stream "alone"`)

	code, out, _ = r.run(t, "--image-references", file, "--install-version", "5.0.0", "-o", "json")
	require.Zero(t, code)
	var object mcfgv1.OSImageStream
	require.NoError(t, json.Unmarshal([]byte(out), &object))
	assert.Equal(t, "OSImageStream", object.Kind)
	assert.Equal(t, "cluster", object.Name)
	assert.Equal(t, "rhel-10", object.Spec.DefaultStream)
	assert.Equal(t, "rhel-10", object.Status.DefaultStream)

	code, out, _ = r.run(t, "--image-references", file, "-o", "yaml", "--default-stream", "rhel-10")
	require.Zero(t, code)
	require.NoError(t, yaml.UnmarshalStrict([]byte(out), &object))
	for want, args := range map[string][]string{
		os9:   {"-o", "os-image"},
		os10:  {"-o", "os-image", "--stream", "rhel-10"},
		ext10: {"-o", "extensions-image", "--stream", "rhel-10"},
	} {
		code, out, _ = r.run(t, append(args, "--image-references", file)...)
		require.Zero(t, code)
		assert.Equal(t, want+"\n", out)
	}
	code, _, problems = r.run(t, "--image-references", file, "-o", "os-image", "--stream", "rhel-8")
	assert.Equal(t, 1, code)
	assert.Contains(t, problems, `there is no stream "rhel-8"; available are: rhel-10,rhel-9`)
	code, _, problems = r.run(t, "--image-references", file, "--default-stream", "rhel-8")
	assert.Equal(t, 1, code)
	assert.Contains(t, problems, `spec.defaultStream "rhel-8" is not available`)
}

func TestStreamsOfArgumentsAndObjects(t *testing.T) {
	t.Parallel()
	r := newOSRegistry(t)
	os9, ext9 := r.stream(t, "rhel-9")
	code, out, problems := r.run(t, "--baseos-image", os9, "--baseos-extensions-image", ext9)
	require.Zero(t, code, problems)
	assert.Contains(t, out, "rhel-9 (default, Supported)")

	file := filepath.Join(t.TempDir(), "objects.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`apiVersion: machineconfiguration.openshift.io/v1
kind: OSImageStream
metadata: {name: cluster}
spec:
  defaultStream: mine
  images:
  - {name: mine, osImage: "`+r.host+`/rhel-9:1"}
`), 0o600))
	code, _, problems = r.run(t, "-f", file)
	assert.Equal(t, 1, code)
	assert.Contains(t, problems, `is of stream "rhel-9" by its label io.openshift.os.streamclass, and named as one of "mine"`)
	assert.Contains(t, problems, "layerwright: no source gives a complete stream")
}

func TestStreamsErrors(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"no source: give --release-image": {"streams", "--default-stream", "rhel-10"},
		"are the same list":               {"streams", "--release-image", "a", "--image-references", "b"},
		"must be text, yaml":              {"streams", "-o", "xml"},
	} {
		var out, problems bytes.Buffer
		assert.Equal(t, 2, execute(t.Context(), args, &out, &problems))
		assert.Contains(t, problems.String(), want)
	}
}

func TestStreamsOfARegistryWithoutTLS(t *testing.T) {
	t.Parallel()
	const host = "registry.invalid:5000" // a name that no one may have
	for scheme, args := range map[string][]string{"https://": nil, "http://": {"--plain-http-registry", host}} {
		var out, problems bytes.Buffer
		assert.Equal(t, 1, execute(t.Context(), append([]string{"streams", "--release-image", host + "/release:1"}, args...), &out, &problems))
		assert.Contains(t, problems.String(), scheme+host)
	}
}
