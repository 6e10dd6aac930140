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

// RoleOf is the value of FieldRole.
func RoleOf(mc client.Object) []string {
	if role, has := mc.GetLabels()[mcfgv1.LabelRole]; has {
		return []string{role}
	}
	return nil
}

// Configs are the MachineConfigs that the labels of a pool's machineConfigSelector match, rendered
// ones among them: machineconfigs.Select takes those that count. A selector that can't be read
// matches none, which Select says too.
func Configs(ctx context.Context, from client.Reader, pool *mcfgv1.MachineConfigPool, options ...client.ListOption) ([]*mcfgv1.MachineConfig, error) {
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	if err != nil || selector.Empty() {
		return nil, nil //nolint:nilerr // Select says so
	}
	return list(ctx, from, append(options, client.MatchingLabelsSelector{Selector: selector}))
}

// Indexed are the same, from a cache that has FieldRole: looking through all MachineConfigs of a
// large cluster for each pool would take longer than all else. They are shared, and only read.
func Indexed(ctx context.Context, cache client.Reader, pool *mcfgv1.MachineConfigPool) ([]*mcfgv1.MachineConfig, error) {
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	if err != nil || selector.Empty() {
		return nil, nil //nolint:nilerr // Select says so
	}
	matching := []client.ListOption{client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy}
	roles := rolesIn(selector)
	if roles == nil {
		return list(ctx, cache, matching)
	}
	var all []*mcfgv1.MachineConfig
	for _, role := range roles {
		found, err := list(ctx, cache, append(matching, client.MatchingFields{FieldRole: role}))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// rolesIn are the only roles that a selector matches; nil where it does not say.
func rolesIn(selector labels.Selector) []string {
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

func list(ctx context.Context, from client.Reader, options []client.ListOption) ([]*mcfgv1.MachineConfig, error) {
	var found mcfgv1.MachineConfigList
	if err := from.List(ctx, &found, options...); err != nil {
		return nil, fmt.Errorf("listing MachineConfigs: %w", err)
	}
	all := make([]*mcfgv1.MachineConfig, len(found.Items))
	for i := range found.Items {
		all[i] = &found.Items[i]
	}
	return all, nil
}
