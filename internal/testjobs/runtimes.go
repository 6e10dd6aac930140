package testjobs

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// acceptedAnnotations are those that the pods of a test may have: they are known to say nothing to
// container runtimes and networks. CDI, NRI, CRI-O, Multus and others give devices, mounts and
// networks by annotations, and what comes later has to be looked at first.
var acceptedAnnotations = []string{
	"cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt", "kubectl.kubernetes.io/default-container",
	"linkerd.io/inject", "prometheus.io/path", "prometheus.io/port", "prometheus.io/scheme", "prometheus.io/scrape", "sidecar.istio.io/inject",
}

func annotations(of map[string]string, at *field.Path) field.ErrorList {
	var problems field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if !isReserved(key) && !slices.Contains(acceptedAnnotations, key) {
			problems = append(problems, field.Forbidden(at.Key(key), nothingOfTheNode+
				", and container runtimes and networks act on annotations of pods; the Job may have it, pods may have: "+strings.Join(acceptedAnnotations, ", ")))
		}
	}
	return problems
}

// devices refuses resources that are not what every node has: plugins give devices of the node for
// them.
func devices(resources *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var problems field.ErrorList
	for child, list := range map[string]corev1.ResourceList{"limits": resources.Limits, "requests": resources.Requests} {
		for name := range list {
			if strings.Contains(string(name), "/") {
				problems = append(problems, field.Forbidden(at.Child(child).Key(string(name)), nothingOfTheNode))
			}
		}
	}
	return problems
}
