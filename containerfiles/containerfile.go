package containerfiles

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const (
	// MaxLength is how many characters a Containerfile may have, as the schema of MachineOSConfig
	// counts them.
	MaxLength = 65536
	// maxLine is how many bytes a line may have: BuildKit's parser reads no longer ones.
	maxLine = 65534
	// maxMessage is how many characters a message may have.
	maxMessage = 300
)

// Names of the stages that an administrator may start from (docs/containerfiles.md). They are
// compared without regard to case.
const (
	// StageBase is the base image. The configuration is appended after the administrator's content.
	StageBase = "os-base-image"
	// StageBaseWithConfigs is the base image with the configuration in it, so that RUN lines see
	// it.
	StageBaseWithConfigs = "os-base-image-with-configs"
	// StageConfigs is the published name of StageBaseWithConfigs.
	StageConfigs = "configs"
)

// Containerfile is a text that was parsed.
type Containerfile struct {
	name         string
	Lines        []string // without line ends and byte order mark
	Directives   []Directive
	skip         map[string]bool // reasons that a check directive leaves out
	Escape       rune
	Instructions []*Instruction
	stages       []Stage
	fromConfigs  bool
}

// Stage is a FROM instruction and what follows it.
type Stage struct {
	// Name is what follows AS, as it is written; empty where the stage has no name.
	Name string
	// Base is what the stage starts from, as it is written: variables are not expanded.
	Base string
	// Line and EndLine are those of the FROM instruction.
	Line, EndLine int
}

// Parse reads a Containerfile. The name says where the text is from in the administrator's words,
// and is only used in messages.
//
// Line ends may be CRLF, and a byte order mark is skipped. An empty text, and one with nothing but
// comments, is a Containerfile without stages: there is nothing to build. Instructions without any
// FROM are for the stage configs, as published. What is an error here is
// what hides the rest of the file (a heredoc without its end, a JSON array with a number in it, a
// bad escape directive) and what no Containerfile is: more than MaxLength characters, NUL, text
// that isn't UTF-8. Everything else that is wrong is found by Lint, all of it at once. Every error
// is an *Error.
func Parse(name string, text []byte) (*Containerfile, error) {
	c := &Containerfile{name: name, Escape: parser.DefaultEscapeToken}
	if err := c.readLines(text); err != nil {
		return nil, err
	}
	if err := c.readDirectives(); err != nil {
		return nil, err
	}
	if c.isBlank() {
		return c, nil
	}
	result, err := parser.Parse(strings.NewReader(c.text()))
	if err != nil {
		return nil, c.parseError(err)
	}
	for _, node := range result.AST.Children {
		c.add(node)
	}
	if len(c.stages) == 0 {
		c.startFromConfigs()
	}
	return c, nil
}

// startFromConfigs adds the FROM that is meant where there is none. It has no line of its own.
func (c *Containerfile) startFromConfigs() {
	first := c.Instructions[0].Line
	from := &Instruction{Keyword: "FROM", Node: &parser.Node{}, Args: []string{StageConfigs}, Line: first, End: first - 1, Header: first - 1}
	for _, in := range c.Instructions {
		in.Stage = 0
	}
	c.Instructions = append([]*Instruction{from}, c.Instructions...)
	c.stages, c.fromConfigs = []Stage{{Base: StageConfigs, Line: first, EndLine: first}}, true
}

// LacksFrom reports whether the text has no FROM, which means FROM configs.
func (c *Containerfile) LacksFrom() bool { return c != nil && c.fromConfigs }

// Name is where the text is from.
func (c *Containerfile) Name() string { return c.name }

// Empty reports whether there is nothing to build: no instruction at all.
func (c *Containerfile) Empty() bool { return c == nil || len(c.Instructions) == 0 }

// Stages are the stages in the order of the file.
func (c *Containerfile) Stages() []Stage {
	if c == nil {
		return nil
	}
	return append([]Stage(nil), c.stages...)
}

// text is the file with LF at the end of each line.
func (c *Containerfile) text() string { return strings.Join(c.Lines, "\n") + "\n" }

func (c *Containerfile) readLines(text []byte) error {
	fail := func(line int, err error) error {
		return &Error{File: c.name, Line: line, EndLine: line, Reason: ReasonNotText, Err: err}
	}
	if utf8.RuneCount(text) > MaxLength {
		return fail(0, errTooLong)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	text = bytes.TrimSuffix(text, []byte("\n"))
	for i, line := range bytes.Split(text, []byte("\n")) {
		switch {
		case !utf8.Valid(line):
			return fail(i+1, errNotUTF8)
		case bytes.IndexByte(line, 0) >= 0:
			return fail(i+1, errNUL)
		case len(line) > maxLine:
			return fail(i+1, errLine)
		}
		c.Lines = append(c.Lines, string(bytes.TrimRight(line, "\r")))
	}
	return nil
}

func (c *Containerfile) isBlank() bool {
	for _, line := range c.Lines {
		line = strings.TrimLeftFunc(line, unicode.IsSpace)
		if line != "" && line[0] != '#' {
			return false
		}
	}
	return true
}

// keywordAt is the first word of a line in upper case, where it is an instruction.
func (c *Containerfile) keywordAt(line int) string {
	if line < 1 || line > len(c.Lines) {
		return ""
	}
	fields := strings.Fields(c.Lines[line-1])
	if len(fields) == 0 || !isKeyword(strings.ToUpper(fields[0])) {
		return ""
	}
	return strings.ToUpper(fields[0])
}

// Directive is a comment at the top of the file that parsers read: escape, syntax, check.
type Directive struct {
	Name, Value string
	Line        int
}

// readDirectives finds the directives by BuildKit's rules.
func (c *Containerfile) readDirectives() error {
	p := parser.DirectiveParser{}
	for i, line := range c.Lines {
		d, err := p.ParseLine([]byte(strings.TrimLeftFunc(line, unicode.IsSpace)))
		if err == nil && d == nil {
			break
		}
		if err == nil && d.Name == "escape" {
			err = c.setEscape(d.Value)
		}
		if err != nil {
			return &Error{File: c.name, Line: i + 1, EndLine: i + 1, Reason: ReasonSyntax, Err: err}
		}
		c.Directives = append(c.Directives, Directive{Name: d.Name, Value: d.Value, Line: i + 1})
		if d.Name == "check" {
			c.skip = skipped(d.Value)
		}
	}
	return nil
}

func (c *Containerfile) setEscape(value string) error {
	if value != `\` && value != "`" {
		return errEscape
	}
	c.Escape = rune(value[0])
	return nil
}

// Skips reports whether a check directive, or a comment before the instruction, leaves a reason
// out. The instruction is nil for what is about the whole file.
func (c *Containerfile) Skips(in *Instruction, reason string) bool {
	return c.skip[skipAll] || c.skip[reason] || in != nil && (in.skip[skipAll] || in.skip[reason])
}

// skipped are the reasons that a check directive, such as "skip=LatestTag,PackageCache", leaves
// out.
func skipped(value string) map[string]bool {
	value, _, _ = strings.Cut(value, " ")
	config, err := linter.ParseLintOptions(value)
	if err != nil {
		return nil
	}
	skip := map[string]bool{skipAll: config.SkipAll}
	for _, reason := range config.SkipRules {
		skip[reason] = true
	}
	return skip
}
