package bootimages

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// awaitSlot reports whether the resource may be updated: the canary has shown that the boot image
// works, or this is the canary, and where the platform needs one, there is a template of it.
func (u *updater) awaitSlot(ctx context.Context, s *scope, wave string) (bool, error) {
	if s.decision.Reason != plan.ReasonPinned {
		if err := u.recall(ctx, s, wave); err != nil {
			return false, err
		}
		if err := u.elect(ctx, s, wave); err != nil {
			return false, err
		}
		if first, wait := u.ledger.admit(wave, s.resource.id, u.clock.Now(), u.options.Soak); wait > 0 {
			s.wait, s.waitUntil = first+" is updated first, and no machine of it has joined the cluster since", wait
			return false, nil
		}
	}
	if s.decision.Wanted.Upload == nil {
		return true, nil
	}
	of := s.resource.id
	isImported, err := u.imports.ensure(ctx, s.resource, s.decision.Wanted, func(ctx context.Context) { u.wakeUp(ctx, []id{of}) })
	switch {
	case err != nil:
		return false, fmt.Errorf("importing boot image %s: %w", s.decision.Wanted.Version, err)
	case !isImported:
		s.wait, s.waitUntil = fmt.Sprintf("boot image %s is imported into %s", s.decision.Wanted.Version, s.decision.Platform), recheck
	}
	return isImported, nil
}

// recall learns from the histories which resources were given a boot image before: after a restart
// nothing else says which one is the canary.
func (u *updater) recall(ctx context.Context, s *scope, wave string) error {
	if u.ledger.hasBegun(wave) {
		return nil
	}
	var all mcfgv1alpha1.BootImageHistoryList
	if err := u.cache.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing BootImageHistories: %w", err)
	}
	for i := range all.Items {
		details := all.Items[i].Status.Details
		if len(details) < 2 { //nolint:mnd // the first entry is no update
			continue
		}
		last := &details[len(details)-1]
		if last.Stream != s.decision.Stream || last.BootImageVersion != s.decision.Wanted.Version {
			continue
		}
		about := &all.Items[i].Spec.MachineResourceReference
		for _, k := range u.kinds {
			if k.groupKind.Group != about.APIGroup || k.groupKind.Kind != about.Resource || k.version == "" {
				continue
			}
			of := id{k, types.NamespacedName{Namespace: all.Items[i].Namespace, Name: about.Name}}
			o := k.newObject()
			err := u.cache.Get(ctx, of.NamespacedName, o)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading %s: %w", of, err)
			}
			if plan.Platform(read(k, o).plan.ProviderKind) == s.decision.Platform { // the version is the same on others
				u.ledger.recordUpdate(wave, of, last.UpdateTime.Time)
			}
		}
	}
	return nil
}

// elect finds the canary of a wave that has not begun, among all resources that wait for it.
func (u *updater) elect(ctx context.Context, s *scope, wave string) error {
	if u.ledger.hasBegun(wave) {
		return nil
	}
	ids := map[string]id{}
	var all []plan.Candidate
	for _, k := range u.kinds {
		if k.version == "" {
			continue
		}
		list := k.newList()
		if err := u.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing %s: %w", k.name, err)
		}
		of := *u
		of.kind = k
		for i := range list.Items {
			if r := read(k, &list.Items[i]); of.isCandidate(ctx, s.facts, r, wave) {
				ids[r.id.String()] = r.id
				all = append(all, plan.Candidate{Resource: r.id.String(), Replicas: replicas(r.object), IsControlPlane: s.facts.poolOf(r) == mcfgv1.PoolMaster})
			}
		}
	}
	if first := plan.Canary(all); first != "" && u.ledger.elect(wave, first) && first != s.resource.id.String() {
		u.wakeUp(ctx, []id{ids[first]})
	}
	return nil
}

// isCandidate reports whether a resource wants the boot image of a wave. One that fails would hold
// up the others.
func (u *updater) isCandidate(ctx context.Context, f *facts, r *resource, of string) bool {
	if u.ledger.of(r.id).isTrouble() || r.object.GetDeletionTimestamp() != nil {
		return false
	}
	isManaged, err := plan.IsManaged(f.managers, string(u.kind.resource), u.kind.groupKind.Group, r.object.GetLabels())
	if err != nil || !isManaged {
		return false
	}
	s := &scope{facts: f, resource: r}
	if u.gather(ctx, s) != nil || u.decide(ctx, s) != nil {
		return false // its own reconcile says why
	}
	return s.decision.Action == plan.ActionUpdate && s.decision.Reason != plan.ReasonPinned && wave(&s.decision) == of
}

// replicas are the machines that a resource should have.
func replicas(o *unstructured.Unstructured) int64 {
	n, isSet, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !isSet || err != nil {
		return 1
	}
	return n
}

// resign has another canary be found where this one was to be the first, and can't or need not be.
func (u *updater) resign(ctx context.Context, s *scope, is *outcome) {
	wanted := wave(&s.decision)
	if is.isTrouble() {
		wanted = ""
	}
	u.wakeUp(ctx, u.ledger.resign(s.resource.id, wanted))
}

// watchCanary looks whether a machine has joined that the canary of a wave made since it was
// updated, and lets the others go on then.
func (u *updater) watchCanary(ctx context.Context, s *scope) error {
	name := wave(&s.decision)
	since, is := u.ledger.isCanary(name, s.resource.id)
	if !is {
		return nil
	}
	joined, err := u.hasJoined(ctx, s.resource, since)
	if err != nil || !joined {
		return err
	}
	u.wakeUp(ctx, u.ledger.markProven(name))
	return nil
}
