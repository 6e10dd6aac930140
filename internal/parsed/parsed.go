package parsed

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Value is what was made of one object, or why that could not be done. The zero value is ready; it
// may be used by several goroutines, of which one makes the value and the others wait for it.
type Value[T any] struct {
	mu sync.Mutex
	// version is that of the object that value and problem are of.
	version string
	value   T
	problem error
}

// Of is what parse makes of an object as it was read now: what it made before, if that was of the
// same version of the same object.
func (v *Value[T]) Of(object metav1.Object, parse func() (T, error)) (T, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if version := string(object.GetUID()) + "/" + object.GetResourceVersion(); v.version != version {
		v.value, v.problem = parse()
		v.version = version
	}
	return v.value, v.problem
}
