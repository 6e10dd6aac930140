package worldtest

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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	"github.com/layerwright/layerwright/builder"
	"github.com/layerwright/layerwright/builder/poolmirrors"
	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/registry/mirrorsets"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/statustest"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/trials"
	"github.com/layerwright/layerwright/trials/experiment"
	"github.com/layerwright/layerwright/trust/enforcement"
)

// T0 is when every story begins.
var T0 = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// Namespace has the secrets and ConfigMaps of a World.
const Namespace = "layerwright"

// RegistryServer is a registry on a loopback port that does what a test asks it to.
type RegistryServer struct{ *registrytest.Server }

// NewRegistry starts a registry.
func NewRegistry(tb testing.TB) *RegistryServer {
	tb.Helper()
	return &RegistryServer{registrytest.New(tb, nil)}
}

// Has reports whether the registry has what a reference names.
func (s *RegistryServer) Has(tb testing.TB, reference string) bool {
	tb.Helper()
	_, err := ggcr.Head(s.Parse(tb, reference))
	return err == nil
}

// Parse reads a reference.
func (s *RegistryServer) Parse(tb testing.TB, reference string) name.Reference {
	tb.Helper()
	ref, err := name.ParseReference(reference)
	require.NoError(tb, err)
	return ref
}

// DigestOf is what a tag stands for.
func (s *RegistryServer) DigestOf(tb testing.TB, reference string) string {
	tb.Helper()
	found, err := ggcr.Head(s.Parse(tb, reference))
	require.NoError(tb, err)
	return found.Digest.String()
}

// Tags are those of a repository, with the digests that they stand for.
func (s *RegistryServer) Tags(tb testing.TB, repository string) map[string]string {
	tb.Helper()
	repo, err := name.NewRepository(s.Host + "/" + repository)
	require.NoError(tb, err)
	tags := map[string]string{}
	list, err := ggcr.List(repo)
	if err != nil { // nothing was ever pushed
		return tags
	}
	for _, tag := range list {
		tags[tag] = s.DigestOf(tb, repo.Tag(tag).String())
	}
	return tags
}

// PushBase pushes an OS image and gives it by digest. The seed makes it another image.
func (s *RegistryServer) PushBase(tb testing.TB, repository, seed string, architectures ...string) string {
	tb.Helper()
	if len(architectures) == 0 {
		return s.Push(tb, repository+":"+seed, OSImage(tb, seed, "amd64"))
	}
	var images []v1.Image
	for _, arch := range architectures {
		images = append(images, OSImage(tb, seed, arch))
	}
	return s.PushIndex(tb, repository+":"+seed, images...)
}

// PushIndex pushes an index of images, each for the platform that it names, and gives it by digest.
func (s *RegistryServer) PushIndex(tb testing.TB, reference string, images ...v1.Image) string {
	tb.Helper()
	var all []mutate.IndexAddendum
	for _, image := range images {
		all = append(all, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: Must(image.ConfigFile()).Platform()}})
	}
	return s.Push(tb, reference, mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), all...))
}

// OSImage is an image that says it can be booted.
func OSImage(tb testing.TB, seed, arch string) v1.Image {
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

// World is an API server and a registry, with the reconcilers at work on them.
type World struct {
	client.WithWatch
	T        *testing.T
	Clock    *clocktesting.FakePassiveClock
	recorder *clientevents.FakeRecorder
	Registry *RegistryServer
	Base     string
	CacheDir string
	// Installs are files, by name and with their content, that a build adds to its image.
	Installs map[string]string

	// Writes are all of the reconcilers that went through, such as "create MachineOSBuild
	// worker-1".
	Writes []string
	// Before and after are called around every write, and fail it. What failed after has happened.
	Before, After func(call string) error
	quiet         bool
}

// New makes a World with objects.
func New(t *testing.T, objects ...client.Object) *World {
	t.Helper()
	w := &World{
		T: t, Clock: clocktesting.NewFakePassiveClock(T0), recorder: clientevents.NewFakeRecorder(1000), Registry: NewRegistry(t), CacheDir: t.TempDir(),
	}
	w.Base = w.Registry.PushBase(t, "stream/os", "one")
	base := fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).
		WithStatusSubresource(&mcfgv1.MachineConfigPool{}, &mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSBuild{}, &mcfgv1alpha1.MachineOSImage{}, &mcfgv1.MachineConfigNode{}).Build()
	w.WithWatch = interceptor.NewClient(base, apitest.Writes(w.Clock, w.call, &mcfgv1.MachineOSBuildList{}, &mcfgv1alpha1.MachineOSImageList{}))
	w.Add(w.Secret("push", "hunter2"), w.Secret("pull", "hunter2"))
	w.Add(objects...)
	return w
}

// Layered is a world with pools that have a MachineOSConfig, and their rendered MachineConfig.
func Layered(t *testing.T, pools ...string) *World {
	t.Helper()
	w := New(t)
	for _, pool := range pools {
		w.Add(w.Rendered(pool, "1", "/etc/motd", "one"), NewPool(pool, "rendered-"+pool+"-1"), w.Config(pool))
	}
	return w
}

// Secret has credentials of the registry.
func (w *World) Secret(name, password string) *corev1.Secret {
	text, err := json.Marshal(map[string]any{"auths": map[string]any{w.Registry.Host: map[string]string{"username": "builder", "password": password}}})
	require.NoError(w.T, err)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: text},
	}
}

// Rendered is a rendered MachineConfig of a pool, with one file.
func (w *World) Rendered(pool, suffix, path, content string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "rendered-" + pool + "-" + suffix},
		Spec: mcfgv1.MachineConfigSpec{
			OSImageURL: w.Base,
			Config: runtime.RawExtension{Raw: fmt.Appendf(nil,
				`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":%q,"contents":{"source":"data:,%s"}}]}}`, path, content)},
		},
	}
}

// NewPool is a pool with a rendered MachineConfig.
func NewPool(name, rendered string) *mcfgv1.MachineConfigPool {
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pool.Spec.Configuration.Name = rendered
	return pool
}

// Config is the MachineOSConfig of a pool, as small as it can be.
func (w *World) Config(pool string) *mcfgv1.MachineOSConfig {
	return &mcfgv1.MachineOSConfig{
		ObjectMeta: metav1.ObjectMeta{Name: pool},
		Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: pool}, ImageBuilder: mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			BaseImagePullSecret: &mcfgv1.ImageSecretObjectReference{Name: "pull"}, RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(w.Registry.Host + "/host/os:latest"),
		},
	}
}

// call makes one write unless a fault is injected.
func (w *World) call(call string, do func() error) error {
	if w.Before != nil && !w.quiet {
		if err := w.Before(call); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if w.quiet {
		return nil
	}
	w.Writes = append(w.Writes, call)
	if w.After != nil {
		return w.After(call)
	}
	return nil
}

// Quietly does something as a person would: it is neither counted nor failed.
func (w *World) Quietly(do func() error) {
	w.T.Helper()
	w.quiet = true
	defer func() { w.quiet = false }()
	require.NoError(w.T, do())
}

// Add makes objects, with their status.
func (w *World) Add(objects ...client.Object) {
	w.T.Helper()
	for _, o := range objects {
		w.Quietly(func() error {
			object, isObject := o.DeepCopyObject().(client.Object)
			require.True(w.T, isObject)
			return w.Create(w.T.Context(), object)
		})
	}
}

// Edit changes an object that is there, and its generation with it.
func Edit[T client.Object](w *World, object T, name string, change func(T)) {
	w.T.Helper()
	w.Quietly(func() error {
		key := client.ObjectKey{Name: name}
		if _, isSecret := any(object).(*corev1.Secret); isSecret {
			key.Namespace = Namespace
		}
		if err := w.Get(w.T.Context(), key, object); err != nil {
			return err
		}
		change(object)
		object.SetGeneration(object.GetGeneration() + 1)
		return w.Update(w.T.Context(), object)
	})
}

// EditConfig changes a MachineOSConfig as a person does.
func (w *World) EditConfig(name string, change func(*mcfgv1.MachineOSConfig)) {
	w.T.Helper()
	Edit(w, &mcfgv1.MachineOSConfig{}, name, change)
}

// Annotate sets an annotation of a MachineOSConfig, which is no new generation.
func (w *World) Annotate(name, key string) {
	w.T.Helper()
	w.EditConfig(name, func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, "")
		c.Generation--
	})
}

// Rerender gives a pool another rendered MachineConfig.
func (w *World) Rerender(pool, suffix, path, content string) {
	w.T.Helper()
	w.Add(w.Rendered(pool, suffix, path, content))
	w.Use(pool, "rendered-"+pool+"-"+suffix)
}

// Use gives a pool a rendered MachineConfig that is there.
func (w *World) Use(pool, rendered string) {
	w.T.Helper()
	Edit(w, &mcfgv1.MachineConfigPool{}, pool, func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = rendered })
}

// Remove deletes an object as a person does.
func (w *World) Remove(o client.Object) {
	w.T.Helper()
	w.Quietly(func() error { return w.Delete(w.T.Context(), o) })
}

// Read gets an object by its name.
func Read[T client.Object](w *World, object T, name string) T {
	w.T.Helper()
	require.NoError(w.T, w.Get(w.T.Context(), client.ObjectKey{Name: name}, object))
	return object
}

// OSConfig is a MachineOSConfig as it is now.
func (w *World) OSConfig(name string) *mcfgv1.MachineOSConfig {
	w.T.Helper()
	return Read(w, &mcfgv1.MachineOSConfig{}, name)
}

// Pool is a pool as it is now.
func (w *World) Pool(name string) *mcfgv1.MachineConfigPool {
	w.T.Helper()
	return Read(w, &mcfgv1.MachineConfigPool{}, name)
}

// Builds are the MachineOSBuilds.
func (w *World) Builds() []mcfgv1.MachineOSBuild {
	w.T.Helper()
	var list mcfgv1.MachineOSBuildList
	require.NoError(w.T, w.List(w.T.Context(), &list))
	return list.Items
}

// Images are the MachineOSImages.
func (w *World) Images() []mcfgv1alpha1.MachineOSImage {
	w.T.Helper()
	var list mcfgv1alpha1.MachineOSImageList
	require.NoError(w.T, w.List(w.T.Context(), &list))
	return list.Items
}

// Settings are what a process is started with.
type Settings struct {
	builder.Options

	Signer      images.Signer
	OwnKeys     images.Trust
	Attester    images.Attester
	SBOMs       images.SBOM
	TrustPolicy images.TrustPolicy
	Trust       enforcement.Trust
	// Bases stands in for what was found of base images.
	Bases func(config string) (*recipe.Base, *registry.Client)
}

// Process is one: it knows what it has seen itself.
type Process struct {
	*builder.Builder

	Keeper   *images.Keeper
	Policies *enforcement.Reconciler
	trials   *trials.Reconciler
}

// Builder starts a process.
func (w *World) Builder(changes ...func(*Settings)) *Process { return w.BuilderOn(w, changes...) }

// BuilderOn starts one that reads and writes through a client of its own.
func (w *World) BuilderOn(c client.Client, changes ...func(*Settings)) *Process {
	connect := func(keychain authn.Keychain) *registry.Client {
		return registry.New(registry.Options{
			Keychain: keychain, Transport: &http.Transport{DisableKeepAlives: true}, Backoff: ggcr.Backoff{Duration: time.Millisecond, Steps: 2},
		})
	}
	o := Settings{Options: builder.Options{
		Namespace: Namespace, Base: baseimage.New(baseimage.Options{CacheDir: w.CacheDir}), Fetcher: remote.New(remote.Options{}), Connect: connect,
	}}
	for _, change := range changes {
		change(&o)
	}
	return Start(c, w, w.Clock, w.recorder, o)
}

// Start starts a process with clients.
func Start(c client.Client, reader client.Reader, now clock.PassiveClock, recorder *clientevents.FakeRecorder, o Settings) *Process {
	publisher := events.NewPublisher(recorder)
	p := &Process{Keeper: images.New(images.Options{
		Client: c, Reader: reader, Clock: now, Events: publisher,
		Credentials: &credentials.Source{Reader: reader, Namespace: o.Namespace, Connect: o.Connect, Mirrors: o.Mirrors},
		Signer:      o.Signer, OwnKeys: o.OwnKeys, Attester: o.Attester, SBOMs: o.SBOMs, BuilderID: o.BuilderID, TrustPolicy: o.TrustPolicy, Metrics: o.Metrics,
		Inputs: order.InputsOf, Begin: o.InWork.Note,
	})}
	o.Images, o.AcceptBase = p.Keeper, o.Trust != nil
	if o.Attester != nil {
		o.Options.Attester = o.Attester
	}
	p.Builder = builder.New(o.Options)
	p.Assemble(c, reader, now, publisher)
	p.trials = trials.New(tries(p.Builder, o.Options, trials.Options{Client: c, Reader: reader, Clock: now, Events: publisher}))
	if o.Bases == nil {
		o.Bases = p.Base
	}
	p.Policies = enforcement.New(enforcement.Options{
		Client: c, Reader: reader, Clock: now, Events: publisher, Trust: o.Trust, TrustPolicy: o.TrustPolicy, Bases: o.Bases, Files: o.Base,
	})
	return p
}

// tries gives the reconciler of trials what it needs of the builder.
func tries(b *builder.Builder, from builder.Options, o trials.Options) trials.Options {
	p := b.Parts()
	o.Namespace, o.Finder, o.Remover, o.InWork = from.Namespace, p.Finder, p.Remover, from.InWork
	o.Experiment = experiment.Options{Client: o.Client, Base: from.Base, Checker: p.Checker, Registry: p.Registry, Maker: p.Maker, Backends: from.Backends}
	return o
}

// Request asks for a reconcile of a name.
func Request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: apitypes.NamespacedName{Name: name}}
}

// ReconcileConfig reconciles a MachineOSConfig, and checks that the status which it leaves
// follows that before.
func (w *World) ReconcileConfig(b *Process, name string) (ctrl.Result, error) {
	w.T.Helper()
	before := &mcfgv1.MachineOSConfig{}
	gone := w.Get(w.T.Context(), client.ObjectKey{Name: name}, before) != nil
	result, err := b.Parts().Configs.Reconcile(w.T.Context(), Request(name))
	if after := (&mcfgv1.MachineOSConfig{}); !gone && w.Get(w.T.Context(), client.ObjectKey{Name: name}, after) == nil && len(after.Status.Conditions) > 0 {
		statustest.RequireStep(w.T, before, after)
	}
	return result, err
}

// ReconcileBuild reconciles a build.
func (w *World) ReconcileBuild(b *Process, name string) (ctrl.Result, error) {
	w.T.Helper()
	before := &mcfgv1.MachineOSBuild{}
	require.NoError(w.T, w.Get(w.T.Context(), client.ObjectKey{Name: name}, before))
	result, err := b.Parts().Builds.Reconcile(w.T.Context(), Request(name))
	if after := (&mcfgv1.MachineOSBuild{}); w.Get(w.T.Context(), client.ObjectKey{Name: name}, after) == nil && len(after.Status.Conditions) > 0 {
		statustest.RequireStep(w.T, before, after, statustest.Frozen(status.FinalBuildTypes()...), statustest.Max(status.MaxBuildConditions))
	}
	return result, err
}

// Round reconciles everything there is, and gives the errors that controller-runtime
// would try again.
func (w *World) Round(b *Process) error {
	w.T.Helper()
	w.Clock.SetTime(w.Clock.Now().Add(time.Second))
	var errs []error
	note := func(_ ctrl.Result, err error) {
		if err != nil && !errors.Is(err, reconcile.TerminalError(nil)) {
			errs = append(errs, err)
		}
	}
	var configs mcfgv1.MachineOSConfigList
	require.NoError(w.T, w.List(w.T.Context(), &configs))
	for i := range configs.Items {
		note(w.ReconcileConfig(b, configs.Items[i].Name))
	}
	for _, build := range w.Builds() {
		note(w.ReconcileBuild(b, build.Name))
	}
	return errors.Join(errs...)
}

// Settle makes rounds until one writes nothing.
func (w *World) Settle(b *Process) {
	w.T.Helper()
	for range 20 {
		written := len(w.Writes)
		require.NoError(w.T, w.Round(b))
		if len(w.Writes) == written {
			return
		}
	}
	require.Fail(w.T, "it never ends", "%v", w.Writes)
}

// Struggle makes rounds until one writes nothing and fails nowhere, whatever fails on the way.
func (w *World) Struggle(process func() *Process) {
	w.T.Helper()
	for range 40 {
		written := len(w.Writes)
		err := w.Round(process())
		if len(w.Writes) == written && err == nil {
			return
		}
	}
	require.Fail(w.T, "it never ends", "%v", w.Writes)
}

// FourRounds are enough for what a person changed to reach the backend.
func (w *World) FourRounds(p *Process) {
	w.T.Helper()
	for range 4 {
		require.NoError(w.T, w.Round(p))
	}
}

// Says is what a condition of a MachineOSConfig says.
func (w *World) Says(name, conditionType string) string {
	w.T.Helper()
	return Text(w.OSConfig(name).Status.Conditions, conditionType)
}

// Text is what a condition says.
func Text(conditions []metav1.Condition, conditionType string) string {
	c := status.Find(conditions, conditionType)
	if c == nil {
		return "none"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
}

// States are the builds with their states, sorted by name.
func (w *World) States() map[string]string {
	w.T.Helper()
	out := map[string]string{}
	for _, b := range w.Builds() {
		if ready := status.Find(b.Status.Conditions, status.Ready); ready != nil {
			out[b.Name] = ready.Reason
			continue
		}
		out[b.Name] = ""
	}
	return out
}

// Told are the events since the last call.
func (w *World) Told() []string { return apitest.DrainEvents(w.recorder) }

// Unpacked is the content of a file in an image, as a node sees it.
func (w *World) Unpacked(reference, arch, path string) string {
	w.T.Helper()
	image, err := ggcr.Image(w.Registry.Parse(w.T, reference), ggcr.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	require.NoError(w.T, err)
	r := tar.NewReader(mutate.Extract(image))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return ""
		}
		require.NoError(w.T, err)
		if header.Name == path {
			content, err := io.ReadAll(r)
			require.NoError(w.T, err)
			return string(content)
		}
	}
}

// Must is a value that a test can't do without.
func Must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// DyingEverywhere has a process die before and after every write of a story, each time in another
// world, and demands the same end. Run tells the story, after fail has prepared the world, and
// gives its writes and its end. With -short it dies around a sample of the writes.
func DyingEverywhere(t *testing.T, run func(t *testing.T, fail func(w *World)) (writes []string, end string)) {
	t.Helper()
	writes, want := run(t, nil)
	require.NotEmpty(t, writes)
	crash := errors.New("the process dies")
	for i, write := range writes {
		if testing.Short() && i%6 != 0 {
			continue
		}
		nth := 0
		for _, earlier := range writes[:i] {
			if earlier == write {
				nth++
			}
		}
		inject := func() func(string) error {
			seen := 0
			return func(call string) error {
				if call != write {
					return nil
				}
				if seen++; seen == nth+1 {
					return crash
				}
				return nil
			}
		}
		_, got := run(t, func(w *World) { w.Before = inject() })
		require.Equal(t, want, got, "before %s", write)
		_, got = run(t, func(w *World) { w.After = inject() })
		require.Equal(t, want, got, "after %s", write)
	}
}

// Containerfile gives the pool a Containerfile.
func (w *World) Containerfile(text string) {
	w.T.Helper()
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: &text}}
	})
}

// Failing answers every request of a method with a status, or holds it until the client gives up
// where that is 0.
func Failing(method string, code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != method {
			return false
		}
		if code == 0 {
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(code)
		return true
	}
}

// ContentPolicies are the ImageContentSourcePolicies of OpenShift.
var ContentPolicies = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1alpha1", Kind: "ImageContentSourcePolicy"}

// Mirroring reads through mirrors.
func (w *World) Mirroring(o *Settings) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(ContentPolicies, meta.RESTScopeRoot)
	sets, err := mirrorsets.New(mapper, w, w, Namespace)
	require.NoError(w.T, err)
	o.Mirrors = poolmirrors.New(sets, w, w)
}
