package forecast

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/words"
	"github.com/layerwright/layerwright/view"
)

// Limits of the text; JSON has all.
const (
	shownSteps  = 12
	shownIssues = 10
)

// Text writes a forecast for people.
func (f *Forecast) Text(w io.Writer) error {
	var out strings.Builder
	line := func(format string, args ...any) {
		out.WriteString(view.Visible(fmt.Sprintf(format, args...)) + "\n")
	}
	image := ""
	if short := mcfgv1.ImageDigestFormat(f.Image).Short(); short != "" {
		image = ", image " + short
	}
	if f.Configuration == "" {
		line("Pool %s: it is not known yet what its nodes should have", f.Pool)
	} else {
		line("Pool %s: %s%s; %d of %d nodes have it", f.Pool, f.Configuration, image, f.Updated, f.Total)
	}
	for _, text := range []string{f.Cost, f.After} {
		if text != "" {
			line("  %s", text)
		}
	}
	if len(f.UnderWay) > 0 {
		line("  under way: %s", words.List(f.UnderWay))
	}
	f.steps(&out, line)
	f.issues(line)
	_, err := io.WriteString(w, out.String())
	return err
}

func (f *Forecast) steps(out *strings.Builder, line func(string, ...any)) {
	if len(f.Steps) == 0 {
		return
	}
	line("")
	line("Moves")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "  STEP\tEARLIEST\tNODES\tAFTER")
	for i, step := range f.Steps[:min(len(f.Steps), shownSteps)] {
		earliest := "now"
		if step.Earliest.After(f.now) {
			earliest = step.Earliest.UTC().Format(time.RFC3339)
		}
		after := strings.TrimPrefix(step.After, "waits for ")
		if words.HasText(step.After, words.WaitsForSlot) {
			after = "a slot" // of those who are in the line above
		}
		_, _ = fmt.Fprintf(t, "  %d\t%s\t%s\t%s\n", i+1, earliest, step.names(), view.Visible(after))
	}
	_ = t.Flush() // a builder takes everything
	if more := len(f.Steps) - shownSteps; more > 0 {
		line("  and %d more steps (-o json has them)", more)
	}
	if f.More > 0 {
		line("  then %d more nodes", f.More)
	}
}

// names are the nodes of a step, and what happens to them.
func (s *Step) names() string {
	var all, changes []string
	for _, n := range s.Nodes {
		all = append(all, n.Node)
		change, isKnown := map[string]string{
			mcfgv1.NodeChangeReboot: "reboot", mcfgv1.NodeChangeSoftReboot: "soft reboot", mcfgv1.NodeChangeDrain: "only drained",
			mcfgv1.NodeChangeLive: "without drain or reboot",
		}[n.Change]
		if !isKnown {
			change = "not known yet"
		}
		if !slices.Contains(changes, change) {
			changes = append(changes, change)
		}
	}
	return view.Visible(words.List(all)) + " (" + strings.Join(changes, ", ") + ")"
}

func (f *Forecast) issues(line func(string, ...any)) {
	line("")
	if len(f.Issues) == 0 {
		line("No issues")
		return
	}
	line("Issues")
	shown := map[string]int{}
	for i := range f.Issues {
		issue := &f.Issues[i]
		if shown[issue.Name]++; shown[issue.Name] > shownIssues {
			continue
		}
		mark := ""
		if issue.Accepted {
			mark = " (accepted)"
		}
		line("  %s%s: %s", issue.Name, mark, issue.Object)
		line("    %s", issue.Message)
		if issue.Fix != "" {
			line("    fix: %s", issue.Fix)
		}
	}
	for _, name := range view.Issues() {
		if more := shown[name] - shownIssues; more > 0 {
			line("  %s: %d more objects (-o json has them)", name, more)
		}
	}
}
