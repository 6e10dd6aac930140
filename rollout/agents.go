package rollout

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/rollout/plan"
)

const (
	// agentPatience is how long a node may leave a request unanswered before it is looked whether
	// its agent runs, and agentInterval the time until that is looked at again: nothing watches it.
	agentPatience = 2 * time.Minute
	agentInterval = time.Minute
	// maxAgents is how many agents are looked at in one reconcile.
	maxAgents = 16
)

// gatherAgents finds out which nodes that answer nothing have no agent that runs.
func (r *Reconciler) gatherAgents(ctx context.Context, s *scope) error {
	asked := 0
	for i := range s.members {
		m := &s.members[i]
		since := r.transitions[m.Name].asked
		if since.IsZero() {
			continue
		}
		left := since.Add(agentPatience).Sub(r.clock.Now())
		if left <= 0 && asked < maxAgents {
			asked++
			var err error
			if m.AgentDown, err = r.agentDown(ctx, m.Name); err != nil {
				return err
			}
		}
		if left <= 0 {
			left = agentInterval
		}
		if s.agentsAfter == 0 || left < s.agentsAfter {
			s.agentsAfter = left
		}
	}
	return nil
}

// agentDown is why the agent of a node does not run, in words; empty where it does.
func (r *Reconciler) agentDown(ctx context.Context, node string) (string, error) {
	var pods corev1.PodList
	err := r.reader.List(ctx, &pods, client.InNamespace(r.options.Namespace),
		client.MatchingLabels{"app.kubernetes.io/component": "agent"}, client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		return "", fmt.Errorf("listing pods of the agent on Node %q: %w", node, err)
	}
	why := "it has no pod on the node"
	for i := range pods.Items {
		if isReady(&pods.Items[i]) {
			return "", nil
		}
		why = "pod " + pods.Items[i].Name + " is not Ready"
	}
	return why, nil
}

// awaitsAgent reports whether a node was asked for something that its agent has not answered.
// OpenShift's agent stages nothing, and is not looked at.
func awaitsAgent(n *plan.Node) bool {
	stages := n.StageImage != "" && n.StageImage != n.StagedImage && n.StageImage != n.CurrentImage && n.StageError == ""
	return n.Ready && n.Stages && (stages || n.IsMoving() && !n.IsAtWork())
}
