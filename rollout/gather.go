package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/healthchecks"
	"github.com/layerwright/layerwright/rollout/plan"
)

// scope is one reconcile of one pool.
type scope struct {
	pool *mcfgv1.MachineConfigPool
	// nodes are the pool's Nodes by name, and reports their MachineConfigNodes. Both are the
	// cache's own.
	nodes   map[string]*corev1.Node
	reports map[string]*mcfgv1.MachineConfigNode
	// others are the Nodes of other pools, by name, where this one is of the control plane.
	others  map[string]*corev1.Node
	members []plan.Node
	wanted  plan.Wanted
	etcd    []plan.EtcdMember
	// pools are all pools.
	pools []*mcfgv1.MachineConfigPool
	// invalid is why spec.rollout of the pool can't be followed.
	invalid error
	verdict plan.Verdict
	// findings are what health checks say. wait is which of them can't be evaluated on any node, or
	// which other pools go first.
	findings *healthchecks.Findings
	wait     plan.Wait
	plan     plan.Plan
	// agentsAfter is after how long it is looked again whether agents run; 0 where all answer.
	agentsAfter time.Duration
	// took is how long the updates of nodes took that were drained, and have arrived now.
	took []time.Duration
}

// gather reads what the reconcile needs, from the cache.
func (r *Reconciler) gather(ctx context.Context, s *scope) error {
	if err := r.gatherNodes(ctx, s); err != nil {
		return err
	}
	s.wanted = plan.Wanted{Pool: s.pool}
	s.wanted.Look(maps.Values(s.nodes))
	var images mcfgv1alpha1.MachineOSImageList
	if err := r.client.List(ctx, &images, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing MachineOSImages: %w", err)
	}
	s.wanted.Images = images.Items
	var err error
	if s.wanted.Config, err = get(ctx, r.client, s.pool.Spec.Configuration.Name, &mcfgv1.MachineConfig{}); err != nil {
		return err
	}
	if s.wanted.Layer, err = get(ctx, r.client, s.pool.Name, &mcfgv1.MachineOSConfig{}); err != nil {
		return err
	}
	if s.wanted.Layer != nil && !s.wanted.Layer.DeletionTimestamp.IsZero() {
		s.wanted.Layer = nil
	}
	if s.wanted.Layer != nil {
		s.wanted.ImageNames = names.MachineOSImages(s.pool.Name, string(s.wanted.Layer.Status.CurrentImagePullSpec))
	}
	if s.wanted.Layer != nil && s.wanted.Layer.Status.MachineOSBuild != nil {
		if s.wanted.Build, err = get(ctx, r.client, s.wanted.Layer.Status.MachineOSBuild.Name, &mcfgv1.MachineOSBuild{}); err != nil {
			return err
		}
	}
	if len(s.wanted.Kubelets) > 0 {
		if s.wanted.APIServer, err = r.apiServer(); err != nil {
			return err
		}
	}
	s.verdict = plan.Gate(s.wanted)
	if err := r.gatherRunning(ctx, s); err != nil {
		return err
	}
	if err := r.compareArguments(ctx, s); err != nil {
		return err
	}
	r.trackTransitions(s)
	if err := r.gatherAgents(ctx, s); err != nil {
		return err
	}
	if err := r.judge(ctx, s); err != nil {
		return err
	}
	s.wait, err = plan.After(s.pool, s.pools, renderedAt(s.wanted.Config), r.clock.Now())
	s.invalid = errors.Join(s.invalid, err)
	s.wait.Reason = cmp.Or(s.findings.Unread, s.wait.Reason)
	return nil
}

// judge judges the nodes by the pool's health checks.
func (r *Reconciler) judge(ctx context.Context, s *scope) error {
	isBehind := slices.ContainsFunc(s.members, func(n plan.Node) bool { return !n.IsAt(s.verdict.Target) })
	var err error
	s.findings, err = r.checks.Judge(ctx, &healthchecks.Scope{
		Pool: s.pool, Target: s.verdict.Target, Image: s.verdict.Image, Started: s.started(), Superseded: s.superseded(r.clock.Now()), Nodes: s.nodes, Members: s.members,
		IsOpen: isBehind && s.verdict.Target.Config != "" && s.verdict.Reason() == "" && !s.pool.Spec.Paused,
	})
	if err == nil {
		s.invalid = s.findings.Invalid
	}
	return err
}

// gatherRunning finds out which image each node runs: one that has none of its own runs the OS
// image of its configuration.
func (r *Reconciler) gatherRunning(ctx context.Context, s *scope) error {
	osImages := map[string]mcfgv1.ImageDigestFormat{"": ""}
	for i := range s.members {
		n := &s.members[i]
		if n.RunsImage = mcfgv1.ImageDigestFormat(n.CurrentImage); n.RunsImage != "" {
			continue
		}
		if _, isKnown := osImages[n.CurrentConfig]; !isKnown {
			config, err := get(ctx, r.client, n.CurrentConfig, &mcfgv1.MachineConfig{})
			if err != nil {
				return err
			}
			osImages[n.CurrentConfig] = ""
			if config != nil {
				osImages[n.CurrentConfig] = mcfgv1.ImageDigestFormat(config.Spec.OSImageURL)
			}
		}
		n.RunsImage = osImages[n.CurrentConfig]
	}
	return nil
}

// compareArguments finds out which nodes have the kernel arguments of the target.
func (r *Reconciler) compareArguments(ctx context.Context, s *scope) error {
	configs := map[string]*mcfgv1.MachineConfig{}
	of := func(name string) (*mcfgv1.MachineConfig, error) {
		found, isKnown := configs[name]
		if isKnown || name == "" {
			return found, nil
		}
		found, err := get(ctx, r.client, name, &mcfgv1.MachineConfig{})
		configs[name] = found
		return found, err
	}
	for i := range s.members {
		n := &s.members[i]
		if n.CurrentConfig == s.verdict.Target.Config || n.CurrentImage == "" || n.CurrentImage != s.verdict.Target.Image {
			continue
		}
		has, err := of(n.CurrentConfig)
		if err != nil {
			return err
		}
		wants, err := of(s.verdict.Target.Config)
		if err != nil {
			return err
		}
		n.SameArguments = has != nil && wants != nil && slices.Equal(has.Spec.KernelArguments, wants.Spec.KernelArguments)
	}
	return nil
}

// pullOf is what a node pulls to have an image, which may be nil, by the largest of its
// architectures that the pool has.
func pullOf(image *mcfgv1alpha1.MachineOSImage, architectures []mcfgv1.Architecture) plan.Pull {
	if image == nil {
		return plan.Pull{}
	}
	pull := plan.Pull{Previous: image.Status.PreviousImagePullSpec}
	for i := range image.Status.Architectures {
		a := &image.Status.Architectures[i]
		if slices.Contains(architectures, a.Architecture) {
			pull.Less, pull.All = larger(pull.Less, a.PullSize), larger(pull.All, a.Size)
		}
	}
	return pull
}

// larger is the larger one of two sizes; nil is unknown.
func larger(a, b *int64) *int64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// apiServerInterval is how long the version of the API server is taken for what it was: nothing
// watches it.
const apiServerInterval = time.Minute

// apiServer is the version of the API server.
func (r *Reconciler) apiServer() (string, error) {
	if now := r.clock.Now(); r.server == "" || now.Sub(r.serverAsked) >= apiServerInterval || now.Before(r.serverAsked) {
		found, err := r.versions.ServerVersion()
		if err != nil {
			return "", fmt.Errorf("asking for the version of the API server: %w", err)
		}
		r.server, r.serverAsked = found.GitVersion, now
	}
	return r.server, nil
}

// renderedAt is when a rendered MachineConfig was made; zero where there is none.
func renderedAt(config *mcfgv1.MachineConfig) time.Time {
	if config == nil {
		return time.Time{}
	}
	return config.CreationTimestamp.Time
}

// gatherNodes reads the pool's nodes, with what this process has just written.
func (r *Reconciler) gatherNodes(ctx context.Context, s *scope) error {
	var (
		pools   mcfgv1.MachineConfigPoolList
		all     corev1.NodeList
		reports mcfgv1.MachineConfigNodeList
		problem error
	)
	for _, list := range []client.ObjectList{&pools, &all, &reports} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
	}
	for i := range pools.Items {
		s.pools = append(s.pools, &pools.Items[i])
	}
	selectors := nodes.NewSelectors(s.pools)
	r.forget(all.Items)
	s.nodes, s.others, s.reports = map[string]*corev1.Node{}, map[string]*corev1.Node{}, map[string]*mcfgv1.MachineConfigNode{}
	for i := range all.Items {
		n, err := r.written.newest(&all.Items[i])
		problem = errors.Join(problem, err)
		switch {
		case selectors.Has(s.pool.Name, n.Labels):
			s.nodes[n.Name] = n
		case plan.IsControlPlane(s.pool):
			s.others[n.Name] = n
		}
	}
	for i := range reports.Items {
		if s.nodes[reports.Items[i].Name] == nil {
			continue
		}
		report, err := r.writtenReports.newest(&reports.Items[i])
		problem = errors.Join(problem, err)
		s.reports[report.Name] = report
	}
	if problem != nil {
		ctrl.LoggerFrom(ctx).Error(problem, "Comparing versions of objects")
	}
	for name, n := range s.nodes {
		s.members = append(s.members, plan.Observe(n, s.reports[name]))
	}
	return nil
}

// forget drops what is known of Nodes that are gone.
func (r *Reconciler) forget(all []corev1.Node) {
	if len(r.written) == 0 && len(r.writtenReports) == 0 && len(r.started) == 0 && len(r.transitions) == 0 {
		return
	}
	names := sets.New[string]()
	for i := range all {
		names.Insert(all[i].Name)
	}
	maps.DeleteFunc(r.written, func(name string, _ *corev1.Node) bool { return !names.Has(name) })
	maps.DeleteFunc(r.writtenReports, func(name string, _ *mcfgv1.MachineConfigNode) bool { return !names.Has(name) })
	maps.DeleteFunc(r.started, func(name string, _ time.Time) bool { return !names.Has(name) })
	maps.DeleteFunc(r.transitions, func(name string, _ nodeTransitions) bool { return !names.Has(name) })
}

// nodeTransitions is since when this process sees a state of a node: the clocks of nodes may be
// wrong.
type nodeTransitions struct{ rebooting, unready, arrived, asked time.Time }

// trackTransitions sets since when nodes are as they are.
func (r *Reconciler) trackTransitions(s *scope) {
	now := r.clock.Now()
	since := func(before time.Time, is bool) time.Time {
		switch {
		case !is:
			return time.Time{}
		case before.IsZero() || before.After(now): // or the clock was set back
			return now
		default:
			return before
		}
	}
	for i := range s.members {
		m := &s.members[i]
		was := r.transitions[m.Name]
		isThere := m.IsAt(s.verdict.Target)
		is := nodeTransitions{
			rebooting: since(was.rebooting, !m.Rebooting.IsZero()), unready: since(was.unready, isThere && !m.Ready),
			arrived: since(was.arrived, isThere), asked: since(was.asked, awaitsAgent(m)),
		}
		m.Rebooting, m.Unready, m.Seen = is.rebooting, is.unready, is.arrived
		delete(r.transitions, m.Name)
		if is != (nodeTransitions{}) {
			r.transitions[m.Name] = is
		}
	}
}

// get reads an object by name; nil where there is none.
func get[T client.Object](ctx context.Context, c client.Reader, name string, object T) (T, error) {
	var none T
	if name == "" {
		return none, nil
	}
	err := c.Get(ctx, client.ObjectKey{Name: name}, object, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("reading %T %q: %w", object, name, err)
	}
	return object, nil
}
