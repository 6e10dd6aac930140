package forecast

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/words"
	"github.com/layerwright/layerwright/view"
)

// farWindow is how far away a window is that an administrator should know of.
const farWindow = 24 * time.Hour

// Input is what a forecast follows from.
type Input struct {
	Pool *mcfgv1.MachineConfigPool
	// Objects are those of the cluster.
	Objects *view.Objects
	// Config is the pool's rendered MachineConfig; nil where there is none.
	Config *mcfgv1.MachineConfig
	// APIServer is the version of the API server; empty where it is not known.
	APIServer string
	// Resuming asks for what happens when the pool's pause ends, which is no issue then.
	Resuming bool
	Now      time.Time
}

// pools are all pools.
func (in *Input) pools() []*mcfgv1.MachineConfigPool {
	all := make([]*mcfgv1.MachineConfigPool, len(in.Objects.Pools))
	for i := range in.Objects.Pools {
		all[i] = &in.Objects.Pools[i]
	}
	return all
}

// Forecast is what a rollout would do.
type Forecast struct {
	Pool string `json:"pool"`
	// Configuration and Image are what nodes should have; empty while that is not known.
	Configuration string `json:"configuration,omitempty"`
	Image         string `json:"image,omitempty"`
	// Updated is the number of nodes that have it, Total that of all.
	Updated int `json:"updated"`
	Total   int `json:"total"`
	// Cost is what the controller says of the nodes that are left.
	Cost string `json:"cost,omitempty"`
	// After is what goes before the first step, such as another pool.
	After string `json:"after,omitempty"`
	// UnderWay are the nodes that have begun, Steps those that follow, and More is how many come
	// after the last step.
	UnderWay []string `json:"underWay,omitempty"`
	Steps    []Step   `json:"steps,omitempty"`
	More     int      `json:"more,omitempty"`
	// Issues are what is in the way, or may harm what runs.
	Issues []Issue `json:"issues"`

	now     time.Time
	drained map[string]bool
	// known are the names and objects of Issues.
	known map[[2]string]bool
}

// Step are nodes that change at the same time.
type Step struct {
	// Earliest is when they may begin, if the nodes before take as long as others took.
	Earliest time.Time `json:"earliest"`
	// After is what they wait for until then.
	After string     `json:"after,omitempty"`
	Nodes []NodeStep `json:"nodes"`
}

// NodeStep is what happens to a node.
type NodeStep struct {
	Node string `json:"node"`
	// Change is one of mcfgv1.NodeChange...; empty while the node's agent has not said it.
	Change string `json:"change,omitempty"`
}

// Issue is something that an administrator should know before the first node is drained.
type Issue struct {
	// Name is one of view.Issue...
	Name string `json:"name"`
	// Object is what it is about.
	Object string `json:"object"`
	// Message says what is wrong, and Fix what to do.
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	// Accepted reports whether the administrator has accepted issues of this name.
	Accepted bool `json:"accepted,omitempty"`
}

// Of makes a forecast, without what follows from pods (Workload).
func Of(in *Input) *Forecast {
	f := &Forecast{Pool: in.Pool.Name, Issues: []Issue{}, now: in.Now, drained: map[string]bool{}, known: map[[2]string]bool{}}
	members, observed := membersOf(in)
	wanted := wantedOf(in, members)
	verdict := plan.Gate(wanted)
	f.Configuration, f.Image, f.Total = verdict.Target.Config, verdict.Image, len(members)
	f.addPool(in, &verdict)
	if verdict.Target.Config == "" {
		return f
	}
	if r := in.Pool.Status.Rollout; r != nil && r.Cost != nil && r.TargetConfiguration == verdict.Target.Config && string(r.TargetImagePullSpec) == verdict.Image {
		f.Cost = r.Cost.Summary
	}
	pool := in.Pool.DeepCopy()
	pool.Spec.Paused = false
	first := plan.Input{Pool: pool, Target: verdict.Target, Image: verdict.Image, Nodes: observed, Now: in.Now}
	if r := in.Pool.Status.Rollout; r != nil && r.CompletionTime == nil && r.StartTime != nil && r.TargetConfiguration == verdict.Target.Config {
		first.Started = r.StartTime.Time
	}
	f.walk(in, first)
	f.addReported(in, observed)
	f.sort()
	return f
}

func (f *Forecast) sort() {
	slices.SortStableFunc(f.Issues, func(a, b Issue) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Object, b.Object))
	})
}

// membersOf are the nodes of the pool.
func membersOf(in *Input) (members []*corev1.Node, observed []plan.Node) {
	selectors, reports := in.Objects.Selectors(), in.Objects.ReportsByNode()
	for i := range in.Objects.Nodes {
		if n := &in.Objects.Nodes[i]; selectors.Has(in.Pool.Name, n.Labels) {
			members = append(members, n)
			observed = append(observed, plan.Observe(n, reports[n.Name]))
		}
	}
	return members, observed
}

// wantedOf is what the image of the pool is judged by.
func wantedOf(in *Input, members []*corev1.Node) plan.Wanted {
	w := plan.Wanted{Pool: in.Pool, Config: in.Config, Images: in.Objects.Images, APIServer: in.APIServer}
	w.Look(slices.Values(members))
	for i := range in.Objects.Configs {
		if layer := &in.Objects.Configs[i]; layer.Name == in.Pool.Name && layer.DeletionTimestamp.IsZero() {
			w.Layer = layer
			w.ImageNames = names.MachineOSImages(in.Pool.Name, string(layer.Status.CurrentImagePullSpec))
		}
	}
	for i := range in.Objects.Builds {
		b := &in.Objects.Builds[i]
		if w.Layer != nil && w.Layer.Status.MachineOSBuild != nil && b.Name == w.Layer.Status.MachineOSBuild.Name {
			w.Build = b
		}
	}
	return w
}

// addPool adds what is to be said of the pool as a whole.
func (f *Forecast) addPool(in *Input, verdict *plan.Verdict) {
	pool := in.Pool
	if pool.Spec.Paused && !in.Resuming {
		f.addReason(in, "", words.Paused)
	}
	if reason := verdict.Reason(); reason != "" {
		name, command := view.Issue(reason, "", pool.Name, in.Objects.Namespace)
		f.add(cmp.Or(name, view.IssueImageNotReady), poolObject(pool.Name), reason, cmp.Or(command, "layerwright status "+pool.Name))
	}
	for i := range pool.Status.Conditions {
		if c := &pool.Status.Conditions[i]; c.Type == mcfgv1.PoolRolloutDegraded && c.Status == corev1.ConditionTrue && c.Reason == mcfgv1.ReasonRolloutHalted {
			f.addReason(in, "", words.Halted+c.Message)
		}
	}
	if pool.Spec.Rollout == nil {
		return
	}
	wait, err := plan.After(in.Pool, in.pools(), time.Time{}, in.Now)
	if err != nil {
		f.add(view.IssueInvalidRollout, poolObject(pool.Name), err.Error(), "")
	}
	f.After = wait.Reason
	window := plan.Windows(pool.Spec.Rollout.Windows, in.Now)
	if ignored := pool.Annotations[mcfgv1.AnnotationIgnoreWindows] != ""; !window.Open && !ignored && window.Changes.Sub(in.Now) > farWindow {
		f.add(view.IssueWindowFar, poolObject(pool.Name), fmt.Sprintf("maintenance window %s opens at %s", window.Name, window.Changes.UTC().Format(time.RFC3339)),
			"layerwright rollout "+pool.Name+" --ignore-windows REASON")
	}
}

// addReported adds what only the controller knows: how health checks are, and which agents do not
// run.
func (f *Forecast) addReported(in *Input, members []plan.Node) {
	if in.Pool.Status.Rollout == nil {
		return
	}
	isMember := func(name string) bool {
		return slices.ContainsFunc(members, func(n plan.Node) bool { return n.Name == name })
	}
	for _, text := range in.Pool.Status.Rollout.WaitingFor {
		line := words.ReadLine(text, isMember)
		name, _ := view.Issue(line.Reason, "", in.Pool.Name, in.Objects.Namespace)
		switch {
		case name != view.IssueAlertFires && name != view.IssueAgentMissing:
		case len(line.Nodes) == 0:
			f.addReason(in, "", line.Reason)
		default:
			for _, node := range line.Nodes {
				f.addReason(in, node, line.Reason)
			}
		}
	}
}

// ofPool are issues that are about the pool, also where each of its nodes has the reason.
var ofPool = []string{view.IssueHalted, view.IssueImageNotReady, view.IssueInvalidRollout, view.IssuePaused, view.IssueQuarantined}

func poolObject(pool string) string { return view.KindPool + " " + pool }

// addReason adds the issue that a reason is, if it is one.
func (f *Forecast) addReason(in *Input, node, reason string) {
	name, command := view.Issue(reason, node, in.Pool.Name, in.Objects.Namespace)
	if name == "" {
		return
	}
	object := view.KindNode + " " + node
	if node == "" || slices.Contains(ofPool, name) {
		object = poolObject(in.Pool.Name)
	}
	f.add(name, object, reason, command)
}

// add adds an issue, once for each object.
func (f *Forecast) add(name, object, message, fix string) {
	if key := [2]string{name, object}; !f.known[key] {
		f.known[key] = true
		f.Issues = append(f.Issues, Issue{Name: name, Object: object, Message: message, Fix: fix})
	}
}

// Accept marks issues of these names, and gives the names of those that are left.
func (f *Forecast) Accept(accepted []string) (left []string) {
	for i := range f.Issues {
		issue := &f.Issues[i]
		issue.Accepted = slices.Contains(accepted, issue.Name)
		if !issue.Accepted && !slices.Contains(left, issue.Name) {
			left = append(left, issue.Name)
		}
	}
	return left
}
