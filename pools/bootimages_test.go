package pools

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestOldBootImagesBlockUpgradesBesideStreams(t *testing.T) {
	t.Parallel()
	fine := metav1.Condition{Type: "Upgradeable", Status: metav1.ConditionTrue, Reason: "Succeeded"}
	ended := metav1.Condition{Type: "Upgradeable", Status: metav1.ConditionFalse, Reason: "DeprecatedOSStreamInUse", Message: "Cannot upgrade: a."}
	old := metav1.Condition{Type: "Upgradeable", Status: metav1.ConditionFalse, Reason: "ClusterBootImageSkewError", Message: "Boot images are too old: b."}
	assert.Equal(t, fine, joined(fine, nil))
	assert.Equal(t, fine, joined(fine, &fine))
	assert.Equal(t, old, joined(fine, &old))
	assert.Equal(t, ended, joined(ended, &fine))
	both := ended
	both.Message = "Cannot upgrade: a. Boot images are too old: b."
	assert.Equal(t, both, joined(ended, &old))

	object := newMachineConfiguration()
	assert.Nil(t, upgradeableOf(object))
	object.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Upgradeable", "status": "False", "reason": old.Reason, "message": old.Message, "lastTransitionTime": nil,
	}}}
	assert.Equal(t, &old, upgradeableOf(object))
	changed := bootImagesChanged()
	assert.False(t, changed.Update(event.UpdateEvent{ObjectOld: object, ObjectNew: object}))
	assert.True(t, changed.Update(event.UpdateEvent{ObjectOld: newMachineConfiguration(), ObjectNew: object}))
}
