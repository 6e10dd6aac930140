package rollout

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/webhook"
)

func hooked(p *mcfgv1.MachineConfigPool) {
	checked(podsCheck())(p)
	p.Spec.Rollout.Webhook = &mcfgv1.RolloutWebhook{SecretName: "hook"}
	p.Spec.Rollout.HaltThreshold = new(intstr.FromInt32(1))
}

func TestWebhooksAreToldOfARolloutThatSucceeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2", hooked), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"))
	w.settle()
	w.settle()
	of := func(e webhook.Event, text string, updated int) webhook.Message {
		return webhook.Message{
			Event: e, Time: t0, Pool: "worker", Configuration: "rendered-2", Image: nodestest.Pinned("2"), Text: text,
			Nodes: webhook.Nodes{Total: 1, Updated: updated},
		}
	}
	assert.Equal(t, []webhook.Message{of(webhook.Started, "0/1 updated", 0), of(webhook.Completed, "1/1 updated", 1)}, w.posted)

	for _, state := range []string{mcfgv1.NodeStateDegraded, mcfgv1.NodeStateDone, mcfgv1.NodeStateDegraded, mcfgv1.NodeStateDone} { // a file was edited
		n := w.node("a")
		n.Annotations[mcfgv1.AnnotationState] = state
		require.NoError(t, w.Update(t.Context(), n))
		w.reconcile()
	}
	assert.Len(t, w.posted, 2, "drift is no rollout")
}

func TestWebhooksAreToldOfARolloutThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2", hooked), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"), newNode("b"))
	w.unanswered = errors.New("the webhook answered 500")
	w.shelf.objects = []*unstructured.Unstructured{pod("a", "1", "Failed")}
	w.reach("a")
	w.reconcile()
	w.clock.SetTime(t0.Add(11 * time.Minute))
	w.told()
	w.settle()
	require.Len(t, w.posted, 3)
	const why = "health check web did not hold within 10m0s: web is Failed"
	back, halted := w.posted[1], w.posted[2]
	assert.Equal(t, webhook.RolledBack, back.Event)
	assert.Equal(t, "a", back.Node)
	assert.Equal(t, why, back.Text)
	assert.Equal(t, webhook.Nodes{Total: 2, Failed: 1}, back.Nodes)
	assert.Equal(t, webhook.Halted, halted.Event)
	assert.Contains(t, halted.Text, "1 of 2 nodes failed with rendered-2 and image 222222222222: a: "+why)
	assert.Contains(t, w.told(), "Warning WebhookFailed The webhook was not notified of RolloutHalted: the webhook answered 500")
}
