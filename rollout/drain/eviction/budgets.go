package eviction

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/words"
)

// BudgetsOf are the names of the PodDisruptionBudgets that select a pod, sorted.
func BudgetsOf(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) []string {
	var names []string
	for i := range budgets {
		if budgets[i].Namespace != pod.Namespace {
			continue
		}
		selector, err := nodes.Selector(budgets[i].Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			names = append(names, budgets[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// ByBudgets says which budgets keep a pod; they may have gone since.
func ByBudgets(names []string) string {
	switch len(names) {
	case 0:
		return "a budget"
	case 1:
		return words.ByBudget + names[0]
	default:
		return fmt.Sprintf("budgets %s (the API server evicts no pod that several budgets select: change their selectors)", strings.Join(names, ", "))
	}
}
