package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
	"github.com/layerwright/layerwright/internal/registry/mirrorsets"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/statustest"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/streams/source"
)

var t0 = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

const namespace = "layerwright"

// registryOf is what a registry has: labels by image, and releases with their tags.
type registryOf struct {
	labels   map[string]map[string]string
	releases map[string][]streams.Tag
	// down are images that can't be reached now, and denied those that may not be read.
	down, denied map[string]bool
	// tags are what tags stand for; images by digest stand for themselves.
	tags map[string]string
	// version is that of releases, and limits are theirs of boot images.
	version, limits string
	next            time.Time
	asked           int
	// anew reports whether the last question was about what tags stand for now.
	anew bool
}

func (r *registryOf) Release(_ context.Context, _ source.Access, image string) (streams.Release, error) {
	r.asked++
	switch {
	case r.down[image]:
		return streams.Release{}, errors.New("reading release image: connection refused")
	case r.releases[image] == nil:
		return streams.Release{}, fault.NewTerminal(mcfgv1.ReasonSourceFailed, errors.New("reading release image: it has no file /release-manifests/image-references"))
	}
	return streams.Release{Version: r.version, Tags: r.releases[image], SkewLimits: r.limits}, nil
}

func (r *registryOf) Inspect(_ context.Context, access source.Access, g streams.Gathered) (streams.Gathered, error) {
	r.anew = access.Anew
	g.Images = slices.Clone(g.Images)
	var errs []error
	for i := range g.Images {
		f := &g.Images[i]
		if f.Problem != nil {
			continue
		}
		problem := &streams.Problem{Type: mcfgv1.StreamImagesUnreadable, Reason: mcfgv1.ReasonSourceFailed, Message: f.Where + ": may not be read"}
		switch {
		case r.down[f.Image]:
			problem.Reason = mcfgv1.ReasonRetrying
			f.Problem = problem
			errs = append(errs, errors.New("connection refused"))
			continue
		case r.denied[f.Image]:
			f.Problem = problem
			continue
		}
		f.Pinned = f.Image
		if to := r.tags[f.Image]; to != "" {
			f.Pinned = to
		}
		f.Labels = r.labels[f.Pinned]
	}
	return g, fault.Join(errs...)
}

func (r *registryOf) NextLook(streams.Gathered) (time.Time, bool) { return r.next, !r.next.IsZero() }

// image is one by digest.
func image(name string) string {
	return "quay.io/os/" + name + "@sha256:" + strings.Repeat("0", 63) + name[len(name)-1:]
}

// addStream adds the images of a stream, and returns the tags of a release that names them.
func (r *registryOf) addStream(name, version string) []streams.Tag {
	system, extensions := image(name+"-"+version), image(name+"-extensions-"+version)
	r.labels[system] = map[string]string{mcfgv1.ImageLabelStream: name, mcfgv1.ImageLabelBootc: "1"}
	r.labels[extensions] = map[string]string{mcfgv1.ImageLabelStream: name, mcfgv1.ImageLabelExtensions: "true"}
	return []streams.Tag{
		{Name: "rhel-coreos-" + name, Kind: "DockerImage", Image: system},
		{Name: "rhel-coreos-" + name + "-extensions", Kind: "DockerImage", Image: extensions},
	}
}

// world is an API server with a reconciler at work on it.
type world struct {
	client.WithWatch
	t        *testing.T
	clock    *clocktesting.FakePassiveClock
	recorder *clientevents.FakeRecorder
	registry *registryOf
	options  Options
	// openShift are the kinds of OpenShift that the cluster has.
	openShift []schema.GroupVersionKind
	// through are the mirrors that images were read through.
	through mirrors.Table
	// writes counts those of the reconciler.
	writes int
	// after, if it is set, fails calls that write, when they have been done.
	after func() error
	// result is that of the last reconcile.
	result ctrl.Result
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(t0), recorder: clientevents.NewFakeRecorder(100),
		registry: &registryOf{
			labels: map[string]map[string]string{}, releases: map[string][]streams.Tag{}, down: map[string]bool{}, denied: map[string]bool{},
			tags: map[string]string{},
		},
		options: Options{Namespace: namespace, Recheck: time.Hour, PullSecret: types.NamespacedName{Namespace: namespace, Name: "pull"}},
	}
	base := fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithStatusSubresource(&mcfgv1.OSImageStream{}).WithObjects(objects...).Build()
	w.WithWatch = interceptor.NewClient(base, apitest.Writes(w.clock, w.write))
	return w
}

// write makes one write, and counts it.
func (w *world) write(_ string, do func() error) error {
	w.writes++
	if err := do(); err != nil || w.after == nil {
		return err
	}
	return w.after()
}

// reconcile makes one reconcile, in a process that has just begun.
func (w *world) reconcile() error {
	w.t.Helper()
	options := w.options
	options.Reader = w.registry
	options.Connect = func(_ authn.Keychain, table mirrors.Table) source.Registry {
		w.through = table
		return nil
	}
	r := New(options)
	r.client, r.reader, r.cache, r.clock = w, w, w, w.clock
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range w.openShift {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	var err error
	r.hasClusterVersion, err = discover(mapper, clusterVersion)
	require.NoError(w.t, err)
	r.mirrors, err = mirrorsets.New(mapper, w, w, namespace)
	require.NoError(w.t, err)
	r.events = events.NewPublisher(w.recorder)
	before := w.get()
	w.result, err = r.Reconcile(w.t.Context(), request())
	if after := w.get(); after != nil && before != nil {
		statustest.RequireStep(w.t, before, after, statustest.Max(16), statustest.Having("Ready"))
	}
	return err
}

// settle makes reconciles until one writes nothing.
func (w *world) settle() error {
	w.t.Helper()
	for range 10 {
		before := w.writes
		err := w.reconcile()
		if w.writes == before {
			return err
		}
	}
	w.t.Fatal("the reconciles never end")
	return nil
}

// get is the OSImageStream, nil if there is none.
func (w *world) get() *mcfgv1.OSImageStream {
	w.t.Helper()
	object := &mcfgv1.OSImageStream{}
	err := w.Get(w.t.Context(), client.ObjectKey{Name: "cluster"}, object)
	require.NoError(w.t, client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return object
}

// images are the OS images of the available streams.
func (w *world) images() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, stream := range w.get().Status.AvailableStreams {
		out[stream.Name] = string(stream.OSImage)
	}
	return out
}

// conditions are those that are True, with their reasons, and Ready in any case.
func (w *world) conditions() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, c := range w.get().Status.Conditions {
		if c.Type == status.Ready {
			out[c.Type] = string(c.Status) + " " + c.Reason
		} else if c.Status == metav1.ConditionTrue {
			out[c.Type] = c.Reason
		}
	}
	return out
}

// release makes a release of streams, and what names it.
func (w *world) release(name string, tags ...[]streams.Tag) string {
	image := "quay.io/release/" + name + "@sha256:" + strings.Repeat("0", 63) + name[len(name)-1:]
	w.registry.releases[image] = slices.Concat(tags...)
	return image
}

// edit changes the OSImageStream as an administrator does.
func (w *world) edit(change func(*mcfgv1.OSImageStream)) {
	w.t.Helper()
	object := w.get()
	change(object)
	object.Generation++
	require.NoError(w.t, w.Update(w.t.Context(), object))
}

// told are the events so far.
func (w *world) told() []string {
	var events []string
	for len(w.recorder.Events) > 0 {
		events = append(events, <-w.recorder.Events)
	}
	return events
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: maps.Clone(data)}
}

func osImageStream(defaultStream string, images ...mcfgv1.OSImageStreamImages) *mcfgv1.OSImageStream {
	o := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Generation: 1}}
	o.Spec = mcfgv1.OSImageStreamSpec{DefaultStream: defaultStream, Images: images}
	return o
}

// version is a ClusterVersion.
func version(desired, image string, history ...string) *unstructured.Unstructured {
	var entries []any
	for _, v := range history {
		entries = append(entries, map[string]any{"state": "Completed", "version": v})
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "version"},
		"status":   map[string]any{"desired": map[string]any{"version": desired, "image": image}, "history": entries},
	}}
	o.SetGroupVersionKind(clusterVersion)
	return o
}
