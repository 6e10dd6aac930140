package status

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ChangeMetadata changes labels, annotations and finalizers of an object, unless it is gone or has
// changed since it was read. The status in hand stays: it is written at the end of the reconcile.
func ChangeMetadata[T Object](ctx context.Context, c client.Writer, obj T, change func(T)) error {
	before, after := copyOf(obj), copyOf(obj).(T)
	change(after)
	if apiequality.Semantic.DeepEqual(before, Object(after)) {
		return nil
	}
	err := c.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing %s %q: %w", kindOf(obj), obj.GetName(), err)
	}
	obj.SetLabels(after.GetLabels())
	obj.SetAnnotations(after.GetAnnotations())
	obj.SetFinalizers(after.GetFinalizers())
	obj.SetResourceVersion(after.GetResourceVersion())
	return nil
}

// Acknowledge removes annotations whose request has been served, and reports whether there was one.
// When it has been served is for those to say who serve it.
func Acknowledge(ctx context.Context, c client.Writer, obj Object, keys ...string) (asked bool, _ error) {
	for _, key := range keys {
		asked = asked || metav1.HasAnnotation(metav1.ObjectMeta{Annotations: obj.GetAnnotations()}, key)
	}
	return asked, ChangeMetadata(ctx, c, obj, func(o Object) {
		annotations := o.GetAnnotations()
		for _, key := range keys {
			delete(annotations, key)
		}
		o.SetAnnotations(annotations)
	})
}
