package machineconfigs

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// renderedPrefix starts the name of every rendered MachineConfig, here and in
// openshift/machine-config-operator.
const renderedPrefix = "rendered-"

// Select gives the MachineConfigs that a pool joins: those that spec.machineConfigSelector matches,
// sorted by name, without rendered ones, and without those that are for another stream than the
// given one, which the pool follows; it is empty where the pool follows none. A pool without a
// selector, and one with an empty selector, select nothing, as in
// openshift/machine-config-operator: what else would be every MachineConfig of the cluster is
// nearly always a mistake. A selector that cannot be read is an *Error.
func Select(pool *mcfgv1.MachineConfigPool, stream string, all []*mcfgv1.MachineConfig) ([]*mcfgv1.MachineConfig, error) {
	if pool == nil {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	if err != nil {
		return nil, &Error{
			Path:    "spec.machineConfigSelector",
			Element: fmt.Sprintf("MachineConfigPool %q", pool.Name),
			Reason:  mcfgv1.ReasonInvalidMachineConfig,
			Err:     fmt.Errorf("reading the selector: %w", err),
		}
	}
	if selector.Empty() {
		return nil, nil
	}
	var selected []*mcfgv1.MachineConfig
	for _, mc := range all {
		if mc != nil && selector.Matches(labels.Set(mc.Labels)) && !IsRendered(mc) && isFor(mc, stream) {
			selected = append(selected, mc)
		}
	}
	slices.SortStableFunc(selected, func(a, b *mcfgv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	return selected, nil
}

// isFor reports whether a MachineConfig is for pools on a stream: it says nothing of streams, or
// names this one.
func isFor(mc *mcfgv1.MachineConfig, stream string) bool {
	of, isOfStream := mc.Labels[mcfgv1.LabelOSStream]
	return !isOfStream || of != "" && of == stream
}

// IsRendered reports whether a MachineConfig is the result of rendering: a MachineConfigPool owns
// it, or, where owners were lost as they are in a backup, its name and an annotation say so. The
// name alone does not: people may call their own as they like.
func IsRendered(mc *mcfgv1.MachineConfig) bool {
	for _, owner := range mc.OwnerReferences {
		group, _, _ := strings.Cut(owner.APIVersion, "/")
		if owner.Kind == "MachineConfigPool" && group == mcfgv1.GroupVersion.Group {
			return true
		}
	}
	_, generated := mc.Annotations[mcfgv1.AnnotationGeneratedByControllerVersion]
	return generated && strings.HasPrefix(mc.Name, renderedPrefix)
}
