package drain

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// schedulerLag is how long after the cordon the scheduler may still give the node pods.
const schedulerLag = 10 * time.Second

// roster is which pods of a node a drain waits for: as with `kubectl drain` those that it found
// first. A pod that comes later is there by the will of who made it, and would come again.
type roster struct {
	drain string // what the node asked for
	began time.Time
	// leaves has every pod that was seen, and whether it should leave.
	leaves map[types.UID]bool
}

// add decides about the pods that are new.
func (r *roster) add(pods []corev1.Pod, now time.Time) {
	isFirst := r.leaves == nil
	if isFirst {
		r.leaves, r.began = make(map[types.UID]bool, len(pods)), now
	}
	for i := range pods {
		if _, isKnown := r.leaves[pods[i].UID]; !isKnown {
			isLate := now.Sub(r.began) < schedulerLag && !toleratesCordon(&pods[i])
			r.leaves[pods[i].UID] = isFirst || isLate
		}
	}
}

// rosters are those of the nodes that are being drained. A restart begins them anew: pods that have
// come back are evicted once more.
type rosters struct {
	lock sync.Mutex
	all  map[string]*roster
}

// of is the roster of what a node asks for.
func (r *rosters) of(n *corev1.Node) *roster {
	r.lock.Lock()
	defer r.lock.Unlock()
	drain := n.Annotations[mcfgv1.AnnotationDesiredDrain]
	if known := r.all[n.Name]; known != nil && known.drain == drain {
		return known
	}
	begun := &roster{drain: drain}
	r.all[n.Name] = begun
	return begun
}

func (r *rosters) forget(node string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	delete(r.all, node)
}
