package pools

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// configSelectors remembers the parsed machineConfigSelector of each pool. A change of any
// MachineConfig is held against all of them, and parsing one takes far longer than asking it.
type configSelectors struct {
	mu     sync.Mutex
	byPool map[string]configSelector
}

type configSelector struct {
	uid        types.UID
	generation int64
	selector   labels.Selector
}

// of selects nothing where the pool's selector can't be read, which the pool's own reconcile says.
func (s *configSelectors) of(pool *mcfgv1.MachineConfigPool) labels.Selector {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.byPool[pool.Name]; ok && known.uid == pool.UID && known.generation == pool.Generation {
		return known.selector
	}
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	if err != nil {
		selector = labels.Nothing()
	}
	s.byPool[pool.Name] = configSelector{pool.UID, pool.Generation, selector}
	return selector
}

// forget is for a pool that is gone.
func (s *configSelectors) forget(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byPool, pool)
}
