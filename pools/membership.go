package pools

import (
	"slices"
	"strings"

	"github.com/layerwright/layerwright/internal/members"
)

// membership is which nodes belong to which pools.
type membership struct {
	// members are each pool's nodes, sorted by name.
	members map[string][]node
	// disputed are, for each pool, the nodes that another custom pool selects too. They are members of no pool.
	disputed map[string][]dispute
}

// dispute is a node that several custom pools select.
type dispute struct {
	node  string
	pools []string // sorted
}

// assign says which nodes belong to which pools (members.PoolOf), and which to none because several custom pools select them.
func assign(s *members.Selectors, nodes []node) membership {
	m := membership{members: map[string][]node{}, disputed: map[string][]dispute{}}
	for _, n := range nodes {
		selecting := s.Selecting(n.Labels)
		if pool := members.PoolOf(selecting); pool != "" {
			m.members[pool] = append(m.members[pool], n)
			continue
		}
		custom := members.Custom(selecting)
		for _, pool := range custom {
			m.disputed[pool] = append(m.disputed[pool], dispute{node: n.Name, pools: custom})
		}
	}
	for _, nodes := range m.members {
		slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.Name, b.Name) })
	}
	for _, disputed := range m.disputed {
		slices.SortFunc(disputed, func(a, b dispute) int { return strings.Compare(a.node, b.node) })
	}
	return m
}
