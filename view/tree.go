package view

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/nodes"
)

// Objects are what a tree is made of, from a cache or from one list for each kind. They are only
// read.
type Objects struct {
	// Namespace is that of Layerwright, for commands; empty means "layerwright".
	Namespace string
	Pools     []mcfgv1.MachineConfigPool
	Configs   []mcfgv1.MachineOSConfig
	Builds    []mcfgv1.MachineOSBuild
	Images    []mcfgv1alpha1.MachineOSImage
	Nodes     []corev1.Node
	// Reports are the MachineConfigNodes.
	Reports []mcfgv1.MachineConfigNode
	Streams []mcfgv1.OSImageStream
	// Machines are the MachineConfigurations, which say how boot images are.
	Machines []operatorv1.MachineConfiguration
	// EachNode asks for an item for each node; equal ones are one item otherwise.
	EachNode bool
}

// Selectors say which node is in which pool.
func (o *Objects) Selectors() *nodes.Selectors {
	pools := make([]*mcfgv1.MachineConfigPool, len(o.Pools))
	for i := range o.Pools {
		pools[i] = &o.Pools[i]
	}
	return nodes.NewSelectors(pools)
}

// ReportsByNode are the MachineConfigNodes by the names of their nodes.
func (o *Objects) ReportsByNode() map[string]*mcfgv1.MachineConfigNode {
	reports := make(map[string]*mcfgv1.MachineConfigNode, len(o.Reports))
	for i := range o.Reports {
		reports[o.Reports[i].Name] = &o.Reports[i]
	}
	return reports
}

// Assessment is how an item is, in one word.
type Assessment int

// The assessments. Of several, the later one says how they are together.
const (
	// Unmanaged is what Layerwright leaves alone.
	Unmanaged Assessment = iota
	// Done is what it should be.
	Done
	// Waiting goes on by itself when something else has.
	Waiting
	// Progressing is under way.
	Progressing
	// Held stays as it is until someone acts, and nothing has failed.
	Held
	// Degraded has failed.
	Degraded
)

// String is the word.
func (a Assessment) String() string {
	return [...]string{"Unmanaged", "Done", "Waiting", "Progressing", "Held", "Degraded"}[a]
}

// MarshalText is the word too.
func (a Assessment) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Actor is who acts next.
type Actor string

// The actors.
const (
	// NoOne is the actor of what is done.
	NoOne Actor = ""
	// You are whoever reads it: an administrator of the cluster.
	You Actor = "you"
	// Controller is Layerwright's.
	Controller Actor = "Layerwright"
	// Agent is that of the node.
	Agent Actor = "the node's agent"
	// Others are other nodes, pools or pods, which have reasons of their own.
	Others Actor = "others"
	// Clock is the time that has to pass.
	Clock Actor = "time"
)

// Item is one object, several objects that are equal, or a condition of an object.
type Item struct {
	// Kind is that of the object, or Condition.
	Kind string `json:"kind"`
	// Names are those of equal objects, at least one.
	Names []string `json:"names"`
	// Assessment is how it is.
	Assessment Assessment `json:"assessment"`
	// Wanted is what it should be, and Has what it is, where the two can differ.
	Wanted string `json:"wanted,omitempty"`
	Has    string `json:"has,omitempty"`
	// Stream is that of a pool. Image is the digest, in short, of the image that a node has, that a
	// pool is to have, or that an object is about.
	Stream string `json:"stream,omitempty"`
	Image  string `json:"image,omitempty"`
	// Updated counts the nodes of a pool that are what they should be, Total all of them.
	Updated int `json:"updated,omitempty"`
	Total   int `json:"total,omitempty"`
	// Step is where it is, in few words, and Since since when: of several the one that is there the
	// longest. It is zero where that is not known.
	Step  string    `json:"step,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// WaitsFor are the reasons why it is not what it should be, in the words of who found them.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// Next is who acts next.
	Next Actor `json:"next,omitempty"`
	// Command shows more, or ends the wait; empty where none does.
	Command string `json:"command,omitempty"`
	// Runbook is a page about what someone has to act upon; empty where there is none.
	Runbook string `json:"runbook,omitempty"`
	// Items are what belongs to it.
	Items []Item `json:"items,omitempty"`
}

// The kinds of items.
const (
	KindPool      = "MachineConfigPool"
	KindConfig    = "MachineOSConfig"
	KindBuild     = "MachineOSBuild"
	KindImage     = "MachineOSImage"
	KindNode      = "Node"
	KindCondition = "Condition"
	KindStreams   = "OSImageStream"
	KindMachines  = "MachineConfiguration"
)

// Tree is what a cluster says, pools first.
type Tree struct {
	Items []Item `json:"items"`
}

// Of makes the tree of a cluster.
func Of(o *Objects) Tree {
	c := newCluster(o)
	var t Tree
	for i := range o.Pools {
		t.Items = append(t.Items, c.pool(&o.Pools[i]))
	}
	for i := range o.Configs {
		if of := &o.Configs[i]; !c.isShown[of.Name] {
			t.Items = append(t.Items, configItem(of))
		}
	}
	for i := range o.Streams {
		s := &o.Streams[i]
		t.Items = append(t.Items, fromConditions(KindStreams, s, s.Status.Conditions, "kubectl get osimagestreams -o wide"))
	}
	for i := range o.Machines {
		m := &o.Machines[i]
		t.Items = append(t.Items, fromConditions(KindMachines, m, m.Status.Conditions, safe("kubectl get machineconfiguration %s -o yaml", m.Name)))
	}
	if c.others != nil {
		t.Items = append(t.Items, Item{Kind: KindNode, Names: c.others, Step: "in no pool"})
	}
	addRunbooks(t.Items)
	return t
}

// cluster is what several items are made of.
type cluster struct {
	*Objects
	// members are the nodes of each pool, others the names of those that are in none.
	members map[string][]*corev1.Node
	others  []string
	reports map[string]*mcfgv1.MachineConfigNode
	// isShown are the names of the MachineOSConfigs that are shown with their pool.
	isShown map[string]bool
}

func newCluster(o *Objects) *cluster {
	c := &cluster{Objects: o, members: map[string][]*corev1.Node{}, reports: o.ReportsByNode(), isShown: map[string]bool{}}
	selectors := o.Selectors()
	for i := range o.Nodes {
		n := &o.Nodes[i]
		pool := nodes.PoolOf(selectors.Selecting(n.Labels))
		if pool == "" {
			c.others = append(c.others, n.Name)
			continue
		}
		c.members[pool] = append(c.members[pool], n)
	}
	return c
}

// namespace is that of Layerwright.
func (c *cluster) namespace() string { return cmp.Or(c.Namespace, "layerwright") }
