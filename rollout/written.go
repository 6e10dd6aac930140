package rollout

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// written are objects by name as this process wrote them last, until the cache has them: a plan
// that does not know of a node that was just told to change would let too many go.
type written[T client.Object] map[string]T

// newest is an object as the cache has it, or as this process wrote it after that. An error means
// that a version can't be compared, which no API server gives; then it is the cache's.
func (w written[T]) newest(cached T) (T, error) {
	own, isWritten := w[cached.GetName()]
	if !isWritten {
		return cached, nil
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), own.GetResourceVersion())
	if err != nil || order >= 0 || cached.GetUID() != own.GetUID() {
		delete(w, cached.GetName())
		return cached, err
	}
	return own, nil
}
