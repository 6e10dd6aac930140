package bootimages

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// write patches the resource: the image, or the reference to the template that has it, and the user
// data where that was asked for. It is bound to the version that was read: what someone else
// changes meanwhile is looked at first.
func (u *updater) write(ctx context.Context, s *scope, image, managedUserData bool) error {
	before := s.resource.object
	after := before.DeepCopy()
	switch {
	case image && u.kind.isClusterAPI():
		name, err := u.clone(ctx, s)
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedField(after.Object, name, "spec", "template", "spec", "infrastructureRef", "name"); err != nil {
			return fmt.Errorf("naming template %q: %w", name, err)
		}
	case image:
		if err := unstructured.SetNestedMap(after.Object, s.decision.Spec, u.kind.providerSpec...); err != nil {
			return fmt.Errorf("writing the provider specification: %w", err)
		}
	}
	if managedUserData {
		if err := unstructured.SetNestedField(after.Object, s.resource.userData+managedSuffix, s.resource.userDataField...); err != nil {
			return fmt.Errorf("naming the user data: %w", err)
		}
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := u.client.Patch(ctx, after, patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("patching %s: %w", s.resource.id, err)
	}
	return nil
}
