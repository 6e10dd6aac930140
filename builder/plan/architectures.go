package plan

import (
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Demand is what says which architectures an image is to be for.
type Demand struct {
	// Pool is the pool's name, for messages.
	Pool string
	// Nodes are the architectures of the pool's nodes, as nodes name them (amd64), with the name of
	// one node each.
	Nodes map[string]string
	// Named are those that have a Containerfile of their own.
	Named []mcfgv1.Architecture
	// Before are those of the image that the pool has, or is getting. None of them is given up
	// because its last node went: the image would be another one, and all other nodes would restart
	// for it. Nil where a rebuild was asked for.
	Before []mcfgv1.Architecture
	// Cluster are the architectures of all nodes of the cluster, as nodes name them. They count for
	// a pool about which nothing else says anything.
	Cluster []string
}

// LackError means that a base image lacks an architecture.
type LackError struct {
	// Architecture is the one that is lacking, as nodes name it.
	Architecture string
	// Offered are those that the image is for.
	Offered []mcfgv1.Architecture
	// By is who wants it, and Fix what helps beside another image.
	By, Fix string
}

// Error says who wants what, and what helps.
func (e *LackError) Error() string {
	names := make([]string, len(e.Offered))
	for i, a := range e.Offered {
		names[i] = a.OCI()
	}
	return fmt.Sprintf("it is for %s, and %s %s: name an OS image that is for %s too, or %s", strings.Join(names, " and "), e.By, e.Architecture, e.Architecture, e.Fix)
}

// Choose gives the architectures that the image is to be for, in the order in which the base image
// offers them. It is a *LackError that the base image lacks one that a node of the pool has, or
// that a Containerfile is for.
func (d *Demand) Choose(offered []mcfgv1.Architecture) ([]mcfgv1.Architecture, error) {
	wanted := slices.Clone(d.Named)
	for _, name := range sortedKeys(d.Nodes) {
		a, _ := mcfgv1.ArchitectureFromOCI(name)
		if !slices.Contains(offered, a) {
			return nil, &LackError{
				Architecture: name, Offered: offered, By: fmt.Sprintf("node %q of pool %q is", d.Nodes[name], d.Pool),
				Fix: "give that node another pool",
			}
		}
		wanted = append(wanted, a)
	}
	for _, a := range d.Named {
		if !slices.Contains(offered, a) {
			return nil, &LackError{
				Architecture: a.OCI(), Offered: offered, By: fmt.Sprintf("spec.containerFile[%s] is for", a), Fix: "remove that Containerfile",
			}
		}
	}
	wanted = append(wanted, d.Before...)
	if len(d.Nodes) == 0 && len(d.Before) == 0 {
		wanted = append(wanted, d.ofCluster(offered)...)
	}
	return slices.DeleteFunc(slices.Clone(offered), func(a mcfgv1.Architecture) bool { return !slices.Contains(wanted, a) }), nil
}

// ofCluster is what a pool without nodes may get: the architectures of the cluster's nodes, and all
// there are where it has none of them.
func (d *Demand) ofCluster(offered []mcfgv1.Architecture) []mcfgv1.Architecture {
	there := slices.DeleteFunc(slices.Clone(offered), func(a mcfgv1.Architecture) bool { return !slices.Contains(d.Cluster, a.OCI()) })
	if len(there) == 0 {
		return offered
	}
	return there
}

// String is the demand as text that is the same for the same demand.
func (d *Demand) String() string {
	return fmt.Sprint(sortedKeys(d.Nodes), d.Named, d.Before, slices.Sorted(slices.Values(d.Cluster)))
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
