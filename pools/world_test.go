package pools

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/layerwright/layerwright/internal/selected"
	"github.com/layerwright/layerwright/internal/status/statustest"
	"github.com/layerwright/layerwright/machineconfigs"
)

// world is an API server with a reconciler at work on it.
type world struct {
	client.WithWatch
	t        *testing.T
	clock    *clocktesting.FakePassiveClock
	recorder *clientevents.FakeRecorder
	options  Options

	// writes are all of the reconciler that went through, such as "create MachineConfig
	// rendered-worker-1".
	writes []string
	// renders counts the joining of MachineConfigs.
	renders int
	// before and after are called around every call, and fail it. What failed after has happened.
	before, after func(call string) error
	// hidden are objects that the cache has not seen yet.
	hidden map[string]bool
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(t0), recorder: clientevents.NewFakeRecorder(100), hidden: map[string]bool{},
		options: Options{RenderedConfigLimit: 10, ControllerVersion: "v1.2.3"},
	}
	base := fake.NewClientBuilder().WithScheme(apitest.Scheme(t, admissionv1.AddToScheme)).WithStatusSubresource(&mcfgv1.MachineConfigPool{}).
		WithIndex(&mcfgv1.MachineConfig{}, fieldPool, poolOf).WithIndex(&mcfgv1.MachineConfig{}, selected.FieldRole, selected.RoleOf).Build()
	calls := apitest.Writes(w.clock, w.call)
	calls.Patch, calls.List, calls.Get = w.patch, w.list, w.get
	w.WithWatch = interceptor.NewClient(base, calls)
	for _, o := range objects {
		w.add(o)
	}
	return w
}

// call makes one call unless a fault is injected.
func (w *world) call(call string, do func() error) error {
	if w.before != nil {
		if err := w.before(call); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if !strings.HasPrefix(call, "list ") && !strings.HasPrefix(call, "get ") {
		w.writes = append(w.writes, call)
	}
	if w.after != nil {
		return w.after(call)
	}
	return nil
}

func (w *world) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return w.call(apitest.Call("patch", o, o.GetName()), func() error {
		if err := c.Patch(ctx, o, p, opts...); err != nil {
			return err
		}
		o.SetGeneration(o.GetGeneration() + 1)
		return c.Update(ctx, o)
	})
}

func (w *world) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return w.call(apitest.Call("get", o, key.Name), func() error {
		if _, isConfig := o.(*mcfgv1.MachineConfig); isConfig && w.hidden[key.Name] && isCached(opts) {
			return apierrors.NewNotFound(mcfgv1.GroupVersion.WithResource("machineconfigs").GroupResource(), key.Name)
		}
		if err := c.Get(ctx, key, o, opts...); err != nil {
			return err
		}
		if mc, isConfig := o.(*mcfgv1.MachineConfig); isConfig && isCached(opts) {
			machineconfigs.Trim(mc)
		}
		return nil
	})
}

func (w *world) list(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
	return w.call(apitest.Call("list", l, ""), func() error {
		if err := c.List(ctx, l, opts...); err != nil {
			return err
		}
		if configs, ok := l.(*mcfgv1.MachineConfigList); ok && slices.Contains(opts, client.ListOption(client.UnsafeDisableDeepCopy)) {
			configs.Items = slices.DeleteFunc(configs.Items, func(mc mcfgv1.MachineConfig) bool { return w.hidden[mc.Name] })
			for i := range configs.Items {
				machineconfigs.Trim(&configs.Items[i])
			}
		}
		return nil
	})
}

// isCached reports whether the object is read from the cache itself.
func isCached(opts []client.GetOption) bool {
	return slices.Contains(opts, client.GetOption(client.UnsafeDisableDeepCopy))
}

// quietly does something as a person would: it is neither counted nor failed.
func (w *world) quietly(do func() error) {
	w.t.Helper()
	before, after, writes := w.before, w.after, len(w.writes)
	w.before, w.after = nil, nil
	require.NoError(w.t, do())
	w.before, w.after, w.writes = before, after, w.writes[:writes]
}

// add makes an object, with its status.
func (w *world) add(o client.Object) {
	w.t.Helper()
	w.quietly(func() error {
		withStatus, isObject := o.DeepCopyObject().(client.Object)
		require.True(w.t, isObject)
		if err := w.Create(w.t.Context(), withStatus); err != nil {
			return err
		}
		if pool, isPool := o.(*mcfgv1.MachineConfigPool); isPool {
			stored := w.pool(pool.Name)
			stored.Status = pool.Status
			return w.Status().Update(w.t.Context(), stored)
		}
		return nil
	})
}

// edit changes an object that is there.
func edit[T client.Object](w *world, name string, object T, change func(T)) {
	w.t.Helper()
	w.quietly(func() error {
		if err := w.Get(w.t.Context(), client.ObjectKey{Name: name}, object); err != nil {
			return err
		}
		change(object)
		return w.Update(w.t.Context(), object)
	})
}

func (w *world) editPool(name string, change func(*mcfgv1.MachineConfigPool)) {
	w.t.Helper()
	edit(w, name, &mcfgv1.MachineConfigPool{}, change)
}

func (w *world) editConfig(name string, change func(*mcfgv1.MachineConfig)) {
	w.t.Helper()
	edit(w, name, &mcfgv1.MachineConfig{}, change)
}

func (w *world) editNode(name string, change func(*corev1.Node)) {
	w.t.Helper()
	edit(w, name, &corev1.Node{}, change)
}

func (w *world) remove(o client.Object) {
	w.t.Helper()
	w.quietly(func() error { return w.Delete(w.t.Context(), o) })
}

func (w *world) pool(name string) *mcfgv1.MachineConfigPool {
	w.t.Helper()
	pool := &mcfgv1.MachineConfigPool{}
	w.quietly(func() error { return w.Get(w.t.Context(), client.ObjectKey{Name: name}, pool) })
	return pool
}

func (w *world) config(name string) *mcfgv1.MachineConfig {
	w.t.Helper()
	mc := &mcfgv1.MachineConfig{}
	w.quietly(func() error { return w.Get(w.t.Context(), client.ObjectKey{Name: name}, mc) })
	return mc
}

// renderedNames are the names of all rendered MachineConfigs there are.
func (w *world) renderedNames() []string {
	w.t.Helper()
	var list mcfgv1.MachineConfigList
	w.quietly(func() error { return w.List(w.t.Context(), &list) })
	var names []string
	for i := range list.Items {
		if machineconfigs.IsRendered(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// reconciler is one process: it knows what it has seen itself.
func (w *world) reconciler() *Reconciler {
	r := New(w.options)
	r.client, r.reader, r.clock, r.events = w, w, w.clock, events.NewPublisher(w.recorder)
	r.renders = newRenders(func(o machineconfigs.Options, configs []*mcfgv1.MachineConfig) (*machineconfigs.Rendered, error) {
		w.renders++
		return machineconfigs.Render(o, configs)
	}, w.options.InWork)
	return r
}

// reconcile reconciles a pool, and checks that the status which it leaves follows that before.
func (w *world) reconcile(r *Reconciler, pool string) (ctrl.Result, error) {
	w.t.Helper()
	before := w.pool(pool)
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	result, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: pool}})
	after := w.pool(pool)
	if len(after.Status.Conditions) > 0 {
		statustest.RequireStep(w.t, before, after)
	}
	return result, err
}

// settle makes reconciles until one writes nothing.
func (w *world) settle(r *Reconciler, pools ...string) {
	w.t.Helper()
	for range 10 {
		written := len(w.writes)
		for _, pool := range pools {
			_, err := w.reconcile(r, pool)
			require.NoError(w.t, err)
		}
		if len(w.writes) == written {
			return
		}
	}
	require.Fail(w.t, "it never ends", "%v", w.writes)
}

// told are the events since the last call.
func (w *world) told() []string { return apitest.DrainEvents(w.recorder) }

// once fails the first call of a kind.
func once(call string, err error) func(string) error {
	failed := false
	return func(is string) error {
		if failed || !strings.HasPrefix(is, call) {
			return nil
		}
		failed = true
		return err
	}
}
