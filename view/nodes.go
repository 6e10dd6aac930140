package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/words"
)

// nodeItems are the nodes of a pool, in groups. The controller knows more than nodes say, such as
// that an agent does not run: where its lines name a node, they are why it does not move. It counts
// the nodes that are what they should be.
func (p *poolView) nodeItems(updated *int) []Item {
	members := p.members[p.pool.Name]
	seen, items, names := make([]seen, len(members)), make([]Item, len(members)), make([]string, len(members))
	own := map[string]int{}
	for i, n := range members {
		node := plan.Observe(n, p.reports[n.Name])
		seen[i].reason, seen[i].isThere = node.OwnReason(p.target, p.image), node.IsAt(p.target)
		seen[i].has = describe(nodes.Target{Config: node.CurrentConfig, Image: node.CurrentImage})
		seen[i].image = shortOf(node.CurrentImage)
		own[seen[i].reason]++
		if seen[i].isThere {
			*updated++
		}
	}
	p.lines.settle(own)
	for i, n := range members {
		names[i] = n.Name
		items[i] = p.node(&seen[i], names[i:i+1:i+1]) // which is cheaper than a list for each
		items[i].Since = sinceOf(p.reports[n.Name], items[i].Step)
	}
	if p.EachNode {
		slices.SortStableFunc(items, worstFirst)
		return items
	}
	return group(items)
}

// seen is what a node says of itself.
type seen struct {
	reason, has, image string
	isThere            bool
}

func (p *poolView) node(s *seen, name []string) Item {
	reason := cmp.Or(p.lines.of[name[0]], s.reason)
	if reason == "" && !s.isThere {
		reason = p.lines.ofOthers
	}
	item := Item{Kind: KindNode, Names: name, Has: s.has, Image: s.image, Assessment: Done, Step: stepUpdated}
	switch {
	case reason != "":
		m := meaningOf(reason)
		item.Assessment, item.Step, item.Next, item.WaitsFor = m.assessment, m.step, m.next, []string{reason}
		item.Command = m.commandFor(&subject{node: name[0], pool: p.pool.Name, namespace: p.namespace(), reason: reason})
	case !s.isThere:
		item.Assessment, item.Step, item.Next = Waiting, "not updated yet", Controller
	}
	if item.Assessment != Done {
		item.Wanted = p.wanted
	}
	return item
}

// describe names what a node has, or should have.
func describe(t nodes.Target) string {
	switch text := shortOf(t.Image); {
	case t.Config == "":
		return text
	case text == "":
		return t.Config
	default:
		return t.Config + ", image " + text
	}
}

// shortOf is the digest of an image in short, or what else names it.
func shortOf(image string) string {
	return cmp.Or(mcfgv1.ImageDigestFormat(image).Short(), image)
}

// stepConditions are the conditions of a MachineConfigNode that say since when a node is at a step.
var stepConditions = map[string]string{
	stepDraining: mcfgv1.NodeDrained, stepRebooting: mcfgv1.NodeRebootedNode, stepStaging: mcfgv1.NodeImagePulledFromRegistry,
	stepUpdated: mcfgv1.NodeUpdated,
}

// sinceOf is since when a node is at a step; zero where it did not say.
func sinceOf(report *mcfgv1.MachineConfigNode, step string) time.Time {
	conditionType := stepConditions[step]
	if report == nil || conditionType == "" {
		return time.Time{}
	}
	wanted := metav1.ConditionFalse
	if step == stepUpdated {
		wanted = metav1.ConditionTrue
	}
	c := meta.FindStatusCondition(report.Status.Conditions, conditionType)
	if c == nil || c.Status != wanted {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// lines are status.rollout.waitingFor, by node.
type lines struct {
	// of are the reasons of the nodes that are named.
	of map[string]string
	// ofOthers is the reason of all other nodes that wait, where it is known.
	ofOthers string
	// all are the reasons, and ofPool the lines whose nodes are not all known.
	all, ofPool []string
	// cut are those of them that name some of their nodes.
	cut []words.Line
}

// readLines takes status.rollout.waitingFor apart.
func readLines(waitingFor []string, members []*corev1.Node) lines {
	l := lines{of: map[string]string{}}
	isMember := make(map[string]bool, len(members))
	for _, n := range members {
		isMember[n.Name] = true
	}
	for _, text := range waitingFor {
		line := words.ReadLine(text, func(name string) bool { return isMember[name] })
		l.all = append(l.all, line.Reason)
		for _, node := range line.Nodes {
			l.of[node] = line.Reason
		}
		switch {
		case len(line.Nodes) == 0:
			l.ofPool = append(l.ofPool, text)
		case line.More > 0:
			l.cut = append(l.cut, line)
		}
	}
	return l
}

// settle finds out whom lines are about that name some of their nodes: those that say the same of
// themselves, and, where one line is left, all others.
func (l *lines) settle(own map[string]int) {
	left := slices.DeleteFunc(l.cut, func(line words.Line) bool { return own[line.Reason] >= len(line.Nodes)+line.More })
	if len(left) == 1 && len(l.ofPool) == 0 {
		l.ofOthers = left[0].Reason
		return
	}
	for _, line := range left {
		l.ofPool = append(l.ofPool, fmt.Sprintf("nodes %s and %d more: %s", strings.Join(line.Nodes, ", "), line.More, line.Reason))
	}
}
