package drain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

func TestChangesThatMatter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*corev1.Node)
		matters bool
	}{
		"a wish":      {asking("drain-2", "drain-1"), true},
		"an answer":   {asking("drain-1", "drain-1"), true},
		"a cordon":    {nodestest.Cordoned, false},
		"a heartbeat": {nodestest.WithCondition(corev1.NodeReady, corev1.ConditionFalse), false},
		"a state":     {nodestest.InState(mcfgv1.NodeStateWorking, ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := nodestest.New("a", nil, asking("drain-1", ""))
			after := nodestest.New("a", nil, asking("drain-1", ""), test.change)
			assert.Equal(t, test.matters, drainChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}

	cordoned, free := nodestest.New("a", nil, nodestest.Cordoned), nodestest.New("a", nil)
	assert.True(t, drainChanged().Update(event.UpdateEvent{ObjectOld: cordoned, ObjectNew: free}), "the end of a cordon")
}
