package pods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// defaultRequests let a build of a usual size run well beside others, and defaultLimits keep one
// that runs away from taking its node along. There is no limit of CPU: what no one else needs may
// be used.
func defaultRequests() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("250m"),
		corev1.ResourceMemory:           resource.MustParse("512Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("8Gi"),
	}
}

func defaultLimits() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceMemory:           resource.MustParse("4Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("40Gi"),
	}
}

// ResourcesOf are the resources of each container: what the administrator says, and defaults that
// never contradict it. A request is never more than its limit, which the API server would refuse.
func ResourcesOf(wanted *mcfgv1.BuildResources) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: defaultRequests(), Limits: defaultLimits()}
	if wanted == nil {
		return r
	}
	for name, quantity := range wanted.Requests {
		r.Requests[name] = quantity
		if limit, has := r.Limits[name]; has && limit.Cmp(quantity) < 0 {
			r.Limits[name] = quantity
		}
	}
	for name, quantity := range wanted.Limits {
		r.Limits[name] = quantity
		_, isWanted := wanted.Requests[name]
		if request, has := r.Requests[name]; has && !isWanted && request.Cmp(quantity) > 0 {
			r.Requests[name] = quantity
		}
	}
	return r
}
