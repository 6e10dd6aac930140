package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
)

// Limits of the API for status.rollout.
const (
	maxSummary = 128
	maxWaiting = 16
	maxLine    = 256
)

// Summary is the plan in a few words, for status.rollout.summary: "3/9 updated, node-4 is draining:
// pod db-0 blocked by budget db".
func (p *Plan) Summary() string {
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
func (p *Plan) mostTelling() int {
	for _, less := range [][]string{{waits, isHalted}, {waits}} {
		for i, h := range p.Holds {
			if !slices.ContainsFunc(less, func(start string) bool { return strings.HasPrefix(h.Reason, start) }) {
				return i
			}
		}
	}
	return 0
}

// Reasons that begin so say more about other nodes than about their own.
const (
	waits    = "waits "
	isHalted = "the rollout is halted: "
)

// WaitingFor are the lines of status.rollout.waitingFor: each reason with the nodes that it holds.
func (p *Plan) WaitingFor() []string {
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
		h := Hold{Node: list(held[reason]), Reason: reason}
		lines = append(lines, Shorten(h.String(), maxLine))
	}
	if more := len(lines) - maxWaiting; more > 0 {
		lines = append(lines[:maxWaiting-1], fmt.Sprintf("and %d more reasons", more+1))
	}
	return lines
}

// String is the hold in words.
func (h Hold) String() string { return h.Node + ": " + h.Reason }

// list names a few nodes, and says how many more there are.
func list(names []string) string {
	const named = 3
	if more := len(names) - named; more > 0 {
		return fmt.Sprintf("nodes %s and %d more", strings.Join(names[:named], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Shorten cuts a text in the middle where it is longer than limit bytes: the beginning says what it
// is about, and the end names the cause. It becomes one line that a terminal can show: nodes say
// what they like.
func Shorten(text string, limit int) string {
	const gap = " ... "
	if len(text) > limit {
		head := (limit - len(gap)) / 3
		tail := limit - len(gap) - head
		text = strings.ToValidUTF8(beforeSpace(text[:head]), "") + gap + strings.ToValidUTF8(afterSpace(text[len(text)-tail:]), "")
	}
	return strings.Map(printable, text)
}

// longWord is how much of a text is given up at most so that it is not cut within a word.
const longWord = 24

func beforeSpace(text string) string {
	if i := strings.LastIndexByte(text, ' '); i >= 0 && len(text)-i <= longWord {
		return text[:i]
	}
	return text
}

func afterSpace(text string) string {
	if i := strings.IndexByte(text, ' '); i >= 0 && i < longWord {
		return text[i+1:]
	}
	return text
}

// printable is a character, or a space in place of one that controls a terminal.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// progress is how far a node is that has been asked to change to the target.
func (n *Node) progress() string {
	switch {
	case n.hasStaleFailure():
		return "was told to change, and its agent has not answered yet" + n.unanswered()
	case n.IsDegraded() && n.has() == n.target():
		return "is degraded: " + n.Reason
	case n.IsDegraded():
		return "its update failed: " + n.Reason
	case n.State == mcfgv1.NodeStateRebooting:
		return "is rebooting" + n.failing()
	case n.isDraining():
		return n.draining()
	case !n.Ready:
		return "is changing, and is not Ready"
	default:
		return "is changing" + n.unanswered() + n.failing()
	}
}

// draining is how far the drain of the node is. A kubelet that is dead ends no pod.
func (n *Node) draining() string {
	text := "is draining"
	if !n.Ready {
		text += ", and is not Ready: look at its kubelet"
	}
	if n.DrainBlocked != "" {
		text += ": " + n.DrainBlocked
	}
	return text
}

// unanswered is why the node may never do what it was asked for; empty where nothing speaks for it.
func (n *Node) unanswered() string {
	if n.AgentDown == "" {
		return ""
	}
	return ", but its node agent can't answer: " + n.AgentDown
}

// failing is why the node does not get further with what it was asked for; empty where it does.
func (n *Node) failing() string {
	if n.StepError == "" || n.AgentDown != "" || n.ReportedDesired != n.target() {
		return ""
	}
	return ", and can't go on: " + n.StepError
}

func (n *Node) isDraining() bool {
	return strings.HasPrefix(n.DesiredDrain, mcfgv1.DrainPrefix) && n.DesiredDrain != n.LastAppliedDrain
}

// unhealthy is why no pods can be scheduled to the node.
func (n *Node) unhealthy() string {
	switch {
	case !n.Ready:
		return "is not Ready"
	case n.DiskPressure:
		return "is short of disk space"
	default:
		return "was cordoned"
	}
}

// describe names a target.
func describe(t nodes.Target) string {
	if short := mcfgv1.ImageDigestFormat(t.Image).Short(); short != "" {
		return t.Config + " and image " + short
	}
	return t.Config
}
