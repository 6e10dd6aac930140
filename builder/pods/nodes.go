package pods

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// absence is how long a node may not answer before its builds begin anew elsewhere, in seconds. It
// counts from when the cluster says so, which takes about as long again. The five minutes that pods
// get otherwise are for services, of which others go on meanwhile; of a build, nothing does.
const absence = 60

// ReasonNodeLost is what a pod says that was given up because its node does not answer. Kubernetes
// has the same word for it.
const ReasonNodeLost = "NodeLost"

// TolerationsOf are those of the administrator, and where they say nothing of nodes that don't
// answer, how long those are waited for.
func TolerationsOf(placement *mcfgv1.BuildPlacement) []corev1.Toleration {
	var all []corev1.Toleration
	if placement != nil {
		all = slices.Clone(placement.Tolerations)
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		isSaid := func(t corev1.Toleration) bool {
			return (t.Key == "" || t.Key == key) && cmp.Or(t.Effect, corev1.TaintEffectNoExecute) == corev1.TaintEffectNoExecute
		}
		if !slices.ContainsFunc(all, isSaid) {
			all = append(all, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(absence)),
			})
		}
	}
	return all
}

// SilentNodes are the nodes of pods that have not ended, as far as they don't answer.
func (c *Cluster) SilentNodes(ctx context.Context, pods []corev1.Pod) (map[string]bool, error) {
	if !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !IsOver(&p) && p.Spec.NodeName != "" }) {
		return nil, nil
	}
	var nodes corev1.NodeList
	if err := c.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	silent := map[string]bool{}
	for i := range nodes.Items {
		silent[nodes.Items[i].Name] = isSilent(&nodes.Items[i])
	}
	return silent, nil
}

// isSilent reports whether the cluster has stopped hearing of a node.
func isSilent(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown
		}
	}
	return false
}

// IsLost reports whether a pod had to end and no one can say that it has: its node does not answer,
// or did nothing for far too long.
func IsLost(f *Facts, pod *corev1.Pod) bool {
	if IsOver(pod) || pod.DeletionTimestamp.IsZero() || pod.Spec.NodeName == "" {
		return false
	}
	late := f.Now.Sub(pod.DeletionTimestamp.Time)
	return late >= 0 && f.Silent[pod.Spec.NodeName] || late > lost
}

// GiveUp says of pods that are lost that they have failed, since what made them makes no other one
// before. Whether such a pod still runs somewhere no one knows, and it doesn't matter: it shares
// nothing with the next one, and what it may still push is the same content.
func (c *Cluster) GiveUp(ctx context.Context, f *Facts) error {
	for i := range f.Pods {
		pod := &f.Pods[i]
		if !IsLost(f, pod) {
			continue
		}
		before := pod.DeepCopy()
		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, ReasonNodeLost
		pod.Status.Message = fmt.Sprintf("node %s did not end the pod until %s", pod.Spec.NodeName, pod.DeletionTimestamp.UTC().Format(time.RFC3339))
		err := c.Client.Status().Patch(ctx, pod, client.MergeFrom(before))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("giving up pod %q on node %s, which does not answer: %w", pod.Name, pod.Spec.NodeName, err)
		}
	}
	return nil
}
