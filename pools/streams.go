package pools

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/streams"
)

const (
	typeOSStreamDeprecated = string(mcfgv1.PoolOSStreamDeprecated)
	typeOSStreamsMixed     = string(mcfgv1.PoolOSStreamsMixed)
)

// notices are the conditions that ask for someone's attention without anything being wrong: they
// are no part of Ready or Degraded.
var notices = []string{typeOSStreamDeprecated, typeOSStreamsMixed}

// standings are how far the streams that a pool uses are in their life, the one that it follows
// first.
func standings(set *mcfgv1.OSImageStream, pool *mcfgv1.MachineConfigPool, now time.Time) []streams.Standing {
	var all []streams.Standing
	for _, name := range streams.InUse(pool) {
		all = append(all, streams.StandingOf(set, name, now))
	}
	return all
}

// StreamsInUse are the streams that pools use and how far these are in their life, for metrics.
func StreamsInUse(pools []mcfgv1.MachineConfigPool, set *mcfgv1.OSImageStream, now time.Time) []metrics.PoolStream {
	var all []metrics.PoolStream
	for i := range pools {
		for _, s := range standings(set, &pools[i], now) {
			use := metrics.PoolStream{Pool: pools[i].Name, Stream: s.Stream, Lifecycle: string(s.Lifecycle)}
			if s.Removed {
				use.Lifecycle = "Removed"
			}
			all = append(all, use)
		}
	}
	return all
}

// severity orders standings: the longer a pool waits, the higher.
func severity(s streams.Standing) int {
	switch {
	case s.Removed:
		return 3
	case s.Lifecycle == mcfgv1.StreamEndOfLife:
		return 2
	case s.Lifecycle == mcfgv1.StreamDeprecated:
		return 1
	default:
		return 0
	}
}

// osStreamDeprecated is the condition OSStreamDeprecated of a pool, given the standings of its
// streams. The message for a deprecated stream is the published one.
func osStreamDeprecated(all []streams.Standing) metav1.Condition {
	c := metav1.Condition{Type: typeOSStreamDeprecated, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonAsExpected}
	if len(all) == 0 {
		return c
	}
	worst := slices.MaxFunc(all, func(a, b streams.Standing) int { return cmp.Compare(severity(a), severity(b)) })
	if severity(worst) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, mcfgv1.ReasonStreamEndOfLife
	what := fmt.Sprintf("Stream '%s' is deprecated and will be removed in a future release.", worst.Stream)
	switch {
	case worst.Removed:
		c.Reason = mcfgv1.ReasonStreamRemoved
		what = fmt.Sprintf("Stream '%s' is no longer available: the pool keeps its image and gets no newer one, and the cluster cannot be upgraded.", worst.Stream)
	case worst.Lifecycle == mcfgv1.StreamEndOfLife:
		what = fmt.Sprintf("Stream '%s' has reached the end of its life: it gets no updates, and the cluster cannot be upgraded.", worst.Stream)
	}
	c.Message = what + " " + migrationHint(worst, all[0].Stream)
	return c
}

// migrationHint says how a pool leaves a stream; follows is the stream that it follows.
func migrationHint(s streams.Standing, follows string) string {
	switch {
	case s.Stream != follows:
		return fmt.Sprintf("The pool is moving to '%s', and some nodes have not moved yet.", follows)
	case s.Successor != "":
		return fmt.Sprintf("Migrate to '%s' before upgrading.", s.Successor)
	default:
		return "Migrate to another stream before upgrading: name it in spec.osImageStream."
	}
}

// osStreamsMixed is the condition OSStreamsMixed of the pool in scope: a compact cluster, whose
// control plane runs everything, should run one operating system.
func osStreamsMixed(s *scope) metav1.Condition {
	c := metav1.Condition{Type: typeOSStreamsMixed, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonAsExpected}
	master := s.poolNamed(mcfgv1.PoolMaster)
	if master == nil || !isCompact(s.nodes) {
		return c
	}
	if s.pool.Name == master.Name {
		master = s.pool // what this reconcile wrote is newer
	}
	worker := s.poolNamed(mcfgv1.PoolWorker)
	follows := cmp.Or(s.stream.Name, streams.Following(s.pool, worker))
	others := streams.Following(master, worker)
	switch on := master.Status.OSImageStream.Name; {
	case s.pool.Name != master.Name && follows != "" && others != "" && follows != others:
		c.Message = fmt.Sprintf("The cluster is compact: the nodes of the pool '%s' run everything, on stream '%s', and this pool follows '%s'. A compact cluster "+
			"should run one stream: name the same one in both pools.", master.Name, others, follows)
	case s.pool.Name == master.Name && on != "" && follows != "" && follows != on:
		c.Message = fmt.Sprintf("The cluster is compact: the pool's nodes run everything, and move from stream '%s' to '%s'. The cluster runs both "+
			"streams until the last node has moved: make sure that every node can be drained.", on, follows)
	default:
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, mcfgv1.ReasonCompactCluster
	return c
}

// isCompact reports whether the control plane runs everything: its nodes take pods, and there are
// no others, but for arbiters.
func isCompact(m nodes.Membership) bool {
	for pool, members := range m.Members {
		if pool != mcfgv1.PoolMaster && pool != mcfgv1.PoolArbiter && len(members) > 0 {
			return false
		}
	}
	return m.Others == 0 && slices.ContainsFunc(m.Members[mcfgv1.PoolMaster], func(n nodes.Node) bool { return n.TakesPods })
}
