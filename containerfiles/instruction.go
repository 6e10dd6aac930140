package containerfiles

import (
	"errors"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/command"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// skipAll stands for every reason in a set of skipped ones.
const skipAll = "*"

var errEscape = errors.New("the escape directive wants \\ or `")

// Instruction is one instruction of the file. Its flags are read here and not by BuildKit, which
// knows others than Buildah.
type Instruction struct {
	Keyword string // upper case
	Node    *parser.Node
	Args    []string
	Flags   []Flag
	Command any // of package instructions; nil where BuildKit refuses it
	Err     error
	Notes   []Note
	skip    map[string]bool
	Line    int
	End     int
	Header  int // the last line before the bodies of heredocs
	Stage   int // -1 before the first FROM
}

// Flag is a word such as --from=x before an instruction's arguments.
type Flag struct {
	Name, Value string
	HasValue    bool
}

// Note is a finding of BuildKit's linter.
type Note struct{ Rule, Text string }

func isKeyword(upper string) bool {
	_, known := command.Commands[strings.ToLower(upper)]
	return known
}

func (c *Containerfile) add(node *parser.Node) {
	in := &Instruction{
		Keyword: strings.ToUpper(node.Value),
		Node:    node,
		Line:    node.StartLine,
		End:     node.EndLine,
		Stage:   len(c.stages) - 1,
	}
	in.Header = in.End
	for _, heredoc := range node.Heredocs {
		in.Header -= strings.Count(heredoc.Content, "\n") + 1
	}
	for n := node.Next; n != nil; n = n.Next {
		in.Args = append(in.Args, n.Value)
	}
	for _, word := range node.Flags {
		name, value, has := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		in.Flags = append(in.Flags, Flag{Name: name, Value: value, HasValue: has})
	}
	for _, comment := range node.PrevComment {
		if value, ok := strings.CutPrefix(comment, "check="); ok {
			in.skip = skipped(value)
		}
	}
	in.read()
	if in.Keyword == "FROM" {
		c.stages = append(c.stages, in.asStage())
		in.Stage = len(c.stages) - 1
	}
	c.Instructions = append(c.Instructions, in)
}

// read makes BuildKit's command of the instruction. BuildKit's linter reports through it, unless a
// comment tells it not to.
func (in *Instruction) read() {
	bare := *in.Node
	bare.Flags = nil
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, text string, _ []parser.Range) {
		in.Notes = append(in.Notes, Note{Rule: rule, Text: text})
	}})
	in.Command, in.Err = instructions.ParseInstructionWithLinter(&bare, lint)
	if in.Err != nil {
		in.Command = nil // it holds a nil pointer of its type
	}
}

// asStage is what a FROM instruction says, also where it says too much.
func (in *Instruction) asStage() Stage {
	s := Stage{Line: in.Line, EndLine: in.End}
	if len(in.Args) > 0 {
		s.Base = in.Args[0]
	}
	if len(in.Args) == 3 && strings.EqualFold(in.Args[1], "as") {
		s.Name = in.Args[2]
	}
	return s
}

// Value is a flag's value, and whether the instruction has the flag.
func (in *Instruction) Value(name string) (string, bool) {
	for _, f := range in.Flags {
		if f.Name == name {
			return f.Value, true
		}
	}
	return "", false
}

// Mounts are the RUN instruction's --mount flags. They are divided at commas as Buildah does it,
// which knows no quotes there.
func (in *Instruction) Mounts() []Mount {
	var mounts []Mount
	if in.Keyword != "RUN" {
		return nil
	}
	for _, f := range in.Flags {
		if f.Name != "mount" {
			continue
		}
		m := Mount{Kind: "bind"}
		for field := range strings.SplitSeq(f.Value, ",") {
			key, value, has := strings.Cut(field, "=")
			m.Options = append(m.Options, Flag{Name: strings.TrimSpace(key), Value: value, HasValue: has})
			if key == "type" {
				m.Kind = value
			}
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// Mount is one --mount flag.
type Mount struct {
	Kind    string
	Options []Flag
}

// Value is that of the first option with one of the names, and whether there is one.
func (m Mount) Value(names ...string) (string, bool) {
	for _, option := range m.Options {
		if slices.Contains(names, option.Name) {
			return option.Value, true
		}
	}
	return "", false
}
