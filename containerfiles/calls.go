package containerfiles

import (
	"path"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/layerwright/layerwright/containerfiles/shell"
)

// Calls are the commands that a RUN instruction starts, as far as they can be told without running
// it.
func (in *Instruction) Calls(c *Containerfile) []shell.Call {
	run, ok := in.Command.(*instructions.RunCommand)
	if !ok {
		return nil
	}
	if !run.PrependShell { // the JSON form has no shell, unless it names one
		words := run.CmdLine
		if len(words) > 2 && shell.IsShell(path.Base(words[0])) && words[1] == "-c" {
			return shell.Read(strings.Split(words[2], "\n"), in.Line, true)
		}
		return []shell.Call{{Words: words, Line: in.Line}}
	}
	calls := shell.Read(in.HeaderLines(c), in.Line, false)
	if len(calls) > 0 {
		calls[0].Drop(flagWords(calls[0].Words))
		calls[0].Drop(shell.PrefixWords(calls[0].Words))
	}
	if in.RunsHeredocs(calls) {
		for _, body := range in.HeredocLines(c) {
			calls = append(calls, shell.Read(body.Lines, body.line, true)...)
		}
	}
	return slices.DeleteFunc(calls, func(c shell.Call) bool { return len(c.Words) == 0 && len(c.Writes) == 0 })
}

// flagWords is how many words RUN and its flags are.
func flagWords(words []string) int {
	for i, word := range words {
		if i > 0 && !strings.HasPrefix(word, "--") {
			return i
		}
	}
	return len(words)
}

// HeaderLines are the instruction's lines before its heredocs, with comments emptied and the
// continuation characters taken off.
func (in *Instruction) HeaderLines(c *Containerfile) []string {
	var lines []string
	for _, line := range c.Lines[in.Line-1 : in.Header] {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			line = ""
		}
		trimmed := strings.TrimRight(line, " \t")
		lines = append(lines, strings.TrimSuffix(trimmed, string(c.Escape)))
	}
	return lines
}

// HeredocBody is the text of a heredoc, and its first line in the file.
type HeredocBody struct {
	Lines []string
	line  int
}

// HeredocLines are the bodies of its heredocs, with the line that each begins on.
func (in *Instruction) HeredocLines(c *Containerfile) []HeredocBody {
	var bodies []HeredocBody
	next := in.Header + 1
	for _, heredoc := range in.Node.Heredocs {
		n := strings.Count(heredoc.Content, "\n")
		bodies = append(bodies, HeredocBody{Lines: c.Lines[next-1 : next-1+n], line: next})
		next += n + 1
	}
	return bodies
}

// RunsHeredocs reports whether a shell runs the bodies: nothing else is in the line, or a shell is.
func (in *Instruction) RunsHeredocs(header []shell.Call) bool {
	if len(in.Node.Heredocs) == 0 {
		return false
	}
	first := strings.TrimSpace(strings.SplitN(in.Node.Heredocs[0].Content, "\n", 2)[0])
	if interpreter, ok := strings.CutPrefix(first, "#!"); ok && !strings.Contains(interpreter, "sh") {
		return false
	}
	return !slices.ContainsFunc(header, func(c shell.Call) bool { return len(c.Words) > 0 && !shell.IsShell(c.Name()) })
}
