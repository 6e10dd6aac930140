package plan

import (
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Pull is what a node pulls to have an image, in bytes; nil where that is not known.
type Pull struct {
	// Previous is another image, and Less what a node pulls that runs it.
	Previous mcfgv1.ImageDigestFormat
	Less     *int64
	// All is what any other node pulls at most.
	All *int64
}

// of is what a node pulls that runs an image.
func (p *Pull) of(runs mcfgv1.ImageDigestFormat) *int64 {
	if digest := runs.Digest(); digest != "" && digest == p.Previous.Digest() && p.Less != nil {
		return p.Less
	}
	return p.All
}

// Cost is what happens to the nodes that do not have the target, without those that failed with it
// and those that are being deleted.
type Cost struct {
	// Reboots, SoftReboots and Drains are the numbers of nodes that are drained. Live is that of
	// nodes that change as they run, and Unknown that of those which have not staged the image, or
	// whose agent does not say it.
	Reboots, SoftReboots, Drains, Live, Unknown int
	// Parallel is how many nodes may be away at a time.
	Parallel int
	// Pull is how many bytes a node pulls at most that has not staged the image; nil where that is
	// not known.
	Pull *int64
}

// cost is what the rest of the rollout costs.
func (d *decision) cost() Cost {
	c := Cost{Parallel: maxUnavailable(d.Pool, len(d.Nodes))}
	var most int64
	isKnown, pulls := true, false
	for i, n := range d.Nodes {
		if n.IsAt(d.Target) || n.Deleting || d.verdicts[i].failed != "" {
			continue
		}
		has := n.StagedImage == d.Image && d.Image != ""
		c.count(n, has)
		if has || d.Image == "" || n.CurrentImage == d.Image {
			continue
		}
		if pull := d.Pull.of(n.RunsImage); pull == nil {
			isKnown = false
		} else {
			most, pulls = max(most, *pull), true
		}
	}
	if isKnown && pulls {
		c.Pull = &most
	}
	return c
}

// count adds a node, which has staged the image or not.
func (c *Cost) count(n *Node, staged bool) {
	change := n.StagedChange
	if !staged {
		change = ""
	}
	switch change {
	case mcfgv1.NodeChangeReboot:
		c.Reboots++
	case mcfgv1.NodeChangeSoftReboot:
		c.SoftReboots++
	case mcfgv1.NodeChangeDrain:
		c.Drains++
	case mcfgv1.NodeChangeLive:
		c.Live++
	default: // also what an agent of a later version says
		c.Unknown++
	}
}

// Nodes is the number of nodes that the cost is of.
func (c *Cost) Nodes() int { return c.away() + c.Live }

// away is the number of nodes that are or may be drained.
func (c *Cost) away() int { return c.Reboots + c.SoftReboots + c.Drains + c.Unknown }

// Duration is how long it takes when each node that may be drained takes so long, and as many go at
// a time as may.
func (c *Cost) Duration(each time.Duration) time.Duration {
	parallel := max(c.Parallel, 1)
	return time.Duration((c.away()+parallel-1)/parallel) * each
}

// Words is the cost for people; took is what Duration says, and 0 where that is not known.
func (c *Cost) Words(took time.Duration) string {
	var nodes []string
	for _, of := range []struct {
		count int
		what  string
	}{
		{c.Reboots, "reboot"}, {c.SoftReboots, "soft-reboot"}, {c.Drains, "only drained"}, {c.Live, "without drain or reboot"}, {c.Unknown, "not known yet"},
	} {
		if of.count > 0 {
			nodes = append(nodes, fmt.Sprintf("%d %s", of.count, of.what))
		}
	}
	parts := []string{"nodes: " + strings.Join(nodes, ", ")}
	if took > 0 {
		minutes := max(took.Round(time.Minute), time.Minute)
		parts = append(parts, "about "+strings.TrimSuffix(minutes.String(), "0s")+" in all")
	}
	if c.Pull != nil {
		parts = append(parts, "a node pulls at most "+bytes(*c.Pull))
	}
	return strings.Join(parts, "; ")
}

// bytes is a number of bytes for people.
func bytes(n int64) string {
	const kilo, mega, giga = 1e3, 1e6, 1e9
	switch f := float64(n); {
	case f >= giga:
		return fmt.Sprintf("%.1f GB", f/giga)
	case f >= mega:
		return fmt.Sprintf("%.0f MB", f/mega)
	case f >= kilo:
		return fmt.Sprintf("%.0f kB", f/kilo)
	default:
		return fmt.Sprintf("%d B", n)
	}
}

// away are the nodes of Plan.Away.
func (d *decision) away() []string {
	told := map[string]bool{}
	for _, m := range d.plan.Moves {
		told[m.Node] = told[m.Node] || m.Action == Update && !m.Live
	}
	var names []string
	for i, n := range d.Nodes {
		v := d.verdicts[i]
		isChanging := n.IsMoving() && !n.LiveOnly && !n.IsDegraded()
		isProving := n.IsAt(d.Target) && !v.until.IsZero()
		if v.failed == "" && (told[n.Name] || isChanging || isProving) {
			names = append(names, n.Name)
		}
	}
	return names
}
