package rollout

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
// outside of the cluster is not seen, and holds nothing up.
func (r *Reconciler) etcdMembers(ctx context.Context) ([]plan.EtcdMember, error) {
	var members []plan.EtcdMember
	for namespace, labels := range etcdPods() {
		var pods corev1.PodList
		if err := r.reader.List(ctx, &pods, client.InNamespace(namespace), labels); err != nil {
			return nil, fmt.Errorf("listing pods of namespace %q: %w", namespace, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			members = append(members, plan.EtcdMember{Node: pod.Spec.NodeName, Healthy: isReady(pod)})
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
