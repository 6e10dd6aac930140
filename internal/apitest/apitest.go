package apitest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
)

// Scheme has Layerwright's kinds, those of Kubernetes that it works with, and more.
func Scheme(tb testing.TB, more ...func(*runtime.Scheme) error) *runtime.Scheme {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range append([]func(*runtime.Scheme) error{
		corev1.AddToScheme, batchv1.AddToScheme, eventsv1.AddToScheme, rbacv1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme,
	}, more...) {
		require.NoError(tb, add(scheme))
	}
	return scheme
}

// DrainEvents returns the events since the last call.
func DrainEvents(recorder *clientevents.FakeRecorder) (all []string) {
	for len(recorder.Events) > 0 {
		all = append(all, <-recorder.Events)
	}
	return all
}

// Call is what Writes calls a write, such as "create MachineOSBuild worker-1".
func Call(verb string, object runtime.Object, name string) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", verb, reflect.TypeOf(object).Elem().Name(), name))
}

// Writes has a function make every write, which may fail it before or after. To what a fake client
// does it adds UIDs, creation times, generations of new objects, and preconditions of deletions;
// and a garbage collector of the kinds of some lists.
func Writes(now clock.PassiveClock, through func(call string, do func() error) error, owned ...client.ObjectList) interceptor.Funcs {
	uids := 0
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return through(Call("create", o, o.GetName()), func() error {
				if o.GetUID() == "" {
					uids++
					o.SetUID(types.UID(fmt.Sprintf("uid-%d", uids)))
				}
				o.SetGeneration(1)
				o.SetCreationTimestamp(status.Second(now.Now()))
				return c.Create(ctx, o, opts...)
			})
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return through(Call("update", o, o.GetName()), func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return through(Call("patch", o, o.GetName()), func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, part string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return through(Call(part, o, o.GetName()), func() error { return c.SubResource(part).Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return through(Call("delete", o, o.GetName()), func() error { return remove(ctx, c, o, (&client.DeleteOptions{}).ApplyOptions(opts), owned) })
		},
	}
}

func remove(ctx context.Context, c client.Client, o client.Object, options *client.DeleteOptions, owned []client.ObjectList) error {
	stored := o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is what the object is
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), stored); err != nil {
		return err
	}
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != stored.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("another UID"))
	}
	if len(owned) == 0 {
		return c.Delete(ctx, stored)
	}
	if err := discard(ctx, c, stored); err != nil {
		return err
	}
	for _, kind := range owned {
		list := kind.DeepCopyObject().(client.ObjectList) //nolint:forcetypeassert // as above
		if err := c.List(ctx, list); err != nil {
			return err
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object) //nolint:forcetypeassert // lists of a client have nothing else
			if len(o.GetOwnerReferences()) == 0 || o.GetOwnerReferences()[0].UID != stored.GetUID() || !o.GetDeletionTimestamp().IsZero() {
				return nil
			}
			return discard(ctx, c, o)
		}); err != nil {
			return err
		}
	}
	return nil
}

// discard deletes an object that waits for no dependents: the garbage collector finds none, or
// isn't asked to.
func discard(ctx context.Context, c client.Client, o client.Object) error {
	finalizers := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	if len(finalizers) != len(o.GetFinalizers()) {
		o.SetFinalizers(finalizers)
		if err := c.Update(ctx, o); err != nil {
			return err
		}
	}
	return c.Delete(ctx, o)
}
