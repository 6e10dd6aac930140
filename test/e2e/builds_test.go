//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/faultproxy"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

const (
	// buildPatience is far more than any wait takes, but for those of the product: a Lease that
	// runs out, a retry that backs off.
	buildPatience = 3 * time.Minute
	buildTick     = 250 * time.Millisecond
	// imagesPath is where the tests' images go in the registry.
	imagesPath = "builds"
)

// builds are what tests of builds work with: the deployed controller, and a proxy between it and
// the playground's registry.
type builds struct {
	client.Client
	proxy *faultproxy.Proxy
	// host is the proxy as the controller knows it, and base an OS image there, by digest.
	host, base string
	// push and pull are the names of the secrets for the proxy: tests run side by side, and each
	// has its own.
	push, pull string
	// registry is what is behind the proxy, as the tests see it.
	registry *stack.Registry
	// cluster is the name of the cluster, status what runs there, and clients ask it.
	cluster string
	status  *stack.Status
	clients *kubernetes.Clientset
	// servicesKey is the public key, in PEM, where a service signs; nil where the key of the
	// cluster's secret does.
	servicesKey []byte
	// patience is how long tests wait for one thing; zero is buildPatience.
	patience time.Duration
}

func newBuilds(t *testing.T) *builds {
	t.Helper()
	return newBuildsIn(t, clusterName)
}

// newBuildsIn is newBuilds in a cluster of a test's own.
func newBuildsIn(t *testing.T, cluster string) *builds {
	t.Helper()
	clients := clientsOf(t, cluster)
	require.NoError(t, await.DeploymentAvailable(within(t), clients, stack.Namespace, stack.ControllerName))
	ctrl.SetLogger(logr.Discard())
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{corev1.AddToScheme, eventsv1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	limited, err := named(t, cluster).Config()
	require.NoError(t, err)
	limited.QPS = -1
	c, err := client.New(limited, client.Options{Scheme: scheme})
	require.NoError(t, err)
	status, err := named(t, cluster).Status(t.Context())
	require.NoError(t, err)
	b := &builds{Client: c, cluster: cluster, status: status, clients: clients}
	b.proxy = faultproxy.New(&url.URL{Scheme: "https", Host: status.Registry}, trusting(t, status.RegistryCA))
	b.host = serveInside(t, status, b.proxy)
	b.registry, err = named(t, cluster).Registry(t.Context())
	require.NoError(t, err)
	b.base = b.host + strings.TrimPrefix(tinyImageIn(t, cluster), status.Registry)
	_, port, err := net.SplitHostPort(b.host)
	require.NoError(t, err)
	b.push, b.pull = "e2e-proxy-push-"+port, "e2e-proxy-pull-"+port
	b.secret(t, b.push, b.credentials(t, "push"))
	b.secret(t, b.pull, b.credentials(t, "pull"))
	return b
}

func statusOf(t *testing.T) *stack.Status {
	t.Helper()
	status, err := shared(t).Status(t.Context())
	require.NoError(t, err)
	return status
}

func trusting(t *testing.T, ca string) http.RoundTripper {
	t.Helper()
	text, err := os.ReadFile(ca)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(text))
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
}

// serveInside serves on the cluster's own network, where pods reach it by the address of the first
// node. Clients of registries talk to such addresses without TLS.
func serveInside(t *testing.T, status *stack.Status, handler http.Handler) (host string) {
	t.Helper()
	return serve(t, listenInside(t, status), handler)
}

// serve serves until the test ends.
func serve(t *testing.T, listener net.Listener, handler http.Handler) (host string) {
	t.Helper()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return listener.Addr().String()
}

// listenInside opens a listener in the network of the cluster.
func listenInside(t *testing.T, status *stack.Status) net.Listener {
	t.Helper()
	listener, err := status.Listen(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	return listener
}

// credentials are those of an account of the playground's registry, for the proxy.
func (b *builds) credentials(t *testing.T, account string) []byte {
	t.Helper()
	text, err := os.ReadFile(named(t, b.cluster).DockerConfig(account) + "/config.json")
	require.NoError(t, err)
	return bytes.ReplaceAll(text, []byte(b.registry.Host), []byte(b.host))
}

// dockerConfig logs in at a host.
func dockerConfig(t *testing.T, host, account, password string) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"username": account, "password": password}}})
	require.NoError(t, err)
	return text
}

// secret makes a secret, or replaces what it holds.
func (b *builds) secret(t *testing.T, name string, dockerConfig []byte) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: dockerConfig},
	}
	err := b.Create(t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		require.NoError(t, b.Update(t.Context(), secret))
		return
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(b.Delete(context.WithoutCancel(t.Context()), secret)))
	})
}

// layered is a pool with its MachineOSConfig.
type layered struct {
	*builds
	t    *testing.T
	name string
	// patience is buildPatience, or longer for what takes pods.
	patience time.Duration
}

// unasked makes a pool with a file of its own, and what else its MachineConfig is to say. No one
// has asked for an image of it yet: faults come before.
func (b *builds) unasked(t *testing.T, name string, edits ...func(*mcfgv1.MachineConfig)) *layered {
	t.Helper()
	p := &layered{builds: b, t: t, name: name, patience: cmp.Or(b.patience, buildPatience)}
	t.Cleanup(p.clean)
	mc := p.machineConfig("one")
	for _, edit := range edits {
		edit(mc)
	}
	for _, object := range []client.Object{mc, p.pool()} {
		require.NoError(t, b.Create(t.Context(), object))
	}
	return p
}

// ask asks for the pool's image.
func (p *layered) ask(changes ...func(*mcfgv1.MachineOSConfig)) {
	p.t.Helper()
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: p.name}, ImageBuilder: mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		BaseImagePullSecret:     &mcfgv1.ImageSecretObjectReference{Name: p.pull},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: p.push},
		RenderedImagePushSpec:   mcfgv1.ImageTagFormat(p.host + "/" + imagesPath + "/" + p.name + ":latest"),
	}}
	for _, change := range changes {
		change(config)
	}
	require.NoError(p.t, p.Create(p.t.Context(), config))
}

func (p *layered) machineConfig(content string) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-" + p.name, Labels: map[string]string{mcfgv1.LabelRole: p.name}}}
	mc.Spec.OSImageURL = p.base
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,%s"}}]}}`, content)
	return mc
}

func (p *layered) pool() *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: mcfgv1.LabelRole, Operator: metav1.LabelSelectorOpIn, Values: []string{mcfgv1.PoolWorker, p.name}},
		}},
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + p.name: ""}},
	}}
}

// clean removes everything, and checks that nothing stays: no build, no image, no tag.
func (p *layered) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), p.patience)
	defer cancel()
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: p.name}}
	require.NoError(p.t, client.IgnoreNotFound(p.Delete(ctx, config)))
	require.EventuallyWithT(p.t, func(t *assert.CollectT) {
		assert.True(t, apierrors.IsNotFound(p.Get(ctx, client.ObjectKeyFromObject(config), config)))
		assert.Empty(t, p.machineOSBuilds(ctx, t))
		assert.Empty(t, p.machineOSImages(ctx, t))
	}, p.patience, buildTick)
	for _, object := range []client.Object{p.pool(), p.machineConfig("")} {
		require.NoError(p.t, client.IgnoreNotFound(p.Delete(ctx, object)))
	}
}

// machineOSBuilds are the MachineOSBuilds of the pool.
func (p *layered) machineOSBuilds(ctx context.Context, t require.TestingT) []mcfgv1.MachineOSBuild {
	var list mcfgv1.MachineOSBuildList
	require.NoError(t, p.List(ctx, &list))
	var out []mcfgv1.MachineOSBuild
	for _, build := range list.Items {
		if build.Spec.MachineOSConfig.Name == p.name {
			out = append(out, build)
		}
	}
	return out
}

// machineOSImages are the MachineOSImages of the pool.
func (p *layered) machineOSImages(ctx context.Context, t require.TestingT) []mcfgv1alpha1.MachineOSImage {
	var list mcfgv1alpha1.MachineOSImageList
	require.NoError(t, p.List(ctx, &list))
	var out []mcfgv1alpha1.MachineOSImage
	for _, image := range list.Items {
		if image.Spec.MachineConfigPool == p.name {
			out = append(out, image)
		}
	}
	return out
}

// path matches the paths of the pool's repository that end so.
func (p *layered) path(ending string) *regexp.Regexp {
	return regexp.MustCompile("^/v2/" + imagesPath + "/" + p.name + "/" + ending)
}

// breaking lets requests for the pool's repository go wrong until the test ends, or remove is
// called.
func (p *layered) breaking(rules ...faultproxy.Rule) (remove func()) {
	remove = p.proxy.Add(rules...)
	p.t.Cleanup(remove)
	return remove
}

// change edits an object of the pool until that goes through.
func change[T client.Object](p *layered, object T, name string, edit func(T)) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: name}, object))
		edit(object)
		require.NoError(t, p.Update(p.t.Context(), object))
	})
}

func (p *layered) changeConfig(edit func(*mcfgv1.MachineOSConfig)) {
	p.t.Helper()
	change(p, &mcfgv1.MachineOSConfig{}, p.name, edit)
}

// write gives the pool's file another content.
func (p *layered) write(content string) {
	p.t.Helper()
	change(p, &mcfgv1.MachineConfig{}, "50-"+p.name, func(mc *mcfgv1.MachineConfig) { mc.Spec = p.machineConfig(content).Spec })
}

// rebuild asks for a build although nothing has changed.
func (p *layered) rebuild() {
	p.t.Helper()
	p.changeConfig(func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationRebuild, "")
	})
}

func (p *layered) eventually(condition func(t *assert.CollectT)) {
	p.t.Helper()
	require.EventuallyWithT(p.t, condition, p.patience, buildTick)
}

func (p *layered) config(t require.TestingT) *mcfgv1.MachineOSConfig {
	config := &mcfgv1.MachineOSConfig{}
	require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: p.name}, config))
	return config
}

// says waits until a condition of the MachineOSConfig begins so: "<status> <reason> <message>".
func (p *layered) says(conditionType, prefix string) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		got := conditionText(p.config(t).Status.Conditions, conditionType)
		assert.True(t, strings.HasPrefix(got, prefix), "%s is %q, not %q", conditionType, got, prefix)
	})
}

func conditionText(conditions []metav1.Condition, conditionType string) string {
	for _, c := range conditions {
		if c.Type == conditionType {
			return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
		}
	}
	return "none"
}

// building waits until a build of the pool has begun, and gives it.
func (p *layered) building() *mcfgv1.MachineOSBuild {
	p.t.Helper()
	var found mcfgv1.MachineOSBuild
	p.eventually(func(t *assert.CollectT) {
		builds := p.machineOSBuilds(p.t.Context(), t)
		require.NotEmpty(t, builds)
		found = builds[len(builds)-1]
		assert.Equal(t, "True", strings.Fields(conditionText(found.Status.Conditions, mcfgv1.BuildBuilding) + " ")[0])
	})
	return &found
}

// requireOneImage waits until the pool has the image of its configuration, and checks everything
// that there is of it: the object of its build and of the image, its tags, its signature, its
// layers byte for byte, and that nothing else is left. It returns the digest.
func (p *layered) requireOneImage(content string) string {
	p.t.Helper()
	p.requireReady(content)
	config := p.config(p.t)
	pinned := string(config.Status.CurrentImagePullSpec)
	builds, images := p.machineOSBuilds(p.t.Context(), p.t), p.machineOSImages(p.t.Context(), p.t)
	require.Len(p.t, builds, 1)
	require.Len(p.t, images, 1)
	require.Equal(p.t, pinned, string(images[0].Spec.PullSpec))
	require.Equal(p.t, map[string]string{p.name: digestIn(pinned), p.name + "-" + builds[0].Status.BuildKey: digestIn(pinned)}, p.tags())
	require.Equal(p.t, "True Signed", conditionText(images[0].Status.Conditions, mcfgv1alpha1.ImageSigned))
	require.Equal(p.t, 1, p.signatures(p.t, pinned))
	return digestIn(pinned)
}

func digestIn(pinned string) string {
	_, digest, _ := strings.Cut(pinned, "@")
	return digest
}

// requireReady waits until the pool is done and its image has the content, and checks image and
// build.
func (p *layered) requireReady(content string) {
	p.t.Helper()
	var config *mcfgv1.MachineOSConfig
	p.eventually(func(t *assert.CollectT) {
		config = p.config(t)
		require.Equal(t, "True Succeeded", conditionText(config.Status.Conditions, "Ready"))
		require.Equal(t, config.Generation, config.Status.ObservedGeneration)
		require.NotEmpty(t, config.Status.CurrentImagePullSpec)
		require.Equal(t, content, p.motd(t, string(config.Status.CurrentImagePullSpec)))
	})
	require.NotNil(p.t, config.Status.MachineOSBuild)
	build := &mcfgv1.MachineOSBuild{}
	require.NoError(p.t, p.Get(p.t.Context(), client.ObjectKey{Name: config.Status.MachineOSBuild.Name}, build))
	require.Contains(p.t, conditionText(build.Status.Conditions, mcfgv1.BuildSucceeded), "True ")
	require.Equal(p.t, config.Status.CurrentImagePullSpec, build.Status.DigestedImagePushSpec)
	require.True(p.t, build.Status.BuildEnd.After(build.Status.BuildStart.Time))
	image := p.image(p.t, string(config.Status.CurrentImagePullSpec))
	require.NoError(p.t, validate.Image(image))
	file, err := image.ConfigFile()
	require.NoError(p.t, err)
	require.Equal(p.t, build.Status.BuildKey, file.Config.Labels[mcfgv1.ImageLabelBuildKey])
	require.Equal(p.t, p.name, file.Config.Labels[mcfgv1.ImageLabelMachineConfigPool])
	require.Equal(p.t, digestIn(p.base), file.Config.Labels[mcfgv1.ImageLabelBaseDigest])
	ours := 0
	for _, h := range file.History {
		if h.CreatedBy == "layerwright: configuration" {
			ours++
		}
	}
	require.Equal(p.t, 1, ours, "one configuration layer")
}

// behind is the same image as the registry behind the proxy names it.
func (p *layered) behind(t require.TestingT, pinned string) name.Reference {
	ref, err := name.ParseReference(strings.Replace(pinned, p.host, p.registry.Host, 1))
	require.NoError(t, err)
	return ref
}

func (p *layered) image(t require.TestingT, pinned string) v1.Image {
	image, err := remote.Image(p.behind(t, pinned), p.registry.Options(p.t.Context(), "pull")...)
	require.NoError(t, err)
	return image
}

// motd is what the image's uppermost layer says is in /etc/motd.
func (p *layered) motd(t require.TestingT, pinned string) string {
	layers, err := p.image(t, pinned).Layers()
	require.NoError(t, err)
	content, err := layers[len(layers)-1].Uncompressed()
	require.NoError(t, err)
	defer func() { _ = content.Close() }()
	return fileIn(t, content, "etc/motd")
}

// attachmentTag is what cosign calls what it attaches to an image.
var attachmentTag = regexp.MustCompile(`^sha256-[0-9a-f]{64}\.(sig|att)$`)

// tags are those of the images in the pool's repository, with the digests that they stand for.
func (p *layered) tags() map[string]string {
	p.t.Helper()
	tags := p.allTags()
	maps.DeleteFunc(tags, func(tag, _ string) bool { return attachmentTag.MatchString(tag) })
	return tags
}

// allTags are tags, and those of what is attached to the images.
func (p *layered) allTags() map[string]string {
	p.t.Helper()
	repository, err := name.NewRepository(p.registry.Host + "/" + imagesPath + "/" + p.name)
	require.NoError(p.t, err)
	options := p.registry.Options(p.t.Context(), "pull")
	list, err := remote.List(repository, options...)
	if missing := (*transport.Error)(nil); errors.As(err, &missing) && missing.StatusCode == http.StatusNotFound {
		return nil // nothing was ever pushed
	}
	require.NoError(p.t, err)
	tags := map[string]string{}
	for _, tag := range list {
		found, err := remote.Head(repository.Tag(tag), options...)
		require.NoError(p.t, err)
		tags[tag] = found.Digest.String()
	}
	return tags
}

// toldOf waits for an event about an object, whose note begins so.
func (p *layered) toldOf(about, reason, note string) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		var seen []string
		for _, e := range p.events(t) {
			if e.Regarding.Name == about {
				seen = append(seen, e.Reason+" "+e.Note)
			}
		}
		assert.Contains(t, "\n"+strings.Join(seen, "\n"), "\n"+reason+" "+note)
	})
}

// told are the events with a reason about the pool's builds.
func (p *layered) told(reason string) []string {
	p.t.Helper()
	var told []string
	for _, build := range p.machineOSBuilds(p.t.Context(), p.t) {
		for _, e := range p.events(p.t) {
			if e.Regarding.UID == build.UID && e.Reason == reason {
				told = append(told, e.Note)
			}
		}
	}
	return told
}

// events are all about objects without a namespace.
func (p *layered) events(t require.TestingT) []eventsv1.Event {
	var list eventsv1.EventList
	require.NoError(t, p.List(p.t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
	return list.Items
}

// fileIn is the content of a file in an archive, empty where there is none.
func fileIn(t require.TestingT, archive io.Reader, path string) string {
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return ""
		}
		require.NoError(t, err)
		if header.Name == path {
			content, err := io.ReadAll(r)
			require.NoError(t, err)
			return string(content)
		}
	}
}
