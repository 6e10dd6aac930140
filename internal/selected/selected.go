package selected

import (
	"context"
	"crypto/sha256"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// FieldRole is the index of MachineConfigs by their role, which is what pools select them by.
const FieldRole = "role"

// page is how many MachineConfigs are in memory at once that no one wants.
const page = 100

// RoleOf is the value of FieldRole.
func RoleOf(mc client.Object) []string {
	if role, has := mc.GetLabels()[mcfgv1.LabelRole]; has {
		return []string{role}
	}
	return nil
}

// Configs asks the API server for the MachineConfigs that the labels of a pool's
// machineConfigSelector match, with their content, without those to drop: one that says which roles
// it does not select matches all rendered ones. A selector that can't be read matches none, which
// machineconfigs.Select says too.
func Configs(
	ctx context.Context, live client.Reader, pool *mcfgv1.MachineConfigPool, drop func(*mcfgv1.MachineConfig) bool,
) ([]*mcfgv1.MachineConfig, error) {
	selector := selectorOf(pool)
	if selector == nil {
		return nil, nil
	}
	limit := client.Limit(page)
	if rolesIn(selector) != nil { // no rendered one has a role, and the API server reads pages from etcd
		limit = 0
	}
	var all []*mcfgv1.MachineConfig
	for token := ""; ; {
		found, next, err := list(ctx, live, client.MatchingLabelsSelector{Selector: selector}, limit, client.Continue(token))
		if err != nil {
			return nil, err
		}
		for _, mc := range found {
			if !drop(mc) {
				kept := *mc // not the whole page
				all = append(all, &kept)
			}
		}
		if next == "" {
			return all, nil
		}
		token = next
	}
}

// Cached are the same from the cache, without their content, and with rendered ones. They are
// shared, and only read.
func Cached(ctx context.Context, cache client.Reader, pool *mcfgv1.MachineConfigPool) ([]*mcfgv1.MachineConfig, error) {
	selector := selectorOf(pool)
	if selector == nil {
		return nil, nil
	}
	found, _, err := list(ctx, cache, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	return found, err
}

// Indexed are those of Cached, from a cache that has FieldRole: looking through all MachineConfigs
// of a large cluster for each pool would take longer than all else.
func Indexed(ctx context.Context, cache client.Reader, pool *mcfgv1.MachineConfigPool) ([]*mcfgv1.MachineConfig, error) {
	selector := selectorOf(pool)
	roles := rolesIn(selector)
	if roles == nil {
		return Cached(ctx, cache, pool)
	}
	var all []*mcfgv1.MachineConfig
	for _, role := range roles {
		found, _, err := list(ctx, cache,
			client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy, client.MatchingFields{FieldRole: role})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// selectorOf is nil where a pool selects nothing. To the API server such a selector would be one of
// everything.
func selectorOf(pool *mcfgv1.MachineConfigPool) labels.Selector { //nolint:ireturn // apimachinery has no other type
	if pool.Spec.MachineConfigSelector == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	if err != nil || selector.Empty() {
		return nil
	}
	return selector
}

// rolesIn are the only roles that a selector matches; nil where it does not say.
func rolesIn(selector labels.Selector) []string {
	if selector == nil {
		return nil
	}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() { //nolint:exhaustive // the others name no values that are matched
		case selection.In, selection.Equals, selection.DoubleEquals:
			if r.Key() == mcfgv1.LabelRole {
				return r.Values().List() // each once
			}
		}
	}
	return nil
}

// Version identifies MachineConfigs, of which some may be nil, in their present state.
func Version(configs []*mcfgv1.MachineConfig) string {
	hash := sha256.New()
	for _, mc := range configs {
		if mc != nil {
			_, _ = fmt.Fprintf(hash, "%q\n", []string{string(mc.UID), mc.ResourceVersion, mc.Name})
		}
	}
	return string(hash.Sum(nil))
}

func list(ctx context.Context, from client.Reader, options ...client.ListOption) (all []*mcfgv1.MachineConfig, next string, err error) {
	var found mcfgv1.MachineConfigList
	if err := from.List(ctx, &found, options...); err != nil {
		return nil, "", fmt.Errorf("listing MachineConfigs: %w", err)
	}
	all = make([]*mcfgv1.MachineConfig, len(found.Items))
	for i := range found.Items {
		all[i] = &found.Items[i]
	}
	return all, found.Continue, nil
}
