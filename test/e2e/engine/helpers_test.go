//go:build e2e

package engine

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/render"
	"github.com/layerwright/layerwright/test/cluster/registry"
)

// Accounts of the registry. Their passwords are what tests look for where no credential may be.
var (
	pusher = registry.Account{Name: "pusher", Password: "hunter2-may-push", Push: true}
	puller = registry.Account{Name: "puller", Password: "hunter2-may-pull"}
)

// hub is a registry whose requests can be counted, and fail.
type hub struct {
	host string

	mutex    sync.Mutex
	trouble  func(w http.ResponseWriter, r *http.Request) (handled bool)
	uploaded int64
	pulled   map[string]int // blobs that were asked for, by path
}

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{pulled: map[string]int{}}
	logrus.SetOutput(io.Discard) // the registry logs what every client meets
	content := registry.New(t.Context(), registry.Options{Dir: t.TempDir(), Accounts: []registry.Account{pusher, puller}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mutex.Lock()
		trouble := h.trouble
		h.mutex.Unlock()
		if trouble != nil && trouble(w, r) {
			return
		}
		h.count(r)
		content.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	h.host = strings.TrimPrefix(server.URL, "http://")
	return h
}

func (h *hub) count(r *http.Request) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	switch {
	case r.Method == http.MethodPatch, r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/"):
		r.Body = &counted{ReadCloser: r.Body, hub: h}
	case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/"):
		h.pulled[r.URL.Path]++
	}
}

// counted counts what is read of a body.
type counted struct {
	io.ReadCloser
	hub *hub
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.hub.mutex.Lock()
	defer c.hub.mutex.Unlock()
	c.hub.uploaded += int64(n)
	return n, err
}

// fail sets what happens to requests before the registry sees them; nil is nothing.
func (h *hub) fail(trouble func(w http.ResponseWriter, r *http.Request) (handled bool)) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.trouble = trouble
}

// uploads are the bytes of blobs that were sent, and starts counting anew.
func (h *hub) uploads() int64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	n := h.uploaded
	h.uploaded = 0
	return n
}

// pulls are the blobs that were asked for, and starts counting anew.
func (h *hub) pulls() map[string]int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	pulled := h.pulled
	h.pulled = map[string]int{}
	return pulled
}

func login(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuth(pusher.Login())}
}

// put pushes an image, and gives its name by digest.
func (h *hub) put(t *testing.T, repository string, image v1.Image) string {
	t.Helper()
	tag, err := name.NewTag(h.host + "/" + repository + ":latest")
	require.NoError(t, err)
	require.NoError(t, remote.Write(tag, image, login(t.Context())...))
	digest, err := image.Digest()
	require.NoError(t, err)
	return tag.Digest(digest.String()).String()
}

// putIndex pushes an index, and gives its name by digest.
func (h *hub) putIndex(t *testing.T, repository string, index v1.ImageIndex) string {
	t.Helper()
	tag, err := name.NewTag(h.host + "/" + repository + ":latest")
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(tag, index, login(t.Context())...))
	digest, err := index.Digest()
	require.NoError(t, err)
	return tag.Digest(digest.String()).String()
}

// get is an image of the registry.
func (h *hub) get(t *testing.T, image string) v1.Image {
	t.Helper()
	ref, err := name.ParseReference(image)
	require.NoError(t, err)
	got, err := remote.Image(ref, login(t.Context())...)
	require.NoError(t, err)
	return got
}

// pod is the folders of a build pod.
type pod struct {
	dir          string
	hub          *hub
	instructions backend.Instructions
}

// newPod is the pod of a build of a Containerfile of an administrator's on the tiny image.
func newPod(t *testing.T, h *hub, containerfile string, files map[string]string) *pod {
	t.Helper()
	p := &pod{dir: t.TempDir(), hub: h}
	context := map[string][]byte{}
	for file, content := range files {
		context[file] = []byte(content)
		p.write(t, "context/"+file, content)
	}
	parsed, err := containerfiles.Parse("Containerfile", []byte(containerfile))
	require.NoError(t, err)
	rendered, err := render.Render(render.Input{
		Containerfile: parsed, Context: context, Architecture: "AMD64",
		BaseImage: h.put(t, "os/base", tiny), ConfigImage: h.put(t, "os/configs", tiny), Labels: map[string]string{"pool": "worker"},
	})
	require.NoError(t, err)
	p.instructions = instructions(rendered)
	p.instructions.Target = h.host + "/os/worker:build"
	p.login(t, puller)
	return p
}

// copy is the pod once more, in a folder of its own.
func (p *pod) copy(t *testing.T) *pod {
	t.Helper()
	again := *p
	again.dir = t.TempDir()
	out, err := exec.CommandContext(t.Context(), "cp", "-a", p.dir+"/.", again.dir).CombinedOutput()
	require.NoError(t, err, string(out))
	return &again
}

// instructions are what a controller would tell the steps.
func instructions(rendered *render.Rendered) backend.Instructions {
	in := backend.Instructions{
		Build: "worker-1", Architecture: mcfgv1.ArchitectureAMD64, Containerfile: rendered.Text, Stage: rendered.Stage, Created: 1700000000,
	}
	for _, image := range rendered.Images {
		in.Images = append(in.Images, backend.PinnedImage{Name: image, Image: image})
	}
	for line := 1; line <= strings.Count(rendered.Text, "\n"); line++ {
		origin := backend.LineOrigin{First: line, Last: line, What: rendered.Origin(line)}
		if admin, ok := rendered.AdminLine(line); ok {
			origin.Admin = admin
		}
		in.Lines = append(in.Lines, origin)
	}
	return in
}

func (p *pod) write(t *testing.T, file, content string) {
	t.Helper()
	path := filepath.Join(p.dir, file)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// login makes the account the secret of the next step.
func (p *pod) login(t *testing.T, account registry.Account) {
	t.Helper()
	config, err := account.DockerConfig(p.hub.host)
	require.NoError(t, err)
	p.write(t, "credentials/.dockerconfigjson", string(config))
	if account == puller {
		p.write(t, "base-credentials/.dockerconfigjson", string(config))
	}
}

// ended is how a step ended.
type ended struct {
	code   int
	output string
	report *backend.Report
}

// command is a step as a container runs it.
func (p *pod) command(t *testing.T, step backend.Step, flags ...string) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(p.instructions)
	require.NoError(t, err)
	p.write(t, "instructions.json", string(text))
	at := func(name string) string { return filepath.Join(p.dir, name) }
	args := []string{
		string(step), "--instructions", at("instructions.json"), "--context", at("context"), "--inputs", at("inputs"), "--trust", at("trust"),
		"--registries", at("registries.conf"), "--policy", at("policy.json"), "--work", at("work"), "--report", at(string(step) + ".json"),
		"--credentials", at("none"), "--fetched", at("fetched"), "--layout", at("layout"), "--base-credentials", at("none"),
	}
	if step == backend.Fetch || step == backend.Push { // the others have no secret
		args = append(args, "--credentials", at("credentials"))
	}
	if step == backend.Push {
		args = append(args, "--base-credentials", at("base-credentials"))
	}
	cmd := exec.CommandContext(t.Context(), program, append(args, flags...)...)
	cmd.Env = []string{"PATH=/nowhere"}
	return cmd
}

// run runs a step.
func (p *pod) run(t *testing.T, step backend.Step, flags ...string) ended {
	t.Helper()
	var output bytes.Buffer
	cmd := p.command(t, step, flags...)
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return p.ended(t, step, cmd.ProcessState.ExitCode(), output.String())
}

// ended reads what a step has left.
func (p *pod) ended(t *testing.T, step backend.Step, code int, output string) ended {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, string(step)+".json"))
	require.NoError(t, err, output)
	report, err := backend.ReadReport(string(text))
	require.NoError(t, err, "%s\n%s", text, output)
	require.Equal(t, step, report.Step)
	return ended{code: code, output: output, report: report}
}

// succeed runs a step that has to succeed.
func (p *pod) succeed(t *testing.T, step backend.Step, flags ...string) ended {
	t.Helper()
	e := p.run(t, step, flags...)
	require.Nil(t, e.report.Failure, e.output)
	require.Zero(t, e.code, e.output)
	return e
}

// buildAndExport runs what comes between the steps with secrets, and gives how Build ended.
func (p *pod) buildAndExport(t *testing.T) (built ended) {
	t.Helper()
	built = p.succeed(t, backend.Build)
	p.succeed(t, backend.Export)
	return built
}

// buildAndPush runs all steps.
func (p *pod) buildAndPush(t *testing.T) (image string) {
	t.Helper()
	p.login(t, puller)
	p.succeed(t, backend.Fetch)
	p.buildAndExport(t)
	p.login(t, pusher)
	return p.succeed(t, backend.Push).report.Image
}

// cutOff makes the pod one whose Fetch was cut off at its very end, before any line could run.
func (p *pod) cutOff(t *testing.T) {
	t.Helper()
	require.NoError(t, removeAll(p, "fetched/images.json"))
}

// grep are the files of the pod that have the text, but for what it was given.
func (p *pod) grep(t *testing.T, text string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(p.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (strings.HasSuffix(entry.Name(), "credentials") || entry.Name() == "inputs") {
			return fs.SkipDir
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) || strings.Contains(path, text) {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// base makes another image the one that the build starts from.
func (p *pod) base(t *testing.T, image v1.Image) {
	t.Helper()
	p.start(t, p.hub.put(t, "os/other", image))
}

// start makes the build start from another image, which is there by digest.
func (p *pod) start(t *testing.T, now string) {
	t.Helper()
	old := p.instructions.Images[0].Image
	p.instructions.Containerfile = strings.ReplaceAll(p.instructions.Containerfile, old, now)
	p.instructions.Images[0] = backend.PinnedImage{Name: now, Image: now}
}

// repacked is an image with its layers compressed in another way, and the manifest that goes with
// them.
func repacked(t *testing.T, image v1.Image, how compression.Compression, mediaType types.MediaType) v1.Image {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	var again []mutate.Addendum
	for _, layer := range layers {
		packed, err := tarball.LayerFromOpener(layer.Uncompressed, tarball.WithCompression(how), tarball.WithMediaType(mediaType))
		require.NoError(t, err)
		again = append(again, mutate.Addendum{Layer: packed, MediaType: mediaType})
	}
	scratch := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.DockerManifestSchema2), types.DockerConfigJSON)
	if mediaType != types.DockerLayer {
		scratch = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	made, err := mutate.Append(scratch, again...)
	require.NoError(t, err)
	was, err := image.ConfigFile()
	require.NoError(t, err)
	config, err := made.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.Config, config.Architecture, config.OS = was.Config, was.Architecture, was.OS
	made, err = mutate.ConfigFile(made, config)
	require.NoError(t, err)
	return made
}

// authority is a certificate authority, as PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}

// Bounds of waiting for a process of the builder's.
const (
	patience     = 60 * time.Second
	pollInterval = 20 * time.Millisecond
)

// logins records the logins that requests bring from now on.
func (h *hub) logins() (seen func() []string) {
	var mutex sync.Mutex
	var all []string
	h.fail(func(_ http.ResponseWriter, r *http.Request) bool {
		mutex.Lock()
		defer mutex.Unlock()
		all = append(all, r.Header.Get("Authorization"))
		return false
	})
	return func() []string {
		mutex.Lock()
		defer mutex.Unlock()
		return slices.Clone(all)
	}
}

// tag gives an image of the registry one more tag.
func (h *hub) tag(t *testing.T, image, tag string) {
	t.Helper()
	got := h.get(t, h.host+"/"+image)
	ref, err := name.NewTag(h.host + "/" + image)
	require.NoError(t, err)
	require.NoError(t, remote.Tag(ref.Tag(tag), got, login(t.Context())...))
}

func removeAll(p *pod, file string) error { return os.RemoveAll(filepath.Join(p.dir, file)) }

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}
