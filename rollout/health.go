package rollout

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/health"
)

// compiled are the health checks of a pool, as they were when they were compiled.
type compiled struct {
	spec   []mcfgv1.RolloutHealthCheck
	checks *health.Checks
	err    error
}

// healthChecks are the pool's health checks, compiled once for each version of them.
func (r *Reconciler) healthChecks(pool *mcfgv1.MachineConfigPool) *compiled {
	var spec []mcfgv1.RolloutHealthCheck
	if pool.Spec.Rollout != nil {
		spec = pool.Spec.Rollout.HealthChecks
	}
	if c := r.checks[pool.Name]; c != nil && reflect.DeepEqual(c.spec, spec) {
		return c
	}
	c := &compiled{spec: spec}
	c.checks, c.err = health.Compile(spec)
	r.checks[pool.Name] = c
	return c
}

// judge evaluates the pool's health checks on the nodes that have the target. Before the first of
// them does, the expressions are compiled all the same: a mistake is to be seen before a node is
// moved.
func (r *Reconciler) judge(s *scope) {
	c := r.healthChecks(s.pool)
	s.invalid = c.err
	if len(c.spec) == 0 {
		return
	}
	known := map[types.UID]bool{}
	for i := range s.members {
		m := &s.members[i]
		n := s.nodes[m.Name]
		known[n.UID] = true
		if m.IsAt(s.verdict.Target) {
			m.Health = c.checks.Of(n)
		}
	}
	c.checks.Keep(func(uid types.UID) bool { return known[uid] })
}

// withoutHeartbeats is a Node without what changes while nothing happens to it, for checks that
// read any field. It shares the rest with the Node.
func withoutHeartbeats(n *corev1.Node) corev1.Node {
	out := *n
	out.ResourceVersion, out.ManagedFields, out.Status.Images = "", nil, nil
	out.Status.Conditions = slices.Clone(n.Status.Conditions)
	for i := range out.Status.Conditions {
		out.Status.Conditions[i].LastHeartbeatTime.Reset()
	}
	return out
}
