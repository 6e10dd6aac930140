package nodes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Selectors find the pools that select a node.
type Selectors struct {
	names []string // sorted, so that everything said of them is the same each time
	of    map[string]labels.Selector
	// invalid are the pools whose nodeSelector cannot be read. They select nothing.
	invalid map[string]error
}

// NewSelectors reads the nodeSelector of every pool. One that is left out or empty selects nothing:
// a pool of all nodes is a mistake.
func NewSelectors(pools []*mcfgv1.MachineConfigPool) *Selectors {
	s := &Selectors{names: make([]string, 0, len(pools)), of: make(map[string]labels.Selector, len(pools)), invalid: map[string]error{}}
	for _, pool := range pools {
		selector, err := Selector(pool.Spec.NodeSelector)
		switch {
		case err != nil:
			s.invalid[pool.Name] = fmt.Errorf("reading spec.nodeSelector: %w", err)
		case !selector.Empty():
			s.of[pool.Name] = selector
			s.names = append(s.names, pool.Name)
		}
	}
	slices.Sort(s.names)
	return s
}

// Invalid is why the nodeSelector of a pool cannot be read; nil where it can.
func (s *Selectors) Invalid(pool string) error { return s.invalid[pool] }

// Selecting are the pools that select a node with the given labels, whichever of them it belongs
// to. Windows nodes are none of ours.
func (s *Selectors) Selecting(nodeLabels map[string]string) []string {
	if nodeLabels[corev1.LabelOSStable] == "windows" {
		return nil
	}
	var names []string
	for _, name := range s.names {
		if s.of[name].Matches(labels.Set(nodeLabels)) {
			names = append(names, name)
		}
	}
	return names
}

// Selects reports whether one pool selects a node with the given labels, whichever it belongs to.
func (s *Selectors) Selects(pool string, nodeLabels map[string]string) bool {
	selector := s.of[pool]
	return selector != nil && nodeLabels[corev1.LabelOSStable] != "windows" && selector.Matches(labels.Set(nodeLabels))
}

// Has reports whether a node with the given labels belongs to a pool.
func (s *Selectors) Has(pool string, nodeLabels map[string]string) bool {
	return s.Selects(pool, nodeLabels) && PoolOf(s.Selecting(nodeLabels)) == pool
}

// PoolOf is the pool of a node that the given ones select, empty if it has none. A node belongs to
// one: what runs the control plane comes first (master, then arbiter), then the custom pool, then
// worker. A node that several custom pools select, and neither master nor arbiter, belongs to none
// until someone removes a label: taking one of them by chance would move it to another
// configuration.
func PoolOf(selecting []string) string {
	for _, first := range []string{mcfgv1.PoolMaster, mcfgv1.PoolArbiter} {
		if slices.Contains(selecting, first) {
			return first
		}
	}
	switch custom := Custom(selecting); {
	case len(custom) == 1:
		return custom[0]
	case len(custom) == 0 && slices.Contains(selecting, mcfgv1.PoolWorker):
		return mcfgv1.PoolWorker
	default:
		return ""
	}
}

// Custom are those of the pools that an administrator added.
func Custom(pools []string) []string {
	var custom []string
	for _, name := range pools {
		if mcfgv1.IsCustomPool(name) {
			custom = append(custom, name)
		}
	}
	return custom
}
