package pools

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/streams"
)

// membership is which nodes belong to which pools.
type membership struct {
	// members are each pool's nodes, sorted by name.
	members map[string][]node
	// disputed are, for each pool, the nodes that another custom pool selects too. They are members of no pool.
	disputed map[string][]dispute
	// others are the number of nodes that are members of no pool.
	others int
}

// dispute is a node that several custom pools select.
type dispute struct {
	node  string
	pools []string // sorted
}

// selectors finds the pools that select a node.
type selectors struct {
	names []string // sorted, so that everything said of them is the same each time
	of    map[string]labels.Selector
	// invalid are the pools whose nodeSelector cannot be read. They select nothing.
	invalid map[string]error
}

// newSelectors reads the nodeSelector of every pool. One that is left out or empty selects nothing: a pool of all nodes is a mistake.
func newSelectors(pools []*mcfgv1.MachineConfigPool) *selectors {
	s := &selectors{of: map[string]labels.Selector{}, invalid: map[string]error{}}
	for _, pool := range pools {
		selector, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
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

// selecting are the pools that select a node with the given labels, whichever of them it belongs to. Windows nodes are none of ours.
func (s *selectors) selecting(nodeLabels map[string]string) []string {
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

// assign says which nodes belong to which pools. A node belongs to one: what runs the control plane comes first (master, then arbiter),
// then the custom pool, then worker. A node that several custom pools select, and neither master nor arbiter, belongs to none until
// somebody removes a label: taking one of them by chance would move it to another configuration.
func assign(s *selectors, nodes []node) membership {
	m := membership{members: map[string][]node{}, disputed: map[string][]dispute{}}
	for _, n := range nodes {
		selecting := s.selecting(n.Labels)
		if pool := primary(selecting); pool != "" {
			m.members[pool] = append(m.members[pool], n)
			continue
		}
		m.others++
		custom := customOf(selecting)
		for _, pool := range custom {
			m.disputed[pool] = append(m.disputed[pool], dispute{node: n.Name, pools: custom})
		}
	}
	for _, members := range m.members {
		slices.SortFunc(members, func(a, b node) int { return strings.Compare(a.Name, b.Name) })
	}
	for _, disputed := range m.disputed {
		slices.SortFunc(disputed, func(a, b dispute) int { return strings.Compare(a.node, b.node) })
	}
	return m
}

// primary is the pool of a node that the given ones select, empty if it has none.
func primary(selecting []string) string {
	for _, first := range []string{mcfgv1.PoolMaster, mcfgv1.PoolArbiter} {
		if slices.Contains(selecting, first) {
			return first
		}
	}
	switch custom := customOf(selecting); {
	case len(custom) == 1:
		return custom[0]
	case len(custom) == 0 && slices.Contains(selecting, mcfgv1.PoolWorker):
		return mcfgv1.PoolWorker
	default:
		return ""
	}
}

func customOf(names []string) []string {
	var custom []string
	for _, name := range names {
		if streams.IsCustom(name) {
			custom = append(custom, name)
		}
	}
	return custom
}
