package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/status"
)

// clusterOperatorKind is OpenShift's kind of what operators say about themselves.
var clusterOperatorKind = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterOperator"}

// clusterOperatorStatus is what Layerwright writes of the status of its ClusterOperator.
type clusterOperatorStatus struct {
	Conditions []metav1.Condition `json:"conditions"`
	Versions   []operandVersion   `json:"versions"`
}

type operandVersion struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// writeClusterOperator writes Layerwright's own ClusterOperator, and creates it if need be. It sets
// all conditions that the cluster-version-operator expects: without them an operator is reported as
// down.
func (u *Upgrades) writeClusterOperator(ctx context.Context, is metav1.Condition, now time.Time) error {
	operator := &unstructured.Unstructured{}
	operator.SetGroupVersionKind(clusterOperatorKind)
	operator.SetName(names.ClusterOperator)
	operator.Object["spec"] = map[string]any{} // required, and empty
	if err := u.client.Get(ctx, client.ObjectKeyFromObject(operator), operator); apierrors.IsNotFound(err) {
		err = u.client.Create(ctx, operator)
		if err != nil {
			return fmt.Errorf("creating ClusterOperator %q: %w", names.ClusterOperator, err)
		}
	} else if err != nil {
		return fmt.Errorf("reading ClusterOperator %q: %w", names.ClusterOperator, err)
	}
	var before clusterOperatorStatus
	text, err := json.Marshal(operator.Object["status"])
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	if err != nil {
		before = clusterOperatorStatus{} // someone wrote nonsense, which is replaced
	}
	after := clusterOperatorStatus{Conditions: append([]metav1.Condition(nil), before.Conditions...), Versions: []operandVersion{{"operator", u.version}}}
	for _, c := range []metav1.Condition{
		{Type: "Available", Status: metav1.ConditionTrue, Reason: status.ReasonSucceeded},
		{Type: "Progressing", Status: metav1.ConditionFalse, Reason: status.ReasonSucceeded},
		{Type: "Degraded", Status: metav1.ConditionFalse, Reason: status.ReasonSucceeded},
		is,
	} {
		status.Set(&after.Conditions, now, c)
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": operator.GetResourceVersion()}, "status": after})
	if err != nil {
		return fmt.Errorf("writing the status of ClusterOperator %q: %w", names.ClusterOperator, err)
	}
	if err := u.client.Status().Patch(ctx, operator, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("writing the status of ClusterOperator %q: %w", names.ClusterOperator, err)
	}
	return nil
}
