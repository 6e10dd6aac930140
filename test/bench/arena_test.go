//go:build e2e

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/install"
)

// arena is a control plane, a registry with the full image, and the controller as it is shipped, a
// process with the rights that it is deployed with. What it asks the API server and the registry
// for is counted on the way.
type arena struct {
	client.WithWatch
	host, base string
	size       int64 // of the base's layers
	login      []byte
	namespace  string
	process    *exec.Cmd
	traffic    traffic
	calls      calls

	mu   sync.Mutex
	seen map[string]*moments // by MachineOSConfig
}

// arenaUser has the controller's rights.
const arenaUser = "layerwright-bench"

// patience is how long anything may take before a benchmark fails.
const patience = 3 * time.Minute

// newArena starts everything, and waits until the controller works.
func newArena(b *testing.B) *arena {
	b.Helper()
	config := clustertest.ControlPlane(b)
	a := &arena{namespace: clustertest.Namespace(b), seen: map[string]*moments{}}
	install.Kinds(b, config)
	install.Policies(b, config)
	install.ControllerRights(b, config, a.namespace, arenaUser)
	scheme := runtime.NewScheme()
	require.NoError(b, mcfgv1.AddToScheme(scheme))
	require.NoError(b, corev1.AddToScheme(scheme))
	var err error
	a.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	require.NoError(b, err)
	a.serveImages(b)
	for _, name := range []string{"push", "pull"} {
		require.NoError(b, a.Create(b.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: a.login},
		}))
	}
	a.watch(b)
	a.startController(b, config)
	return a
}

// serveImages serves the full image from a registry on disk.
func (a *arena) serveImages(b *testing.B) {
	b.Helper()
	cache, err := toolchain.CacheDir()
	require.NoError(b, err)
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	require.NoError(b, err)
	handler := registry.New(b.Context(), registry.Options{Dir: b.TempDir(), Accounts: []registry.Account{appendAccount}})
	logrus.SetOutput(io.Discard) // it calls it an error that someone looks for what is not there
	server := httptest.NewServer(a.traffic.of(handler))
	b.Cleanup(server.Close)
	a.host = strings.TrimPrefix(server.URL, "http://")
	a.login, err = appendAccount.DockerConfig(a.host)
	require.NoError(b, err)
	login := remote.WithAuth(appendAccount.Login())
	refs, err := maker.Push(b.Context(), fixtures.Full, a.host+"/streams", login)
	require.NoError(b, err)
	img, err := remote.Image(refs.OS[fixtures.RHEL9], login, remote.WithContext(b.Context()))
	require.NoError(b, err)
	manifest, err := img.Manifest()
	require.NoError(b, err)
	for _, layer := range manifest.Layers {
		a.size += layer.Size
	}
	a.base = refs.OS[fixtures.RHEL9].String()
}

// startController runs bin/layerwright against a proxy of the API server that counts.
func (a *arena) startController(b *testing.B, config *rest.Config) {
	b.Helper()
	limited := rest.CopyConfig(config)
	limited.Impersonate = rest.ImpersonationConfig{UserName: arenaUser}
	transport, err := rest.TransportFor(limited)
	require.NoError(b, err)
	target, err := url.Parse(config.Host)
	require.NoError(b, err)
	proxy := httptest.NewServer(a.calls.of(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches are to be told at once
	}))
	b.Cleanup(proxy.Close)
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "arena",
		"clusters": []any{map[string]any{"name": "arena", "cluster": map[string]any{"server": proxy.URL}}},
		"users":    []any{map[string]any{"name": "arena", "user": map[string]any{}}},
		"contexts": []any{map[string]any{"name": "arena", "context": map[string]any{"cluster": "arena", "user": "arena"}}},
	})
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(kubeconfig, text, 0o600))
	a.process = exec.CommandContext(b.Context(), filepath.Join(repository(b), "bin", "layerwright"), "controller",
		"--kubeconfig", kubeconfig, "--namespace", a.namespace, "--leader-election-namespace", a.namespace,
		"--base-image-cache-dir", b.TempDir(), "--metrics-bind-address=0", "--health-probe-bind-address=0")
	log, err := os.Create(filepath.Join(b.TempDir(), "controller.log"))
	require.NoError(b, err)
	a.process.Stderr = log
	require.NoError(b, a.process.Start())
	b.Cleanup(func() {
		_ = a.process.Process.Kill()
		_ = a.process.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && b.Failed() {
			b.Logf("controller:\n%s", text[max(0, len(text)-8<<10):])
		}
	})
}

// traffic counts what a registry takes and gives, in bytes of bodies.
type traffic struct{ up, down atomic.Int64 }

func (t *traffic) total() int64 { return t.up.Load() + t.down.Load() }

func (t *traffic) of(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &countedBody{r.Body, &t.up}
		next.ServeHTTP(&countedAnswer{w, &t.down}, r)
	})
}

type countedBody struct {
	io.ReadCloser
	count *atomic.Int64
}

// Read counts what it reads.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.count.Add(int64(n))
	return n, err
}

type countedAnswer struct {
	http.ResponseWriter
	count *atomic.Int64
}

// Write counts what it writes.
func (c *countedAnswer) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.count.Add(int64(n))
	return n, err
}

// calls counts requests of the API server, without those that a process makes once, or whether or
// not there is work: watches with the lists that they begin with, discovery, and the lease.
type calls struct {
	writes
	total atomic.Int64
}

func (c *calls) of(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		once := q.Has("watch") || q.Has("limit") || q.Has("resourceVersion") || strings.Count(r.URL.Path, "/") <= 3 //nolint:mnd // /apis/GROUP/VERSION
		if !once && !strings.Contains(r.URL.Path, "/leases") {
			c.total.Add(1)
		}
		c.note(r)
		next.ServeHTTP(w, r)
	})
}

// moments are when someone who watches the objects of a MachineOSConfig learnt something for the
// first time.
type moments struct {
	begun, imaged, done time.Time
	// build is the build that these are about.
	build string
	image mcfgv1.ImageDigestFormat
}

// watch notes when builds begin and end, and when an image is named in status.
func (a *arena) watch(b *testing.B) {
	b.Helper()
	for _, list := range []client.ObjectList{&mcfgv1.MachineOSBuildList{}, &mcfgv1.MachineOSConfigList{}} {
		watcher, err := a.Watch(b.Context(), list)
		require.NoError(b, err)
		go func() {
			for err == nil { // the API server ends watches of a kind that it sets up anew
				for change := range watcher.ResultChan() {
					a.note(change)
				}
				watcher, err = a.Watch(b.Context(), list)
			}
		}()
	}
}

func (a *arena) note(change watch.Event) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch o := change.Object.(type) {
	case *mcfgv1.MachineOSBuild:
		if change.Type == watch.Deleted {
			delete(a.seen, o.Spec.MachineOSConfig.Name)
			return
		}
		m := a.momentsOf(o.Spec.MachineOSConfig.Name)
		if m.build != o.Name {
			*m = moments{build: o.Name, image: m.image}
		}
		if m.begun.IsZero() && o.Status.BuildStart != nil {
			m.begun = now
		}
		if m.imaged.IsZero() && status.IsTrue(o.Status.Conditions, status.BuildSucceeded) {
			m.imaged = now
		}
	case *mcfgv1.MachineOSConfig:
		if change.Type == watch.Deleted {
			delete(a.seen, o.Name)
			return
		}
		m := a.momentsOf(o.Name)
		if o.Status.CurrentImagePullSpec != m.image {
			m.image, m.done = o.Status.CurrentImagePullSpec, now
		}
	}
}

func (a *arena) momentsOf(config string) *moments {
	if a.seen[config] == nil {
		a.seen[config] = &moments{}
	}
	return a.seen[config]
}

// await waits until the image of a MachineOSConfig differs from the one before, and tells when what
// was learnt.
func (a *arena) await(b *testing.B, config string, before mcfgv1.ImageDigestFormat) moments {
	b.Helper()
	var found moments
	require.Eventually(b, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		found = *a.momentsOf(config)
		return !found.done.IsZero() && found.image != before && !found.imaged.IsZero()
	}, patience, time.Millisecond, "no image of %s", config)
	return found
}

// machineConfig has files of some 200 KB together, half of it random.
func (a *arena) machineConfig(pool string, seed int64) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-" + pool, Labels: map[string]string{mcfgv1.LabelRole: pool}}}
	var files []string
	for name, content := range configFiles(seed) {
		files = append(files, fmt.Sprintf(`{"path":"/%s","contents":{"source":"data:;base64,%s"}}`, name, base64Of(content)))
	}
	mc.Spec.OSImageURL = a.base
	mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[` + strings.Join(files, ",") + `]}}`)
	return mc
}

func (*arena) pool(name string) *mcfgv1.MachineConfigPool {
	roles := []string{name}
	if name != mcfgv1.PoolWorker {
		roles = append(roles, mcfgv1.PoolWorker)
	}
	return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: mcfgv1.LabelRole, Operator: metav1.LabelSelectorOpIn, Values: roles},
		}},
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}},
	}}
}

func (a *arena) osConfig(pool string) *mcfgv1.MachineOSConfig {
	return &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: pool},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		BaseImagePullSecret:     &mcfgv1.ImageSecretObjectReference{Name: "pull"},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   mcfgv1.ImageTagFormat(a.host + "/os/" + pool + ":latest"),
	}}
}

// rendered waits until pools have a configuration.
func (a *arena) rendered(b *testing.B, names ...string) {
	b.Helper()
	require.Eventually(b, func() bool {
		var list mcfgv1.MachineConfigPoolList
		require.NoError(b, a.List(b.Context(), &list))
		has := map[string]bool{}
		for _, pool := range list.Items {
			has[pool.Name] = pool.Spec.Configuration.Name != ""
		}
		for _, name := range names {
			if !has[name] {
				return false
			}
		}
		return true
	}, patience, 20*time.Millisecond)
}

// quiet waits until the controller has asked for nothing for a while, and gives how many calls it
// has made up to then.
func (a *arena) quiet(b *testing.B) int64 {
	b.Helper()
	const silence = 1500 * time.Millisecond
	last, since := a.calls.total.Load(), time.Now()
	require.Eventually(b, func() bool {
		if now := a.calls.total.Load(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > silence
	}, patience, 20*time.Millisecond)
	return last
}

// remove deletes MachineOSConfigs and waits until their builds are gone.
func (a *arena) remove(b *testing.B, names ...string) {
	b.Helper()
	ctx := context.WithoutCancel(b.Context())
	for _, name := range names {
		require.NoError(b, a.Delete(ctx, a.osConfig(name)))
	}
	require.Eventually(b, func() bool {
		var builds mcfgv1.MachineOSBuildList
		var configs mcfgv1.MachineOSConfigList
		require.NoError(b, a.List(ctx, &builds))
		require.NoError(b, a.List(ctx, &configs))
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(builds.Items)+len(configs.Items)+len(a.seen) == 0
	}, patience, 50*time.Millisecond)
}
