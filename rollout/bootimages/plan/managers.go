package plan

import (
	"fmt"
	"slices"

	openshiftv1 "github.com/openshift/api/operator/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
)

// onByDefault are the platforms where all MachineSets are managed unless an administrator says
// otherwise.
var onByDefault = []string{"AWS", "Azure", "GCP", "VSphere"}

// azureStack is the cloud of Azure whose marketplace has no boot images.
const azureStack = "AzureStackCloud"

// Managers are the machine resources whose boot image is managed: what the administrator asks for,
// or the platform's default. The platform is empty where there is no Machine API.
func Managers(asked operatorv1.ManagedBootImages, platform, azureCloud string) operatorv1.ManagedBootImages {
	if len(asked.MachineManagers) > 0 || platform == "" {
		return asked
	}
	mode := openshiftv1.None
	if slices.Contains(onByDefault, platform) && azureCloud != azureStack {
		mode = openshiftv1.All
	}
	return operatorv1.ManagedBootImages{MachineManagers: []operatorv1.MachineManager{{
		Resource: operatorv1.MachineSets, APIGroup: operatorv1.MachineAPI, Selection: openshiftv1.MachineManagerSelector{Mode: mode},
	}}}
}

// IsManaged reports whether the boot image of a resource is managed. A kind that is not listed is
// left alone.
func IsManaged(m operatorv1.ManagedBootImages, resource, group string, of map[string]string) (bool, error) {
	for _, manager := range m.MachineManagers {
		if string(manager.Resource) != resource || string(manager.APIGroup) != group {
			continue
		}
		switch manager.Selection.Mode { //nolint:exhaustive // the others need nothing here
		case openshiftv1.All:
			return true, nil
		case openshiftv1.Partial:
			if manager.Selection.Partial == nil || manager.Selection.Partial.MachineResourceSelector == nil {
				return false, nil
			}
			selector, err := metav1.LabelSelectorAsSelector(manager.Selection.Partial.MachineResourceSelector)
			if err != nil {
				return false, fmt.Errorf("reading the selector of %s of %s: %w", resource, group, err)
			}
			return selector.Matches(labels.Set(of)), nil
		}
	}
	return false, nil
}
