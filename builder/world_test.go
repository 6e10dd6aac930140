package builder

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/statustest"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/trials"
	"github.com/layerwright/layerwright/trials/experiment"
	"github.com/layerwright/layerwright/trust/enforcement"
)

var t0 = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

const namespace = "layerwright"

// registryServer is a registry on a loopback port that does what a test asks it to.
type registryServer struct {
	*registrytest.Server

	host string
}

func newRegistry(tb testing.TB) *registryServer {
	tb.Helper()
	s := registrytest.New(tb, nil)
	return &registryServer{s, s.Host}
}

// answering has a function answer requests instead of the registry, where it says that it did.
func (s *registryServer) answering(answer func(http.ResponseWriter, *http.Request) bool) {
	s.Answer(answer)
}

// requests are those since the last call.
func (s *registryServer) requests() []string { return s.Forget() }

func (s *registryServer) has(tb testing.TB, reference string) bool {
	tb.Helper()
	_, err := ggcr.Head(s.parse(tb, reference))
	return err == nil
}

func (s *registryServer) parse(tb testing.TB, reference string) name.Reference {
	tb.Helper()
	ref, err := name.ParseReference(reference)
	require.NoError(tb, err)
	return ref
}

// digestOf is what a tag stands for.
func (s *registryServer) digestOf(tb testing.TB, reference string) string {
	tb.Helper()
	found, err := ggcr.Head(s.parse(tb, reference))
	require.NoError(tb, err)
	return found.Digest.String()
}

// tags are those of a repository, with the digests that they stand for.
func (s *registryServer) tags(tb testing.TB, repository string) map[string]string {
	tb.Helper()
	repo, err := name.NewRepository(s.host + "/" + repository)
	require.NoError(tb, err)
	tags := map[string]string{}
	list, err := ggcr.List(repo)
	if err != nil { // nothing was ever pushed
		return tags
	}
	for _, tag := range list {
		tags[tag] = s.digestOf(tb, repo.Tag(tag).String())
	}
	return tags
}

// pushBase pushes an OS image and gives it by digest. The seed makes it another image.
func (s *registryServer) pushBase(tb testing.TB, repository, seed string, architectures ...string) string {
	tb.Helper()
	if len(architectures) == 0 {
		return s.Push(tb, repository+":"+seed, osImage(tb, seed, "amd64"))
	}
	var images []v1.Image
	for _, arch := range architectures {
		images = append(images, osImage(tb, seed, arch))
	}
	return s.pushIndex(tb, repository+":"+seed, images...)
}

// pushIndex pushes an index of images, each for the platform that it names, and gives it by digest.
func (s *registryServer) pushIndex(tb testing.TB, reference string, images ...v1.Image) string {
	tb.Helper()
	var all []mutate.IndexAddendum
	for _, image := range images {
		all = append(all, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: must(image.ConfigFile()).Platform()}})
	}
	return s.Push(tb, reference, mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), all...))
}

// osImage is an image that says it can be booted.
func osImage(tb testing.TB, seed, arch string) v1.Image {
	tb.Helper()
	layer := registrytest.Layer(tb, map[string]string{
		"usr/": "", "usr/bin/": "", "etc/": "", "etc/systemd/": "", "var/": "", "usr/bin/rpm-ostree": "release " + seed + " " + arch,
	})
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layer)
	require.NoError(tb, err)
	config, err := image.ConfigFile()
	require.NoError(tb, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config.Labels = map[string]string{mcfgv1.ImageLabelBootc: "1", mcfgv1.ImageLabelStream: "rhel-10"}
	image, err = mutate.ConfigFile(image, config)
	require.NoError(tb, err)
	return image
}

// world is an API server and a registry, with the reconcilers at work on them.
type world struct {
	client.WithWatch
	t        *testing.T
	clock    *clocktesting.FakePassiveClock
	recorder *clientevents.FakeRecorder
	registry *registryServer
	base     string
	cacheDir string
	// installs are files, by name and with their content, that a build adds to its image.
	installs map[string]string

	// writes are all of the reconcilers that went through, such as "create MachineOSBuild
	// worker-1".
	writes []string
	// before and after are called around every write, and fail it. What failed after has happened.
	before, after func(call string) error
	quiet         bool
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(t0), recorder: clientevents.NewFakeRecorder(1000), registry: newRegistry(t), cacheDir: t.TempDir(),
	}
	w.base = w.registry.pushBase(t, "stream/os", "one")
	base := fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).
		WithStatusSubresource(&mcfgv1.MachineConfigPool{}, &mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSBuild{}, &mcfgv1alpha1.MachineOSImage{}, &mcfgv1.MachineConfigNode{}).Build()
	w.WithWatch = interceptor.NewClient(base, apitest.Writes(w.clock, w.call, &mcfgv1.MachineOSBuildList{}, &mcfgv1alpha1.MachineOSImageList{}))
	w.add(w.secret("push", "hunter2"), w.secret("pull", "hunter2"))
	w.add(objects...)
	return w
}

// layered is a world with pools that have a MachineOSConfig, and their rendered MachineConfig.
func layered(t *testing.T, pools ...string) *world {
	t.Helper()
	w := newWorld(t)
	for _, pool := range pools {
		w.add(w.rendered(pool, "1", "/etc/motd", "one"), newPool(pool, "rendered-"+pool+"-1"), w.config(pool))
	}
	return w
}

func (w *world) secret(name, password string) *corev1.Secret {
	text, err := json.Marshal(map[string]any{"auths": map[string]any{w.registry.host: map[string]string{"username": "builder", "password": password}}})
	require.NoError(w.t, err)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: text},
	}
}

func (w *world) rendered(pool, suffix, path, content string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "rendered-" + pool + "-" + suffix},
		Spec: mcfgv1.MachineConfigSpec{
			OSImageURL: w.base,
			Config: runtime.RawExtension{Raw: fmt.Appendf(nil,
				`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":%q,"contents":{"source":"data:,%s"}}]}}`, path, content)},
		},
	}
}

func newPool(name, rendered string) *mcfgv1.MachineConfigPool {
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pool.Spec.Configuration.Name = rendered
	return pool
}

func (w *world) config(pool string) *mcfgv1.MachineOSConfig {
	return &mcfgv1.MachineOSConfig{
		ObjectMeta: metav1.ObjectMeta{Name: pool},
		Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: pool}, ImageBuilder: mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			BaseImagePullSecret: &mcfgv1.ImageSecretObjectReference{Name: "pull"}, RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(w.registry.host + "/host/os:latest"),
		},
	}
}

// call makes one write unless a fault is injected.
func (w *world) call(call string, do func() error) error {
	if w.before != nil && !w.quiet {
		if err := w.before(call); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if w.quiet {
		return nil
	}
	w.writes = append(w.writes, call)
	if w.after != nil {
		return w.after(call)
	}
	return nil
}

// quietly does something as a person would: it is neither counted nor failed.
func (w *world) quietly(do func() error) {
	w.t.Helper()
	w.quiet = true
	defer func() { w.quiet = false }()
	require.NoError(w.t, do())
}

// add makes objects, with their status.
func (w *world) add(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		w.quietly(func() error {
			object, isObject := o.DeepCopyObject().(client.Object)
			require.True(w.t, isObject)
			return w.Create(w.t.Context(), object)
		})
	}
}

// edit changes an object that is there, and its generation with it.
func edit[T client.Object](w *world, object T, name string, change func(T)) {
	w.t.Helper()
	w.quietly(func() error {
		key := client.ObjectKey{Name: name}
		if _, isSecret := any(object).(*corev1.Secret); isSecret {
			key.Namespace = namespace
		}
		if err := w.Get(w.t.Context(), key, object); err != nil {
			return err
		}
		change(object)
		object.SetGeneration(object.GetGeneration() + 1)
		return w.Update(w.t.Context(), object)
	})
}

func (w *world) editConfig(name string, change func(*mcfgv1.MachineOSConfig)) {
	w.t.Helper()
	edit(w, &mcfgv1.MachineOSConfig{}, name, change)
}

// annotate sets an annotation of a MachineOSConfig, which is no new generation.
func (w *world) annotate(name, key string) {
	w.t.Helper()
	w.editConfig(name, func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, "")
		c.Generation--
	})
}

// rerender gives a pool another rendered MachineConfig.
func (w *world) rerender(pool, suffix, path, content string) {
	w.t.Helper()
	w.add(w.rendered(pool, suffix, path, content))
	w.use(pool, "rendered-"+pool+"-"+suffix)
}

// use gives a pool a rendered MachineConfig that is there.
func (w *world) use(pool, rendered string) {
	w.t.Helper()
	edit(w, &mcfgv1.MachineConfigPool{}, pool, func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = rendered })
}

func (w *world) remove(o client.Object) {
	w.t.Helper()
	w.quietly(func() error { return w.Delete(w.t.Context(), o) })
}

func read[T client.Object](w *world, object T, name string) T {
	w.t.Helper()
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: name}, object))
	return object
}

func (w *world) osConfig(name string) *mcfgv1.MachineOSConfig {
	w.t.Helper()
	return read(w, &mcfgv1.MachineOSConfig{}, name)
}

func (w *world) pool(name string) *mcfgv1.MachineConfigPool {
	w.t.Helper()
	return read(w, &mcfgv1.MachineConfigPool{}, name)
}

func (w *world) builds() []mcfgv1.MachineOSBuild {
	w.t.Helper()
	var list mcfgv1.MachineOSBuildList
	require.NoError(w.t, w.List(w.t.Context(), &list))
	return list.Items
}

// images are the MachineOSImages.
func (w *world) images() []mcfgv1alpha1.MachineOSImage {
	w.t.Helper()
	var list mcfgv1alpha1.MachineOSImageList
	require.NoError(w.t, w.List(w.t.Context(), &list))
	return list.Items
}

// settings are what a process is started with.
type settings struct {
	Options

	Signer      images.Signer
	OwnKeys     images.Trust
	Attester    images.Attester
	SBOMs       images.SBOM
	TrustPolicy images.TrustPolicy
	Trust       enforcement.Trust
	// Bases stands in for what was found of base images.
	Bases func(config string) (*preflight.Base, *registry.Client)
}

// process is one: it knows what it has seen itself.
type process struct {
	*Builder

	keeper   *images.Keeper
	policies *enforcement.Reconciler
	trials   *trials.Reconciler
}

// builder starts a process.
func (w *world) builder(changes ...func(*settings)) *process { return w.builderOn(w, changes...) }

// builderOn starts one that reads and writes through a client of its own.
func (w *world) builderOn(c client.Client, changes ...func(*settings)) *process {
	connect := func(keychain authn.Keychain) *registry.Client {
		return registry.New(registry.Options{
			Keychain: keychain, Transport: &http.Transport{DisableKeepAlives: true}, Backoff: ggcr.Backoff{Duration: time.Millisecond, Steps: 2},
		})
	}
	o := settings{Options: Options{
		Namespace: namespace, Base: baseimage.New(baseimage.Options{CacheDir: w.cacheDir}), Fetcher: remote.New(remote.Options{}), Connect: connect,
	}}
	for _, change := range changes {
		change(&o)
	}
	return start(c, w, w.clock, w.recorder, o)
}

// start starts a process with clients.
func start(c client.Client, reader client.Reader, now clock.PassiveClock, recorder *clientevents.FakeRecorder, o settings) *process {
	publisher := events.NewPublisher(recorder)
	p := &process{keeper: images.New(images.Options{
		Client: c, Reader: reader, Clock: now, Events: publisher,
		Credentials: &credentials.Source{Reader: reader, Namespace: o.Namespace, Connect: o.Connect, Mirrors: o.Mirrors},
		Signer:      o.Signer, OwnKeys: o.OwnKeys, Attester: o.Attester, SBOMs: o.SBOMs, BuilderID: o.BuilderID, TrustPolicy: o.TrustPolicy, Metrics: o.Metrics,
		Inputs: maker.InputsOf, Begin: o.InWork.Note,
	})}
	o.Images, o.AcceptBase = p.keeper, o.Trust != nil
	if o.Attester != nil {
		o.Options.Attester = o.Attester
	}
	p.Builder = New(o.Options)
	p.use(c, reader, now, publisher)
	p.trials = p.tries(c, reader, now, publisher)
	if o.Bases == nil {
		o.Bases = p.Base
	}
	p.policies = enforcement.New(enforcement.Options{
		Client: c, Reader: reader, Clock: now, Events: publisher, Trust: o.Trust, TrustPolicy: o.TrustPolicy, Bases: o.Bases, Files: o.Base,
	})
	return p
}

// tries makes the reconciler of trials beside the builder's own.
func (b *Builder) tries(c client.Client, reader client.Reader, now clock.PassiveClock, publisher events.Publisher) *trials.Reconciler {
	o, p := &b.options, b.Parts()
	return trials.New(trials.Options{
		Client: c, Reader: reader, Clock: now, Events: publisher, Namespace: o.Namespace, Finder: p.Finder, Remover: p.Remover, InWork: o.InWork,
		Experiment: experiment.Options{Client: c, Base: o.Base, Checker: p.Checker, Maker: p.Maker, Backends: o.Backends},
	})
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: apitypes.NamespacedName{Name: name}}
}

// reconcileConfig reconciles a MachineOSConfig, and checks that the status which it leaves
// follows that before.
func (w *world) reconcileConfig(b *process, name string) (ctrl.Result, error) {
	w.t.Helper()
	before := &mcfgv1.MachineOSConfig{}
	gone := w.Get(w.t.Context(), client.ObjectKey{Name: name}, before) != nil
	result, err := b.configs.Reconcile(w.t.Context(), request(name))
	if after := (&mcfgv1.MachineOSConfig{}); !gone && w.Get(w.t.Context(), client.ObjectKey{Name: name}, after) == nil && len(after.Status.Conditions) > 0 {
		statustest.RequireStep(w.t, before, after)
	}
	return result, err
}

// reconcileBuild reconciles a build.
func (w *world) reconcileBuild(b *process, name string) (ctrl.Result, error) {
	w.t.Helper()
	before := &mcfgv1.MachineOSBuild{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: name}, before))
	result, err := b.builds.Reconcile(w.t.Context(), request(name))
	if after := (&mcfgv1.MachineOSBuild{}); w.Get(w.t.Context(), client.ObjectKey{Name: name}, after) == nil && len(after.Status.Conditions) > 0 {
		statustest.RequireStep(w.t, before, after, statustest.Frozen(status.FinalBuildTypes()...), statustest.Max(status.MaxBuildConditions))
	}
	return result, err
}

// round reconciles everything there is, and gives the errors that controller-runtime
// would try again.
func (w *world) round(b *process) error {
	w.t.Helper()
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	var errs []error
	note := func(_ ctrl.Result, err error) {
		if err != nil && !errors.Is(err, reconcile.TerminalError(nil)) {
			errs = append(errs, err)
		}
	}
	var configs mcfgv1.MachineOSConfigList
	require.NoError(w.t, w.List(w.t.Context(), &configs))
	for i := range configs.Items {
		note(w.reconcileConfig(b, configs.Items[i].Name))
	}
	for _, build := range w.builds() {
		note(w.reconcileBuild(b, build.Name))
	}
	return errors.Join(errs...)
}

// settle makes rounds until one writes nothing.
func (w *world) settle(b *process) {
	w.t.Helper()
	for range 20 {
		written := len(w.writes)
		require.NoError(w.t, w.round(b))
		if len(w.writes) == written {
			return
		}
	}
	require.Fail(w.t, "it never ends", "%v", w.writes)
}

// struggle makes rounds until one writes nothing and fails nowhere, whatever fails on the way.
func (w *world) struggle(process func() *process) {
	w.t.Helper()
	for range 40 {
		written := len(w.writes)
		err := w.round(process())
		if len(w.writes) == written && err == nil {
			return
		}
	}
	require.Fail(w.t, "it never ends", "%v", w.writes)
}

// fourRounds are enough for what a person changed to reach the backend.
func (w *world) fourRounds(p *process) {
	w.t.Helper()
	for range 4 {
		require.NoError(w.t, w.round(p))
	}
}

// says is what a condition of a MachineOSConfig says.
func (w *world) says(name, conditionType string) string {
	w.t.Helper()
	return text(w.osConfig(name).Status.Conditions, conditionType)
}

func text(conditions []metav1.Condition, conditionType string) string {
	c := status.Find(conditions, conditionType)
	if c == nil {
		return "none"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
}

// states are the builds with their states, sorted by name.
func (w *world) states() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, b := range w.builds() {
		if ready := status.Find(b.Status.Conditions, status.Ready); ready != nil {
			out[b.Name] = ready.Reason
			continue
		}
		out[b.Name] = ""
	}
	return out
}

// told are the events since the last call.
func (w *world) told() []string { return apitest.DrainEvents(w.recorder) }

// unpacked is the content of a file in an image, as a node sees it.
func (w *world) unpacked(reference, arch, path string) string {
	w.t.Helper()
	image, err := ggcr.Image(w.registry.parse(w.t, reference), ggcr.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	require.NoError(w.t, err)
	r := tar.NewReader(mutate.Extract(image))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return ""
		}
		require.NoError(w.t, err)
		if header.Name == path {
			content, err := io.ReadAll(r)
			require.NoError(w.t, err)
			return string(content)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func mutateConfig(image v1.Image, config *v1.ConfigFile) (v1.Image, error) {
	return mutate.ConfigFile(image, config)
}
