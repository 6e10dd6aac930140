package rollout

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/plan"
)

// etcdPods are where etcd runs as pods: OpenShift's, and kubeadm's.
func etcdPods() map[string]client.MatchingLabels {
	return map[string]client.MatchingLabels{
		"openshift-etcd": {"app": "etcd"},
		"kube-system":    {"component": "etcd"},
	}
}

// etcdMembers are the members of the cluster's etcd, as far as they run as pods. One that runs
// outside of the cluster is not seen, and holds nothing up. One on a node of another pool is as
// good as away once that node is told to change: its pod is Ready until the reboot.
func (r *Reconciler) etcdMembers(ctx context.Context, others map[string]*corev1.Node) ([]plan.EtcdMember, error) {
	var members []plan.EtcdMember
	for namespace, labels := range etcdPods() {
		var pods corev1.PodList
		if err := r.reader.List(ctx, &pods, client.InNamespace(namespace), labels); err != nil {
			return nil, fmt.Errorf("listing pods of namespace %q: %w", namespace, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			member := plan.EtcdMember{Node: pod.Spec.NodeName, Healthy: isReady(pod)}
			if n := others[member.Node]; n != nil {
				observed := nodes.Observe(n)
				member.Healthy = member.Healthy && observed.Ready && !observed.IsMoving() && !observed.IsAtWork()
			}
			members = append(members, member)
		}
	}
	return members, nil
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
