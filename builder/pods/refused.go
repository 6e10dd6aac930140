package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/layerwright/layerwright/internal/quota"
)

// Refused says why the cluster refuses to create what a build needs, and what to do: with the field
// to set where a quota or a LimitRange is in the way.
func (f *Facts) Refused(namespace, message string) string {
	if text := placeOfResources(namespace, f.LimitRanges).Explain(message); text != "" {
		return text
	}
	return fmt.Sprintf("%s; check quotas, policies and the security level of namespace %q", sentence(message), namespace)
}

func placeOfResources(namespace string, limitRanges []string) *quota.Place {
	return &quota.Place{Namespace: namespace, Field: "spec.buildResources", Owner: "the MachineOSConfig", LimitRanges: limitRanges}
}

// NameLimitRanges keeps the names of LimitRanges where one refuses a pod, since the API server does
// not say which. They only make a message better, so that a right that is missing is no error.
func (c *Cluster) NameLimitRanges(ctx context.Context, f *Facts, message string) {
	if len(f.LimitRanges) > 0 || !quota.IsOfLimitRange(message) {
		return
	}
	var list corev1.LimitRangeList
	if err := c.Reader.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		log.FromContext(ctx).V(4).Info("The names of LimitRanges are not known", "reason", err.Error())
	}
	for i := range list.Items {
		f.LimitRanges = append(f.LimitRanges, list.Items[i].Name)
	}
}
