package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/status"
)

// The boot image controller says in the MachineConfiguration whether boot images are too old for an
// upgrade. The ClusterOperator has one condition Upgradeable, which is written here, and repeats
// it.

var machineConfigurationKind = schema.GroupVersionKind{Group: operatorv1.GroupName, Version: "v1", Kind: "MachineConfiguration"}

func newMachineConfiguration() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(machineConfigurationKind)
	o.SetName("cluster")
	return o
}

// oldBootImages is the condition Upgradeable of the MachineConfiguration; nil where there is none.
func (u *Upgrades) oldBootImages(ctx context.Context) (*metav1.Condition, error) {
	if !u.hasMachineConfigurations {
		return nil, nil
	}
	o := newMachineConfiguration()
	if err := u.client.Get(ctx, client.ObjectKeyFromObject(o), o); client.IgnoreNotFound(err) != nil { //nolint:gocritic // what is not found is no error
		return nil, fmt.Errorf("reading the MachineConfiguration: %w", err)
	}
	return upgradeableOf(o), nil
}

// upgradeableOf reads the condition Upgradeable of an object.
func upgradeableOf(o *unstructured.Unstructured) *metav1.Condition {
	var is struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	text, err := json.Marshal(o.Object["status"])
	if err != nil || json.Unmarshal(text, &is) != nil {
		return nil
	}
	return status.Find(is.Conditions, operatorv1.BootImagesUpgradeable)
}

// joined is the condition of streams with that of boot images: either keeps the cluster from being
// upgraded.
func joined(is metav1.Condition, bootImages *metav1.Condition) metav1.Condition {
	if bootImages == nil || bootImages.Status != metav1.ConditionFalse {
		return is
	}
	if is.Status == metav1.ConditionTrue {
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, bootImages.Reason, bootImages.Message
		return is
	}
	is.Message += " " + bootImages.Message
	return is
}

// bootImagesChanged lets changes of the condition through.
func bootImagesChanged() predicate.Predicate {
	of := func(o client.Object) *metav1.Condition {
		if u, isObject := o.(*unstructured.Unstructured); isObject {
			return upgradeableOf(u)
		}
		return nil
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return !reflect.DeepEqual(of(e.ObjectOld), of(e.ObjectNew)) }}
}
