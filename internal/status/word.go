package status

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Word is "yes" where a condition is True, and else its reason; empty where it is not there.
func Word(conditions []metav1.Condition, conditionType string) string {
	switch c := Find(conditions, conditionType); {
	case c == nil:
		return ""
	case c.Status == metav1.ConditionTrue:
		return "yes"
	default:
		return c.Reason
	}
}
