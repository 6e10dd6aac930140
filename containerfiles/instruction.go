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

// instruction is one instruction of the file. Its flags are read here and not by BuildKit, which
// knows others than Buildah.
type instruction struct {
	keyword string // upper case
	node    *parser.Node
	args    []string
	flags   []flag
	command any // of package instructions; nil where BuildKit refuses it
	err     error
	notes   []note
	skip    map[string]bool
	line    int
	end     int
	header  int // the last line before the bodies of heredocs
	stage   int // -1 before the first FROM
}

// flag is a word such as --from=x before an instruction's arguments.
type flag struct {
	name, value string
	hasValue    bool
}

// note is a finding of BuildKit's linter.
type note struct{ rule, text string }

func isKeyword(upper string) bool {
	_, known := command.Commands[strings.ToLower(upper)]
	return known
}

func (c *Containerfile) add(node *parser.Node) {
	in := &instruction{
		keyword: strings.ToUpper(node.Value),
		node:    node,
		line:    node.StartLine,
		end:     node.EndLine,
		stage:   len(c.stages) - 1,
	}
	in.header = in.end
	for _, heredoc := range node.Heredocs {
		in.header -= strings.Count(heredoc.Content, "\n") + 1
	}
	for n := node.Next; n != nil; n = n.Next {
		in.args = append(in.args, n.Value)
	}
	for _, word := range node.Flags {
		name, value, has := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		in.flags = append(in.flags, flag{name: name, value: value, hasValue: has})
	}
	for _, comment := range node.PrevComment {
		if value, ok := strings.CutPrefix(comment, "check="); ok {
			in.skip = skipped(value)
		}
	}
	in.read()
	if in.keyword == "FROM" {
		c.stages = append(c.stages, in.asStage())
		in.stage = len(c.stages) - 1
	}
	c.instructions = append(c.instructions, in)
}

// read makes BuildKit's command of the instruction. BuildKit's linter reports through it, unless a
// comment tells it not to.
func (in *instruction) read() {
	bare := *in.node
	bare.Flags = nil
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, text string, _ []parser.Range) {
		in.notes = append(in.notes, note{rule: rule, text: text})
	}})
	in.command, in.err = instructions.ParseInstructionWithLinter(&bare, lint)
	if in.err != nil {
		in.command = nil // it holds a nil pointer of its type
	}
}

// asStage is what a FROM instruction says, also where it says too much.
func (in *instruction) asStage() Stage {
	s := Stage{Line: in.line, EndLine: in.end}
	if len(in.args) > 0 {
		s.Base = in.args[0]
	}
	if len(in.args) == 3 && strings.EqualFold(in.args[1], "as") {
		s.Name = in.args[2]
	}
	return s
}

// value is a flag's value, and whether the instruction has the flag.
func (in *instruction) value(name string) (string, bool) {
	for _, f := range in.flags {
		if f.name == name {
			return f.value, true
		}
	}
	return "", false
}

// mounts are the RUN instruction's --mount flags. They are divided at commas as Buildah does it,
// which knows no quotes there.
func (in *instruction) mounts() []mount {
	var mounts []mount
	if in.keyword != "RUN" {
		return nil
	}
	for _, f := range in.flags {
		if f.name != "mount" {
			continue
		}
		m := mount{kind: "bind"}
		for field := range strings.SplitSeq(f.value, ",") {
			key, value, has := strings.Cut(field, "=")
			m.options = append(m.options, flag{name: strings.TrimSpace(key), value: value, hasValue: has})
			if key == "type" {
				m.kind = value
			}
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// mount is one --mount flag.
type mount struct {
	kind    string
	options []flag
}

func (m mount) value(names ...string) (string, bool) {
	for _, option := range m.options {
		if slices.Contains(names, option.name) {
			return option.value, true
		}
	}
	return "", false
}
