package bootimages

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// historyKey is where the history of a resource is.
func historyKey(of id) types.NamespacedName {
	return types.NamespacedName{Namespace: of.Namespace, Name: names.BootImageHistory(of.Name, of.kind.groupKind.Kind)}
}

// record adds the update that is about to be made to the history, which is made if there is none.
// It goes with its resource.
func (u *updater) record(ctx context.Context, s *scope) error {
	of := s.resource.id
	key := historyKey(of)
	history := &mcfgv1alpha1.BootImageHistory{}
	err := u.reader.Get(ctx, key, history) // the cache may be one update behind
	if apierrors.IsNotFound(err) {
		history = &mcfgv1alpha1.BootImageHistory{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: s.resource.object.GetAPIVersion(), Kind: of.kind.groupKind.Kind, Name: of.Name, UID: s.resource.object.GetUID(),
			}},
		}}
		history.Spec.MachineResourceReference = mcfgv1alpha1.MachineResourceReference{
			Name: of.Name, Resource: of.kind.groupKind.Kind, APIGroup: of.kind.groupKind.Group,
		}
		err = u.client.Create(ctx, history)
	}
	if err != nil {
		return fmt.Errorf("recording the update in BootImageHistory %q: %w", key, err)
	}
	if about := history.Spec.MachineResourceReference; about.APIGroup != of.kind.groupKind.Group || about.Name != of.Name {
		return fault.NewTerminal("HistoryOfAnother", fmt.Errorf("BootImageHistory %q is about %s %q of %s; rename one of the two", key, about.Resource, about.Name, about.APIGroup))
	}
	before := history.DeepCopy()
	history.Status.Details = plan.Record(history.Status.Details, &s.decision, s.facts.version, u.second())
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := u.client.Status().Patch(ctx, history, patch); err != nil {
		return fmt.Errorf("recording the update in BootImageHistory %q: %w", key, err)
	}
	s.history = history
	return nil
}

// unrecord takes back what record wrote: the update was not made, and must not count as a try.
func (u *updater) unrecord(ctx context.Context, s *scope) error {
	before := s.history.DeepCopy()
	s.history.Status.Details = s.history.Status.Details[:len(s.history.Status.Details)-1]
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := u.client.Status().Patch(ctx, s.history, patch); err != nil {
		return fmt.Errorf("taking the update back from BootImageHistory %q: %w", client.ObjectKeyFromObject(s.history), err)
	}
	return nil
}

// setHistoryCondition writes into the history, if there is one, whether the resource has its wanted
// boot image.
func (u *updater) setHistoryCondition(ctx context.Context, s *scope, is *outcome) error {
	if s.history == nil {
		return nil
	}
	history := s.history.DeepCopy()
	patch := status.NewPatcher(u.client, history)
	summary := status.Summary{State: status.StateReady, Reason: status.ReasonSucceeded, Message: is.message}
	switch is.state { //nolint:exhaustive // the others need nothing here
	case metrics.BootImageWaiting:
		summary = status.Summary{State: status.StateReconciling, Reason: is.reason, Message: is.message}
	case metrics.BootImageFailed:
		summary = status.Summary{State: status.StateFailing, Reason: is.reason, Message: is.message}
	case metrics.BootImageSkipped, metrics.BootImageUnmanaged:
		summary.Reason = is.reason
	}
	if summary.Reason == "" {
		summary.Reason = status.ReasonWaiting
	}
	conditions := history.GetConditions()
	status.SetSummary(&conditions, u.clock.Now(), history.Generation, summary)
	history.SetConditions(conditions)
	_, err := patch.Finish(ctx, history, ctrl.Result{}, nil)
	return err
}
