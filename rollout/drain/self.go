package drain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/drain/eviction"
)

// stranded says why nothing could run the controller if it were evicted from the node, and is empty
// where the node may be drained. A controller that waits for a node can't end any drain.
func (r *Reconciler) stranded(ctx context.Context, n *corev1.Node) (string, error) {
	if r.options.OwnPod.Name == "" || r.options.OwnNode != n.Name {
		return "", nil
	}
	self := &corev1.Pod{}
	err := r.reader.Get(ctx, r.options.OwnPod, self)
	if apierrors.IsNotFound(err) || err == nil && eviction.FateOf(self, r.clock.Now(), r.options.TerminationTimeout) != eviction.Evict {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the controller's pod %q: %w", r.options.OwnPod, err)
	}
	var all corev1.NodeList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing nodes: %w", err)
	}
	why := noNodeFor(self, all.Items)
	if why == "" {
		return "", nil
	}
	replicas := maps.Clone(self.Labels)
	delete(replicas, appsv1.DefaultDeploymentUniqueLabelKey)
	var pods corev1.PodList
	if err := r.reader.List(ctx, &pods, client.InNamespace(self.Namespace), client.MatchingLabels(replicas)); err != nil {
		return "", fmt.Errorf("listing the controller's pods: %w", err)
	}
	if hasStandby(self, pods.Items, all.Items) {
		return "", nil
	}
	return why, nil
}

// evictSelf evicts the controller's own pod. Until its next one has a node, none is cordoned: it
// could be the last that can take it.
func (p *pass) evictSelf(ctx context.Context, pod *corev1.Pod) error {
	p.moving.Lock()
	defer p.moving.Unlock()
	why, err := p.stranded(ctx, p.node)
	if err != nil {
		return err
	}
	if why != "" {
		p.block(pod, byStranding(why), p.since)
		return nil
	}
	leaving := p.left.leaving
	err = p.evict(ctx, pod)
	if p.left.leaving > leaving {
		p.movesUntil = p.clock.Now().Add(moveTime)
	}
	return err
}

// hasReturned reports whether the controller's pod has come to the node although that is cordoned,
// and would come again. The roster that knew the pod before has ended with it.
func hasReturned(pod *corev1.Pod, n *corev1.Node) bool {
	at, isOurs := cordonedAt(n)
	return toleratesCordon(pod) && (!isOurs || pod.CreationTimestamp.After(at))
}

// toleratesCordon reports whether a pod like this one is scheduled to cordoned nodes too.
func toleratesCordon(pod *corev1.Pod) bool {
	_, isKeptOff := untolerated(pod, []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}})
	return !isKeptOff
}

func untolerated(pod *corev1.Pod, taints []corev1.Taint) (corev1.Taint, bool) {
	return corev1helpers.FindMatchingUntoleratedTaint(logr.Discard(), taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	}, true)
}

// noNodeFor says why no node but the pod's own can take it; it is empty if one can, or if the pod
// may come back to its own.
func noNodeFor(pod *corev1.Pod, all []corev1.Node) string {
	if toleratesCordon(pod) {
		return ""
	}
	refusals := make([]string, 0, len(all))
	for i := range all {
		if all[i].Name == pod.Spec.NodeName {
			continue
		}
		why := cannotTake(&all[i], pod)
		if why == "" {
			return ""
		}
		refusals = append(refusals, all[i].Name+" "+why)
	}
	if len(refusals) == 0 {
		return "there is no other"
	}
	slices.Sort(refusals)
	return join(refusals, ", ")
}

// cannotTake says why a node can't take a pod, as the scheduler would see it; it is empty if it
// can. How much memory is free is not asked: the controller's priority makes room.
func cannotTake(n *corev1.Node, pod *corev1.Pod) string {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
	taint, isTainted := untolerated(pod, n.Spec.Taints)
	observed := nodes.Observe(n)
	switch {
	case isAskedToDrain(n):
		return "is being drained"
	case n.Spec.Unschedulable && !toleratesCordon(pod):
		return "is cordoned"
	case !observed.Ready || !n.DeletionTimestamp.IsZero():
		return "is not Ready"
	case err != nil || !matches:
		return "does not match its nodeSelector or affinity"
	case isTainted:
		return "has the taint " + taint.ToString()
	default:
		return ""
	}
}

// isAskedToDrain reports whether the node is to be empty, or stay so, until its update is over.
func isAskedToDrain(n *corev1.Node) bool {
	return strings.HasPrefix(n.Annotations[mcfgv1.AnnotationDesiredDrain], mcfgv1.DrainPrefix)
}

// hasStandby reports whether another replica runs elsewhere, which goes on when this one ends.
func hasStandby(self *corev1.Pod, replicas []corev1.Pod, all []corev1.Node) bool {
	stays := map[string]bool{}
	for i := range all {
		observed := nodes.Observe(&all[i])
		stays[all[i].Name] = observed.Ready && !isAskedToDrain(&all[i])
	}
	return slices.ContainsFunc(replicas, func(p corev1.Pod) bool {
		isReady := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		return p.UID != self.UID && p.DeletionTimestamp.IsZero() && isReady && p.Spec.NodeName != self.Spec.NodeName && stays[p.Spec.NodeName]
	})
}

// byStranding is what keeps the controller's pod on its node.
func byStranding(why string) string {
	return "the lack of another node that can run this controller (" + why +
		": uncordon or add a node, or let the controller's Deployment tolerate a taint)"
}
