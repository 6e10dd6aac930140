package nodes

import (
	"slices"
	"strings"
)

// Membership is which nodes belong to which pools.
type Membership struct {
	// Members are each pool's nodes, sorted by name.
	Members map[string][]Node
	// Disputed are, for each pool, the nodes that another custom pool selects too. They are members
	// of no pool.
	Disputed map[string][]Dispute
	// Others are the number of nodes that are members of no pool.
	Others int
}

// Dispute is a node that several custom pools select.
type Dispute struct {
	// Node is its name.
	Node string
	// Pools are the names of the custom pools, sorted.
	Pools []string
}

// Assign says which nodes belong to which pools (PoolOf), and which to none because several custom
// pools select them.
func Assign(s *Selectors, nodes []Node) Membership {
	m := Membership{Members: map[string][]Node{}, Disputed: map[string][]Dispute{}}
	for _, n := range nodes {
		selecting := s.Selecting(n.Labels)
		if pool := PoolOf(selecting); pool != "" {
			m.Members[pool] = append(m.Members[pool], n)
			continue
		}
		m.Others++
		custom := Custom(selecting)
		for _, pool := range custom {
			m.Disputed[pool] = append(m.Disputed[pool], Dispute{Node: n.Name, Pools: custom})
		}
	}
	for _, nodes := range m.Members {
		slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	}
	for _, disputed := range m.Disputed {
		slices.SortFunc(disputed, func(a, b Dispute) int { return strings.Compare(a.Node, b.Node) })
	}
	return m
}
