package presence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

// Kind by which Tekton is known to be there, and the label by which its version is.
const (
	definition   = "pipelineruns.tekton.dev"
	releaseLabel = "pipeline.tekton.dev/release"
	// oldest is the first version that gives pods user namespaces and fills in parameters of pod
	// templates.
	oldest = "v1.9.0"
	// settling is how long the API server may take to serve a kind that was just defined.
	settling = time.Second
	// mostLooks is how often it is asked then.
	mostLooks = 30
)

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Tekton watches whether Tekton is there, and its objects while it is. Nothing is asked again and
// again: the kind's definition tells when it comes and goes.
type Tekton struct {
	config     *rest.Config
	scheme     *runtime.Scheme
	mapper     func() (meta.RESTMapper, error)
	namespace  string
	components []string
	notify     []func(client.Object)

	mutex   sync.Mutex
	first   chan struct{} // closed when something is known
	objects cache.Cache
	end     context.CancelFunc
	missing error // why there is none
}

// New watches the objects of some components, by the label app.kubernetes.io/component, in
// one namespace.
func New(config *rest.Config, scheme *runtime.Scheme, mapper func() (meta.RESTMapper, error), namespace string, components ...string) *Tekton {
	return &Tekton{
		config: config, scheme: scheme, mapper: mapper, namespace: namespace, components: components, first: make(chan struct{}),
		missing: errors.New("nothing is known of it yet"),
	}
}

// Notify has a function called with every object that changes. It is called before Start.
func (t *Tekton) Notify(f func(client.Object)) { t.notify = append(t.notify, f) }

// Start watches until ctx ends.
func (t *Tekton) Start(ctx context.Context) error {
	one := &metav1.PartialObjectMetadata{}
	one.SetGroupVersionKind(definitionKind)
	definitions, err := cache.New(t.config, cache.Options{Scheme: t.scheme, ByObject: map[client.Object]cache.ByObject{
		one: {Field: fields.OneTermEqualSelector("metadata.name", definition)},
	}})
	if err != nil {
		return fmt.Errorf("watching whether Tekton is there: %w", err)
	}
	informer, err := definitions.GetInformer(ctx, one, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching whether Tekton is there: %w", err)
	}
	changed := make(chan struct{}, 1)
	tell := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(_, o any) { tell(o) },
	}); err != nil {
		return fmt.Errorf("watching whether Tekton is there: %w", err)
	}
	go func() {
		if definitions.WaitForCacheSync(ctx) {
			tell(nil)
		}
	}()
	go t.follow(ctx, definitions, changed)
	return definitions.Start(ctx)
}

// follow applies each change. What the API server does not serve yet is asked for again: that tells
// no one.
func (t *Tekton) follow(ctx context.Context, definitions client.Reader, changed <-chan struct{}) {
	var again <-chan time.Time
	looks := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			looks = 0
		case <-again:
		}
		again = nil
		if looks++; t.detect(ctx, definitions) && looks < mostLooks {
			timer := time.NewTimer(settling) //nolint:forbidigo // the watch waits in real time
			again = timer.C
		}
	}
}

// detect finds out whether Tekton is installed. It reports whether to look again although nothing
// changes.
func (t *Tekton) detect(ctx context.Context, definitions client.Reader) (again bool) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(definitionKind)
	err := definitions.Get(ctx, client.ObjectKey{Name: definition}, found)
	isThere := err == nil && found.DeletionTimestamp.IsZero()
	if !isThere {
		t.stopCache(errors.New("Tekton is not installed: the cluster has no kind PipelineRun of tekton.dev/v1; install Tekton Pipelines " + oldest +
			" or later, or set the type in the MachineOSConfig to Job"))
		return false
	}
	if err := checkRelease(found.Labels[releaseLabel]); err != nil {
		t.stopCache(err)
		return false
	}
	mapper, err := t.mapper()
	if err == nil {
		_, err = mapper.RESTMapping(tektonv1.SchemeGroupVersion.WithKind("PipelineRun").GroupKind(), tektonv1.SchemeGroupVersion.Version)
	}
	if err != nil {
		t.stopCache(fmt.Errorf("this version of Tekton is not supported: it does not serve PipelineRun of tekton.dev/v1; install Tekton Pipelines %s or later", oldest))
		return true
	}
	if err := t.startCache(ctx); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Watching Tekton's objects")
		return true
	}
	return false
}

// checkRelease refuses versions that are too old. Builds from sources have none, and are taken as
// they are.
func checkRelease(release string) error {
	has, err := version.ParseSemantic(release)
	if err != nil || has.AtLeast(version.MustParseSemantic(oldest)) {
		return nil //nolint:nilerr // it is no version
	}
	return fmt.Errorf("this version of Tekton is not supported: it is %s; install Tekton Pipelines %s or later", release, oldest)
}

// stopCache ends the watches, and keeps why.
func (t *Tekton) stopCache(why error) {
	t.mutex.Lock()
	end := t.end
	t.objects, t.end, t.missing = nil, nil, why
	t.markKnown()
	t.mutex.Unlock()
	if end != nil {
		end()
	}
	t.notifyAll(nil)
}

// markKnown releases callers that asked before the first detection.
func (t *Tekton) markKnown() {
	select {
	case <-t.first:
	default:
		close(t.first)
	}
}

// startCache begins to watch.
func (t *Tekton) startCache(ctx context.Context) error {
	t.mutex.Lock()
	isThere := t.objects != nil
	t.mutex.Unlock()
	if isThere {
		return nil
	}
	chosen, err := labels.NewRequirement(pods.ComponentLabel, selection.In, t.components)
	if err != nil {
		return err
	}
	objects, err := cache.New(t.config, cache.Options{
		Scheme: t.scheme, DefaultNamespaces: map[string]cache.Config{t.namespace: {LabelSelector: labels.NewSelector().Add(*chosen)}},
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	for _, kind := range []client.Object{&tektonv1.PipelineRun{}, &tektonv1.TaskRun{}} {
		informer, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: t.changed, DeleteFunc: t.changed, UpdateFunc: func(_, o any) { t.changed(o) },
			})
		}
		if err != nil {
			end()
			return err
		}
	}
	go func() {
		if err := objects.Start(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Watching Tekton's objects")
		}
	}()
	if !objects.WaitForCacheSync(ctx) {
		end()
		return errors.New("its objects could not be listed")
	}
	t.mutex.Lock()
	t.objects, t.end, t.missing = objects, end, nil
	t.markKnown()
	t.mutex.Unlock()
	t.notifyAll(nil)
	return nil
}

func (t *Tekton) changed(o any) {
	if unknown, is := o.(toolscache.DeletedFinalStateUnknown); is {
		o = unknown.Obj
	}
	if object, is := o.(client.Object); is {
		t.notifyAll(object)
	}
}

// notifyAll passes a change on; nil is that Tekton was installed or removed.
func (t *Tekton) notifyAll(object client.Object) {
	for _, f := range t.notify {
		f(object)
	}
}

// Reader reads what is watched. It waits, in the sense of fault.Waiting, while Tekton is not there.
func (t *Tekton) Reader(ctx context.Context) (client.Reader, error) {
	select {
	case <-t.first:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.missing != nil {
		return nil, fault.NewWaiting(mcfgv1.ReasonKindNotInstalled, 0, t.missing)
	}
	return t.objects, nil
}
