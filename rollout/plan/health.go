package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/words"
)

// defaultReadyTimeout is how long a node may be without Ready after it has arrived.
const defaultReadyTimeout = 10 * time.Minute

// DefaultHealthTimeout is how long a node has to become healthy by a health check that says nothing
// (RolloutHealthCheck.Timeout).
const DefaultHealthTimeout = 10 * time.Minute

// verdict is what a node proves about the target.
type verdict struct {
	// failed is how it failed; empty where it did not.
	failed string
	// pending is what it still has to prove; empty where nothing is left.
	pending string
	// until is when pending becomes failed; zero where time alone does not do that.
	until time.Time
}

// judge says what a node proves about the target. A failure that was seen before stays one.
func (d *decision) judge(n *Node) verdict {
	switch {
	case n.FailedTarget == d.Target:
		return verdict{failed: n.FailedReason}
	case n.IsAt(d.Target):
		return d.judgeArrived(n)
	case !n.IsOnItsWay(d.Target):
		return verdict{}
	case n.IsDegraded() && n.has() == d.Target: // it arrived, and a file was edited since
		return verdict{}
	case n.hasStaleFailure():
		return verdict{pending: n.progress()}
	case n.IsDegraded():
		return verdict{failed: n.Reason}
	case !n.Rebooting.IsZero():
		v := verdict{pending: words.Rebooting, until: n.Rebooting.Add(d.rebootTimeout)}
		return d.expire(v, fmt.Sprintf("did not come back within %s of its reboot", d.rebootTimeout))
	default:
		return verdict{pending: n.progress()}
	}
}

// judgeArrived judges the health of a node that has the target.
func (d *decision) judgeArrived(n *Node) verdict {
	if !n.IsOnTrial(d.Target, d.Started, d.Superseded) {
		return verdict{}
	}
	if slices.Contains(d.FailedAtQuarantine, n.Name) {
		return verdict{failed: d.Evidence}
	}
	if !n.Ready {
		v := verdict{pending: words.NotReadyYet, until: known(n.Unready, n.Arrived).Add(defaultReadyTimeout)}
		return d.expire(v, fmt.Sprintf("was not Ready within %s of its update", defaultReadyTimeout))
	}
	var first verdict
	for i := range n.Health {
		switch v := d.judgeCheck(n, &n.Health[i]); {
		case v.failed != "":
			return v
		case first.pending == "":
			first = v
		}
	}
	return first
}

// judgeCheck says what a health check proves about a node that has the target.
func (d *decision) judgeCheck(n *Node, h *HealthResult) verdict {
	switch {
	case h.Broken:
		return verdict{pending: fmt.Sprintf(words.NotJudged+"%s: %s", h.Name, h.Value)}
	case h.Holds:
		return verdict{}
	case h.Failed:
		return verdict{failed: fmt.Sprintf("health check %s failed: %s", h.Name, h.Value)}
	default:
		v := verdict{
			pending: fmt.Sprintf(words.NotHealthyYet+"%s is %s", h.Name, h.Value),
			until:   known(h.Since, n.Arrived).Add(h.Timeout),
		}
		return d.expire(v, fmt.Sprintf("health check %s did not hold within %s: %s", h.Name, h.Timeout, h.Value))
	}
}

// IsOnTrial reports whether the node has a target, and was changed to it in the rollout that began
// at a time, or in the one before. Told then of another target that it did not take, it had this
// one before, which proves nothing.
func (n *Node) IsOnTrial(t nodes.Target, started, superseded time.Time) bool {
	return n.IsAt(t) && (n.wasToldIn(started) || n.Previous != t && n.wasToldIn(superseded))
}

// wasToldIn reports whether the node was told to change in the rollout that began at a time. The
// node's own clock, which may be wrong, decides only where nothing else does.
func (n *Node) wasToldIn(started time.Time) bool {
	switch {
	case started.IsZero():
		return false
	case n.RolloutStarted.IsZero():
		return !n.Arrived.Before(started)
	default:
		return n.RolloutStarted.Equal(started)
	}
}

// known is a time by this process's clock, or else by that of a node.
func known(own, node time.Time) time.Time {
	if own.IsZero() {
		return node
	}
	return own
}

// expire makes a failure of what is pending for too long, and remembers when that will be.
func (d *decision) expire(v verdict, failed string) verdict {
	if !d.Now.Before(v.until) {
		return verdict{failed: failed}
	}
	d.wake(v.until)
	return v
}

// wake makes the plan be made again at a time.
func (d *decision) wake(at time.Time) {
	if !at.IsZero() && (d.plan.Next.IsZero() || at.Before(d.plan.Next)) {
		d.plan.Next = at
	}
}

// Duration reads a duration of spec.rollout, which the API has validated; otherwise is that of an
// empty one.
func Duration(text string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return otherwise
}

// has is what the node has booted.
func (n *Node) has() nodes.Target {
	return nodes.Target{Config: n.CurrentConfig, Image: n.CurrentImage}
}

// lostTarget reports whether an annotation of what the node should have was removed: what is left
// of it is a part of what the node has. A node that goes back because it failed was told so.
func (n *Node) lostTarget() bool {
	has := n.has()
	return n.IsMoving() && has.Config != "" && n.FailedTarget != has &&
		(n.DesiredConfig == "" || n.DesiredConfig == has.Config) && (n.DesiredImage == "" || n.DesiredImage == has.Image)
}

// isUntouched reports whether the node has never been told to take the target, or has gone back.
func (n *Node) isUntouched(t nodes.Target) bool {
	return !n.IsAt(t) && !n.IsOnItsWay(t)
}
