package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestConditionsAreOfThisUpdate holds that an update which begins takes back all that a step of the
// last one has said.
func TestConditionsAreOfThisUpdate(t *testing.T) {
	t.Parallel()
	begun := map[string]metav1.ConditionStatus{}
	for _, c := range conditionsOf(&state{}, step{action: actionDrain}) {
		begun[c.conditionType] = c.is
	}
	for _, done := range []action{actionPrepare, actionArrive} {
		for _, c := range conditionsOf(&state{}, step{action: done}) {
			assert.Contains(t, begun, c.conditionType, "%s says it", done)
		}
	}
	for _, conditionType := range stillToCome() {
		assert.Equal(t, metav1.ConditionFalse, begun[conditionType], conditionType)
	}
}
