package lint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/shell"
)

// Options is what a Containerfile is checked against.
type Options struct {
	// Architecture is that of the nodes. Where it is empty or NoArch, platforms are not compared,
	// and variables such as TARGETARCH have the value of AMD64.
	Architecture mcfgv1.ContainerfileArch
	// Context are the files that COPY and ADD can take, by name; nil or empty where there are none.
	Context map[string][]byte
	// Rendered is for a text that Render made: it defines the offered stages itself.
	Rendered bool
}

// Lint says what is wrong with a Containerfile, and what could be better, by line. A file with a
// finding of SeverityError is not rendered. Findings of other severities are left out where the
// file has "# check=skip=Reason" at its top, or a comment "# check=skip=Reason" just before the
// instruction.
func Lint(c *containerfiles.Containerfile, opts Options) []Finding {
	if c == nil {
		return nil
	}
	return newLinting(c, opts).run()
}

// Check parses and lints. Where the text cannot be parsed, the Containerfile is nil and the error
// is the only finding.
func Check(name string, text []byte, opts Options) (*containerfiles.Containerfile, []Finding) {
	c, err := containerfiles.Parse(name, text)
	if err == nil {
		return c, Lint(c, opts)
	}
	bad := &containerfiles.Error{Reason: containerfiles.ReasonSyntax, Err: err}
	errors.As(err, &bad) // every error of Parse is one
	return nil, []Finding{findingOf(bad)}
}

// linting is one run of Lint.
type linting struct {
	c        *containerfiles.Containerfile
	opts     Options
	g        *containerfiles.Graph
	stages   []containerfiles.Stage
	runs     map[*containerfiles.Instruction][]shell.Call
	workdirs map[*containerfiles.Instruction]string
	findings []Finding
}

func newLinting(c *containerfiles.Containerfile, opts Options) *linting {
	return &linting{c: c, opts: opts, g: c.Resolve(containerfiles.SomeArgs(opts.Architecture)), stages: c.Stages(), runs: map[*containerfiles.Instruction][]shell.Call{}}
}

func (l *linting) run() []Finding {
	l.directives()
	for _, in := range l.c.Instructions {
		l.instruction(in)
	}
	l.file()
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.EndLine, b.EndLine), compareReasons(ruleOf(a.Reason), ruleOf(b.Reason)),
			cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(l.findings)
}

// instruction runs every check that is about one instruction.
func (l *linting) instruction(in *containerfiles.Instruction) {
	if in.Keyword == "RUN" {
		l.runs[in] = in.Calls(l.c)
	}
	if !l.checkSyntax(in) {
		return
	}
	l.notes(in)
	l.flags(in)
	l.continuation(in)
	l.words(in)
	if in.Stage < 0 {
		return
	}
	switch in.Keyword {
	case "FROM":
		l.from(in)
	case "COPY", "ADD":
		l.sources(in)
		l.destination(in)
	case "RUN":
		l.shell(in)
	case "WORKDIR":
		l.workdir(in)
	default:
		l.hostMeaning(in)
	}
}

// report adds a finding about an instruction, unless a comment leaves it out.
func (l *linting) report(in *containerfiles.Instruction, reason, format string, args ...any) {
	l.reportLines(in, [2]int{in.Line, in.End}, reason, fmt.Sprintf(format, args...))
}

// reportLine is report about one line of an instruction.
func (l *linting) reportLine(in *containerfiles.Instruction, line int, reason, format string, args ...any) {
	l.reportLines(in, [2]int{line, line}, reason, fmt.Sprintf(format, args...))
}

// reportLines is what report and reportLine have in common; in is nil for what is about the whole
// file.
func (l *linting) reportLines(in *containerfiles.Instruction, lines [2]int, reason, message string) {
	rule := ruleOf(reason)
	if rule.Severity != SeverityError && l.c.Skips(in, reason) {
		return
	}
	l.findings = append(l.findings, Finding{
		Line: lines[0], EndLine: lines[1], Severity: rule.Severity, Reason: reason, Message: containerfiles.Clean(message), Fix: rule.Fix,
	})
}

// directives reports those that have no effect.
func (l *linting) directives() {
	for _, d := range l.c.Directives {
		if d.Name == "syntax" {
			l.reportLines(nil, [2]int{d.Line, d.Line}, containerfiles.ReasonSyntaxDirective, "the syntax directive has no effect")
		}
	}
}
