package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/agext/levenshtein"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/view"
)

const (
	// lookEvery is how often a status that is watched is read; a large cluster, which takes longer
	// to read, less often.
	lookEvery = 2 * time.Second
	// lookAtLeast is how often also then, and how long an answer may take.
	lookAtLeast = 30 * time.Second
	// settled is how long a pool has to be done before that is its end: the controller needs a
	// moment to see what was just applied.
	settled = 5 * time.Second
	// lasting is how long it has to be Held or Degraded: a budget that blocks a drain often lets it
	// go on by itself, and what was just mended is seen a moment later.
	lasting = 2 * time.Minute
	// silence is how old the Lease of a controller is that does not run, with clocks that differ.
	silence = 5 * time.Minute
	// plainWidth is that of a text that goes to no terminal.
	plainWidth = 120
)

// statusOptions are the flags of the status command.
type statusOptions struct {
	cluster clusterFlags
	fromDir string
	pool    string
	details command.Choice
	output  command.Choice
	watch   bool
	timeout time.Duration
}

func newStatusCommand() *cobra.Command {
	o := &statusOptions{
		details: command.Choice{Value: "default", Allowed: []string{"default", "none", "nodes", "health", "all"}},
		output:  command.Choice{Value: "text", Allowed: []string{"text", "wide", "json", "yaml"}},
	}
	cmd := &cobra.Command{
		Use:   "status [POOL]",
		Short: "Show pools, builds, rollouts, and what waits for whom",
		Long: `Shows on one screen what each pool should have, how far its build and its nodes are, what they wait for, and the command that helps.
Nodes that are alike are one line.

ASSESSMENT is one of: Done, Progressing (under way), Waiting (goes on by itself when something else has), Held (stays as it is
until someone acts), Degraded (has failed), Unmanaged.

With --timeout it waits until the pool, or every pool, is at its end, and exits with 0 if that is Done, 3 if it has been Held for two
minutes, 4 if it has been Degraded for that long, and 5 if the time is over. Without, it exits with 0 whatever it shows. 1 means that
the cluster could not be read, or that the wait was interrupted; 2 that the command line was wrong.`,
		Example: `  # How are all pools?
  layerwright status

  # Follow the rollout of one, each node on its own line
  layerwright status worker --watch --details nodes

  # Go on in a pipeline when the nodes run the new image
  kubectl apply -f machineconfig.yaml && layerwright status worker --timeout 1h

  # What does a program want to know?
  layerwright status -o json | jq -r '.items[] | select(.assessment == "Degraded").waitsFor[]'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.pool = args[0]
			}
			if o.timeout < 0 {
				return errors.New("--timeout must be positive")
			}
			read, err := o.source()
			if err != nil {
				return &failedError{err}
			}
			debug.SetGCPercent(400) // most of what is read stays until the end
			s := &statusScreen{statusOptions: o, survey: read, clock: clock.RealClock{}, out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}
			s.look()
			return s.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Var(&o.details, "details", "none: pools alone; nodes: each node on its own; health: all objects of what failed, and what they have; all: both")
	flags.VarP(&o.output, "output", "o", "how to print: text or wide for people, json or yaml for programs")
	flags.BoolVarP(&o.watch, "watch", "w", false, "show it again whenever it changes, until the end (with --timeout) or Ctrl-C")
	flags.DurationVar(&o.timeout, "timeout", 0, "wait this long for the end, and exit by it")
	flags.StringVar(&o.fromDir, "from-dir", "", "file or folder with a recorded cluster, instead of a cluster")
	flags.Lookup("from-dir").Hidden = true
	o.cluster = newClusterFlags(cmd)
	cmd.ValidArgsFunction = o.cluster.completePools
	return cmd
}

// source reads a cluster, or what was recorded of one.
func (o *statusOptions) source() (func(context.Context) (*survey.Survey, error), error) {
	if o.fromDir != "" {
		return func(context.Context) (*survey.Survey, error) { return survey.ReadFiles(o.fromDir) }, nil
	}
	from, err := o.cluster.client()
	if err != nil {
		return nil, err
	}
	columns, err := o.cluster.nodeColumns()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*survey.Survey, error) {
		return survey.Glance(ctx, from, columns, *o.cluster.Namespace)
	}, nil
}

func poolNames(pools []mcfgv1.MachineConfigPool) []string {
	var known []string
	for i := range pools {
		known = append(known, pools[i].Name)
	}
	slices.Sort(known)
	return known
}

// statusScreen shows the status, once or again and again.
type statusScreen struct {
	*statusOptions

	survey func(context.Context) (*survey.Survey, error)
	clock  clock.Clock
	out    io.Writer
	notes  io.Writer
	style  view.Style
	// isTerminal says that a screen may be drawn over.
	isTerminal bool
	// shown is what the last text says, noted are the last notes.
	shown, noted string
	// begun is when the first look was, and since since when the pools are as they are.
	begun, since time.Time
	worst        view.Assessment
	// renewed is the first renewal of the controller's Lease that was seen, and isHeard reports
	// whether another one was, or none can be: it has looked at what was applied before.
	renewed time.Time
	isHeard bool
}

// look finds out what the output can show.
func (s *statusScreen) look() {
	s.style, s.isTerminal = styleOf(s.out)
	s.style.PoolsOnly = s.details.Value == "none"
	s.style.Health = s.details.Value == "health" || s.details.Value == "all"
	if s.output.Value == "wide" {
		s.style.Width = 0
	}
}

// styleOf is what an output can show.
func styleOf(out io.Writer) (style view.Style, isTerminal bool) {
	style.Width = plainWidth
	f, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return style, false
	}
	style.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		style.Width = width
	}
	return style, true
}

// endError is the end of a wait that is not Done.
type endError struct {
	code int
	text string
}

func (e *endError) Error() string { return e.text }
func (e *endError) exitCode() int { return e.code }

// run shows the status until there is nothing more to wait for.
func (s *statusScreen) run(ctx context.Context) error {
	s.begun = s.clock.Now()
	for {
		begun := s.clock.Now()
		tree, err := s.read(ctx)
		if ctx.Err() != nil {
			return s.interrupted()
		}
		if err != nil {
			if !s.watch && s.timeout == 0 || s.fromDir != "" || !isTransient(err) {
				return &failedError{err}
			}
			s.note("no answer, trying again: " + err.Error())
		}
		isEnd, end := s.judge(tree)
		if tree != nil && (isEnd || s.watch) {
			if err := s.show(tree); err != nil {
				return &failedError{err}
			}
		}
		if isEnd {
			return end
		}
		select {
		case <-ctx.Done():
			return s.interrupted()
		case <-s.clock.After(s.pause(s.clock.Since(begun))):
		}
	}
}

// interrupted is the end by the user: nothing that was waited for.
func (s *statusScreen) interrupted() error {
	if s.timeout > 0 {
		return &failedError{errors.New("interrupted before the end")}
	}
	return nil
}

// pause is how long to wait after a look that took so long.
func (s *statusScreen) pause(took time.Duration) time.Duration {
	pause := min(max(lookEvery, 10*took), lookAtLeast)
	if s.timeout > 0 {
		pause = min(pause, max(s.timeout-s.clock.Since(s.begun), time.Millisecond))
	}
	return pause
}

// judge reports whether there is nothing more to wait for, and how that has ended. The tree is nil
// where the cluster did not answer.
func (s *statusScreen) judge(t *view.Tree) (isEnd bool, err error) {
	if s.timeout == 0 {
		return !s.watch, nil
	}
	now := s.clock.Now()
	if t != nil {
		worst, because := together(t)
		if worst != s.worst || s.since.IsZero() {
			s.worst, s.since = worst, now
		}
		lasts := now.Sub(s.since)
		switch {
		case worst == view.Degraded && lasts >= lasting:
			return true, &endError{exitDegraded, because}
		case worst == view.Held && lasts >= lasting:
			return true, &endError{exitHeld, because}
		case worst == view.Done && lasts >= settled && s.isHeard:
			return true, nil
		}
	}
	if now.Sub(s.begun) < s.timeout {
		return false, nil
	}
	return true, &endError{exitTimedOut, fmt.Sprintf("not at its end after %s", s.timeout)}
}

// isTransient reports whether reading may succeed later: not where rights or kinds are missing.
func isTransient(err error) bool {
	var denied *survey.DeniedError
	var absent *survey.NotInstalledError
	var unknown *unknownPoolError
	return !errors.As(err, &denied) && !errors.As(err, &absent) && !errors.As(err, &unknown)
}

// noPools is what a cluster without pools is told.
const noPools = "there are no pools, so that no node is managed; make a MachineConfigPool first"

// unknownPoolError is of a pool that there is not.
type unknownPoolError struct {
	pool  string
	known []string
}

func (e *unknownPoolError) Error() string {
	if len(e.known) == 0 {
		return fmt.Sprintf("there is no pool %q; there is none at all: kubectl get machineconfigpools", e.pool)
	}
	return fmt.Sprintf("there is no pool %q; do you mean %q? The pools are %s", e.pool, nearest(e.pool, e.known), strings.Join(e.known, ", "))
}

// nearest is the name of those known that is most like another one.
func nearest(name string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return levenshtein.Distance(name, a, nil) - levenshtein.Distance(name, b, nil) })
}

// poolNamed is the pool of a name.
func poolNamed(pools []mcfgv1.MachineConfigPool, name string) (*mcfgv1.MachineConfigPool, error) {
	i := slices.IndexFunc(pools, func(p mcfgv1.MachineConfigPool) bool { return p.Name == name })
	if i < 0 {
		return nil, &unknownPoolError{name, poolNames(pools)}
	}
	return &pools[i], nil
}

func (s *statusScreen) read(ctx context.Context) (*view.Tree, error) {
	patience := lookAtLeast
	if s.timeout > 0 {
		patience = min(patience, s.timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	read, err := s.survey(ctx)
	if err != nil {
		return nil, err
	}
	if s.pool != "" {
		if _, err := poolNamed(read.Objects.Pools, s.pool); err != nil {
			return nil, err
		}
	}
	read.Objects.EachNode = s.details.Value == "nodes" || s.details.Value == "all"
	if s.renewed.IsZero() {
		s.renewed = read.Renewed
	}
	s.isHeard = read.Renewed.IsZero() || !read.Renewed.Equal(s.renewed)
	notes := read.Notes
	if silent := s.clock.Since(read.Renewed); !read.Renewed.IsZero() && silent > silence {
		notes = append(notes, fmt.Sprintf("the controller was last heard of %s ago, so that what follows may be old: kubectl -n %s get pods", silent.Round(time.Second), *s.cluster.Namespace))
	}
	if len(read.Objects.Pools) == 0 {
		notes = append(notes, noPools)
	}
	s.note(notes...)
	tree := view.Of(&read.Objects)
	if s.pool != "" {
		tree.Items = slices.DeleteFunc(tree.Items, func(i view.Item) bool { return i.Kind != view.KindPool || i.Names[0] != s.pool })
	}
	return &tree, nil
}

// note says what the status lacks, once.
func (s *statusScreen) note(notes ...string) {
	text := strings.Join(notes, "\n")
	if text == s.noted {
		return
	}
	s.noted = text
	for _, note := range notes {
		_, _ = fmt.Fprintln(s.notes, "layerwright: "+view.Visible(note))
	}
}

// together is how all pools are, and why.
func together(t *view.Tree) (worst view.Assessment, because string) {
	worst, because = view.Held, noPools
	for i := range t.Items {
		of := &t.Items[i]
		if of.Kind != view.KindPool || because != noPools && of.Assessment <= worst {
			continue
		}
		worst = of.Assessment
		because = fmt.Sprintf("pool %s is %s: %s", of.Names[0], of.Assessment, strings.Join(append([]string{of.Step}, of.WaitsFor...), "; "))
	}
	return worst, because
}

// show writes the status, if it differs from what is there in more than ages.
func (s *statusScreen) show(t *view.Tree) error {
	var says strings.Builder
	if err := printJSON(&says, t); err != nil || !s.isTerminal && says.String() == s.shown {
		return err
	}
	text, err := s.encode(t)
	if err != nil {
		return err
	}
	const toTop, toEndOfLine, toEnd = "\x1b[H", "\x1b[K", "\x1b[J"
	switch {
	case s.watch && s.isTerminal:
		text = toTop + strings.ReplaceAll(text, "\n", toEndOfLine+"\n") + toEnd
	case s.shown != "" && s.output.Value == "yaml":
		text = "---\n" + text
	case s.shown != "" && s.output.Value != "json":
		text = "\n" + text
	}
	s.shown = says.String()
	_, err = io.WriteString(s.out, text)
	return err
}

func (s *statusScreen) encode(t *view.Tree) (string, error) {
	var text strings.Builder
	switch s.output.Value {
	case "json":
		err := printJSON(&text, t)
		return text.String(), err
	case "yaml":
		content, err := yaml.Marshal(t)
		return string(content), err
	}
	style := s.style
	style.Now = s.clock.Now()
	err := view.Text(&text, *t, style)
	return text.String(), err
}
