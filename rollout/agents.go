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
)

// gatherAgents finds out which nodes that answer nothing have no agent that runs. Where no pod of
// an agent is seen, nodes have another agent than Layerwright's.
func (r *Reconciler) gatherAgents(ctx context.Context, s *scope) error {
	now, isOverdue := r.clock.Now(), false
	for i := range s.members {
		since := r.transitions[s.members[i].Name].asked
		if since.IsZero() {
			continue
		}
		left := since.Add(agentPatience).Sub(now)
		isOverdue = isOverdue || left <= 0
		if left <= 0 {
			left = agentInterval
		}
		if s.agentsAfter == 0 || left < s.agentsAfter {
			s.agentsAfter = left
		}
	}
	if !isOverdue {
		return nil
	}
	var pods corev1.PodList
	labels := client.MatchingLabels{"app.kubernetes.io/component": "agent"}
	if err := r.reader.List(ctx, &pods, client.InNamespace(r.options.Namespace), labels); err != nil {
		return fmt.Errorf("listing pods of node agents: %w", err)
	}
	if len(pods.Items) == 0 {
		return nil
	}
	byNode := map[string]*corev1.Pod{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if byNode[pod.Spec.NodeName] == nil || isReady(pod) {
			byNode[pod.Spec.NodeName] = pod
		}
	}
	for i := range s.members {
		m := &s.members[i]
		pod, since := byNode[m.Name], r.transitions[m.Name].asked
		switch {
		case since.IsZero() || now.Sub(since) < agentPatience:
		case pod == nil:
			m.AgentDown = "it has no pod on the node"
		case !isReady(pod):
			m.AgentDown = "pod " + pod.Name + " is not Ready"
		}
	}
	return nil
}

// awaitsAgent reports whether a node was asked for something that its agent has not answered.
func awaitsAgent(n *plan.Node) bool {
	stages := n.StageImage != "" && n.StageImage != n.StagedImage && n.StageImage != n.CurrentImage && n.StageError == ""
	return n.Ready && n.Stages && (stages || n.IsMoving() && !n.IsAtWork())
}
