package containerfiles

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// LintOptions is what a Containerfile is checked against.
type LintOptions struct {
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
func Lint(c *Containerfile, opts LintOptions) []Finding {
	if c == nil {
		return nil
	}
	return newLinting(c, opts).run()
}

// Check parses and lints. Where the text cannot be parsed, the Containerfile is nil and the error
// is the only finding.
func Check(name string, text []byte, opts LintOptions) (*Containerfile, []Finding) {
	c, err := Parse(name, text)
	if err == nil {
		return c, Lint(c, opts)
	}
	bad := &Error{Reason: ReasonSyntax, Err: err}
	errors.As(err, &bad) // every error of Parse is one
	return nil, []Finding{bad.finding()}
}

// linting is one run of Lint.
type linting struct {
	c        *Containerfile
	opts     LintOptions
	g        *graph
	runs     map[*instruction][]call
	workdirs map[*instruction]string
	findings []Finding
}

func newLinting(c *Containerfile, opts LintOptions) *linting {
	return &linting{c: c, opts: opts, g: c.resolve(someArgs(opts.Architecture)), runs: map[*instruction][]call{}}
}

// someArgs are PlatformArgs, those of AMD64 where the architecture is not known.
func someArgs(arch mcfgv1.ContainerfileArch) map[string]string {
	if GoArch(arch) == "" {
		arch = mcfgv1.Amd64
	}
	return PlatformArgs(arch)
}

func (l *linting) run() []Finding {
	l.directives()
	for _, in := range l.c.instructions {
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
func (l *linting) instruction(in *instruction) {
	if in.keyword == "RUN" {
		l.runs[in] = in.calls(l.c)
	}
	if !l.isWhole(in) {
		return
	}
	l.notes(in)
	l.flags(in)
	l.continuation(in)
	l.words(in)
	if in.stage < 0 {
		return
	}
	switch in.keyword {
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
func (l *linting) report(in *instruction, reason, format string, args ...any) {
	l.reportLines(in, [2]int{in.line, in.end}, reason, fmt.Sprintf(format, args...))
}

// reportLine is report about one line of an instruction.
func (l *linting) reportLine(in *instruction, line int, reason, format string, args ...any) {
	l.reportLines(in, [2]int{line, line}, reason, fmt.Sprintf(format, args...))
}

// reportLines is what report and reportLine have in common; in is nil for what is about the whole
// file.
func (l *linting) reportLines(in *instruction, lines [2]int, reason, message string) {
	rule := ruleOf(reason)
	if rule.Severity != SeverityError {
		if l.c.skip[skipAll] || l.c.skip[reason] || in != nil && (in.skip[skipAll] || in.skip[reason]) {
			return
		}
	}
	l.findings = append(l.findings, Finding{
		Line: lines[0], EndLine: lines[1], Severity: rule.Severity, Reason: reason, Message: clean(message), Fix: rule.Fix,
	})
}

// directives reports those that have no effect.
func (l *linting) directives() {
	for _, d := range l.c.directives {
		if d.name == "syntax" {
			l.reportLines(nil, [2]int{d.line, d.line}, ReasonSyntaxDirective, "the syntax directive has no effect")
		}
	}
}
