package words

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Limits of the API for status.rollout.
const (
	maxSummary = 128
	maxWaiting = 16
	maxLine    = 256
)

// Hold is a node that does not have the target, and is not moved now.
type Hold struct {
	// Node is the name of the node.
	Node string
	// Reason is why, for people. It reads on after the node's name.
	Reason string
}

// String is the hold in words.
func (h Hold) String() string { return h.Node + ": " + h.Reason }

// Progress is how far a rollout is.
type Progress struct {
	// Hold is why it is not known what nodes should have; empty where it is.
	Hold string
	// Halted reports whether no further node gets the target.
	Halted bool
	// Updated is the number of nodes that have the target and are healthy, Total that of all.
	Updated, Total int
	// Holds are the nodes that do not move, in the order in which they will.
	Holds []Hold
}

// Summary is the progress in a few words, for status.rollout.summary: "3/9 updated, node-4 is
// draining: pod db-0 blocked by budget db".
func (p *Progress) Summary() string {
	if p.Hold != "" {
		return Shorten(p.Hold, maxSummary)
	}
	if p.Total == 0 {
		return "the pool has no nodes"
	}
	text := fmt.Sprintf("%d/%d updated", p.Updated, p.Total)
	if p.Halted {
		text = "halted, " + text
	}
	if len(p.Holds) == 0 {
		return text
	}
	h := p.Holds[p.mostTelling()]
	return fit(text+", "+h.Node, longDigest.ReplaceAllString(h.Reason, "$1"))
}

// fit puts a reason after what it is about. Where both are too long for a summary, the parts before
// the cause go.
func fit(about, reason string) string {
	const gap = ": ... "
	if text := about + ": " + reason; len(text) <= maxSummary {
		return Shorten(text, maxSummary)
	}
	rest := reason
	for {
		_, cause, hasMore := strings.Cut(rest, ": ")
		if !hasMore {
			break
		}
		if rest = cause; len(about)+len(gap)+len(rest) <= maxSummary {
			break
		}
	}
	return Shorten(about+gap+Shorten(rest, max(maxSummary-len(about)-len(gap), maxSummary/2)), maxSummary)
}

// longDigest finds what would fill a summary with a digest.
var longDigest = regexp.MustCompile(`(sha256:[0-9a-f]{12})[0-9a-f]{52}`)

// mostTelling is the hold that says most of why the rollout is where it is: the first of a node
// that is not only waiting for others, or held because others failed.
func (p *Progress) mostTelling() int {
	for _, less := range [][]string{{waits, Halted}, {waits}} {
		for i, h := range p.Holds {
			if !HasText(h.Reason, less...) {
				return i
			}
		}
	}
	return 0
}

// WaitingFor are the lines of status.rollout.waitingFor: each reason with the nodes that it holds.
func (p *Progress) WaitingFor() []string {
	if p.Hold != "" {
		return []string{Shorten(p.Hold, maxLine)}
	}
	var reasons []string
	held := map[string][]string{}
	for _, h := range p.Holds {
		if held[h.Reason] == nil {
			reasons = append(reasons, h.Reason)
		}
		held[h.Reason] = append(held[h.Reason], h.Node)
	}
	var lines []string
	for _, reason := range reasons {
		h := Hold{Node: List(held[reason]), Reason: reason}
		lines = append(lines, Shorten(h.String(), maxLine))
	}
	if more := len(lines) - maxWaiting; more > 0 {
		lines = append(lines[:maxWaiting-1], fmt.Sprintf("and %d more reasons", more+1))
	}
	return lines
}

// Line is a line of status.rollout.waitingFor.
type Line struct {
	// Nodes are those that it names, and More is how many others the reason holds. Both are empty
	// where the reason is that of the whole pool.
	Nodes []string
	More  int
	// Reason is why they do not move.
	Reason string
}

// namedNodes finds the nodes that a line begins with: names of objects have no spaces.
var namedNodes = regexp.MustCompile(`^(?:nodes )?([a-z0-9.-]+(?:, [a-z0-9.-]+)*)(?: and ([0-9]{1,9}) more)?: `)

// ReadLine takes a line of status.rollout.waitingFor apart. isNode says which names are nodes of
// the pool: a line that begins with another word is about all of them.
func ReadLine(line string, isNode func(name string) bool) Line {
	found := namedNodes.FindStringSubmatch(line)
	if found == nil {
		return Line{Reason: line}
	}
	names := strings.Split(found[1], ", ")
	if slices.ContainsFunc(names, func(name string) bool { return !isNode(name) }) {
		return Line{Reason: line}
	}
	out := Line{Nodes: names, Reason: line[len(found[0]):]}
	_, _ = fmt.Sscan(found[2], &out.More) // empty where all are named
	return out
}
