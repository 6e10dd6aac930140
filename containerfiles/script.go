package containerfiles

import (
	"path"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// call is one simple command of a RUN instruction: no pipe and no && in it.
type call struct {
	words []string
	at    []int // the line that each word begins on
	line  int   // that of the first word
	piped bool  // it reads what the command before it writes
	// writes are the files that its output goes to.
	writes []string
}

// drop takes off the first words.
func (c *call) drop(n int) {
	c.words, c.at = c.words[n:], c.at[n:]
	if len(c.at) > 0 {
		c.line = c.at[0]
	}
}

// name is the program without its folder; empty where there is none.
func (c call) name() string {
	if len(c.words) == 0 {
		return ""
	}
	return path.Base(c.words[0])
}

// has is whether one of the words is among those after the program's name.
func (c call) has(words ...string) bool {
	return len(c.words) > 0 && slices.ContainsFunc(c.words[1:], func(w string) bool { return slices.Contains(words, w) })
}

// verb is the first word after the program's name that is no option.
func (c call) verb() string {
	for _, word := range c.operands() {
		return word
	}
	return ""
}

// operands are the words after the program's name that are no options.
func (c call) operands() []string {
	if len(c.words) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.words[1:]), func(w string) bool { return strings.HasPrefix(w, "-") })
}

// calls are the commands that a RUN instruction starts, as far as they can be told without running
// it.
func (in *instruction) calls(c *Containerfile) []call {
	run, ok := in.command.(*instructions.RunCommand)
	if !ok {
		return nil
	}
	if !run.PrependShell { // the JSON form has no shell, unless it names one
		words := run.CmdLine
		if len(words) > 2 && isShell(path.Base(words[0])) && words[1] == "-c" {
			return readScript(strings.Split(words[2], "\n"), in.line, true)
		}
		return []call{{words: words, line: in.line}}
	}
	calls := readScript(in.headerLines(c), in.line, false)
	if len(calls) > 0 {
		calls[0].drop(flagWords(calls[0].words))
		calls[0].drop(prefixWords(calls[0].words))
	}
	if in.runsHeredocs(calls) {
		for _, body := range in.heredocLines(c) {
			calls = append(calls, readScript(body.lines, body.line, true)...)
		}
	}
	return slices.DeleteFunc(calls, func(c call) bool { return len(c.words) == 0 && len(c.writes) == 0 })
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

// headerLines are the instruction's lines before its heredocs, with comments emptied and the
// continuation characters taken off.
func (in *instruction) headerLines(c *Containerfile) []string {
	var lines []string
	for _, line := range c.lines[in.line-1 : in.header] {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			line = ""
		}
		trimmed := strings.TrimRight(line, " \t")
		lines = append(lines, strings.TrimSuffix(trimmed, string(c.escape)))
	}
	return lines
}

// heredocBody is the text of a heredoc, and its first line in the file.
type heredocBody struct {
	lines []string
	line  int
}

func (in *instruction) heredocLines(c *Containerfile) []heredocBody {
	var bodies []heredocBody
	next := in.header + 1
	for _, heredoc := range in.node.Heredocs {
		n := strings.Count(heredoc.Content, "\n")
		bodies = append(bodies, heredocBody{lines: c.lines[next-1 : next-1+n], line: next})
		next += n + 1
	}
	return bodies
}

// runsHeredocs is whether a shell runs the bodies: nothing else is in the line, or a shell is.
func (in *instruction) runsHeredocs(header []call) bool {
	if len(in.node.Heredocs) == 0 {
		return false
	}
	first := strings.TrimSpace(strings.SplitN(in.node.Heredocs[0].Content, "\n", 2)[0])
	if interpreter, ok := strings.CutPrefix(first, "#!"); ok && !strings.Contains(interpreter, "sh") {
		return false
	}
	return !slices.ContainsFunc(header, func(c call) bool { return len(c.words) > 0 && !isShell(c.name()) })
}

func isShell(name string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "ash", "zsh", "ksh"}, name)
}

// prefixes are words before the program that a command starts.
var prefixes = []string{"sudo", "exec", "time", "command", "env", "nohup", "eval", "if", "then", "else", "elif", "while", "until", "do", "!", "{"}

// prefixWords is how many words stand before the program: assignments and words of the shell.
func prefixWords(words []string) int {
	for i, word := range words {
		assignment := strings.Contains(word, "=") && variableStart(word)
		if !assignment && !slices.Contains(prefixes, word) {
			return i
		}
	}
	return len(words)
}

func variableStart(word string) bool {
	name, _, _ := strings.Cut(word, "=")
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// readScript divides lines of shell into commands. Lines of a RUN instruction are joined, those of
// a script end commands.
func readScript(lines []string, first int, script bool) []call {
	r := &scriptReader{lines: lines, first: first, script: script}
	for r.at < len(lines) {
		r.readLine(lines[r.at])
		r.at++
		if r.quote == 0 && len(r.heredocs) > 0 && r.script {
			r.skipHeredocs()
		}
	}
	r.endCall(false)
	for i := range r.calls {
		if i > 0 || script {
			r.calls[i].drop(prefixWords(r.calls[i].words))
		}
	}
	return r.calls
}

// scriptReader is a shell's reader, cut down to words, quotes, operators and heredocs.
type scriptReader struct {
	lines    []string
	first    int
	at       int
	script   bool
	calls    []call
	current  call
	word     strings.Builder
	inWord   bool
	wordLine int
	quote    byte
	redirect bool // the next word is a file that is written
	skip     bool // the next word is a file that is read
	heredocs []string
}

func (r *scriptReader) readLine(line string) {
	for i := 0; i < len(line); i++ {
		if r.quote != 0 {
			i = r.readQuoted(line, i)
			continue
		}
		switch ch := line[i]; ch {
		case ' ', '\t':
			r.endWord()
		case '#':
			if !r.inWord {
				r.endLine()
				return
			}
			r.add(ch)
		case '\'', '"', '`':
			r.quote = ch
			r.begin()
		case '\\':
			if i+1 == len(line) {
				return // the next line continues this one
			}
			i++
			r.add(line[i])
		case '$':
			i = r.readDollar(line, i)
		case ';', '&', '|', '(', ')', '<', '>':
			i = r.readOperator(line, i)
		default:
			r.add(ch)
		}
	}
	r.endLine()
}

// endLine ends the command in a script; the lines of a RUN instruction are one.
func (r *scriptReader) endLine() {
	switch {
	case r.quote != 0:
		r.word.WriteByte('\n')
	case r.script:
		r.endCall(false)
	}
}

func (r *scriptReader) readQuoted(line string, i int) int {
	switch {
	case line[i] == r.quote:
		r.quote = 0
	case line[i] == '\\' && r.quote != '\'' && i+1 < len(line):
		i++
		r.add(line[i])
	default:
		r.add(line[i])
	}
	return i
}

// readDollar takes $( ... ) on one line as part of the word.
func (r *scriptReader) readDollar(line string, i int) int {
	if i+1 >= len(line) || line[i+1] != '(' {
		r.add('$')
		return i
	}
	depth := 0
	for ; i < len(line); i++ {
		r.add(line[i])
		switch line[i] {
		case '(':
			depth++
		case ')':
			depth--
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

func (r *scriptReader) readOperator(line string, i int) int {
	next := byte(0)
	if i+1 < len(line) {
		next = line[i+1]
	}
	switch ch := line[i]; {
	case ch == '>' && next == '(', ch == '<' && next == '(':
		r.endWord()
		return r.readDollar(line, i) // the text of a substitution is a word
	case ch == '>':
		r.output()
		if next == '>' || next == '|' || next == '&' {
			i++
		}
		r.redirect, r.skip = next != '&', next == '&'
	case ch == '<' && next == '<':
		return r.readHeredoc(line, i)
	case ch == '<':
		r.endWord()
		r.skip = true
	case ch == '|' && next != '|':
		r.endCall(true)
		if next == '&' {
			i++
		}
	case ch == '&' && next == '>':
		r.endWord()
	default:
		r.endCall(false)
		if next == ch {
			i++
		}
	}
	return i
}

// output ends the word before ">", which is no word where it is the number of a file descriptor.
func (r *scriptReader) output() {
	if text := r.word.String(); r.inWord && len(text) == 1 && text[0] >= '0' && text[0] <= '9' {
		r.word.Reset()
		r.inWord = false
	}
	r.endWord()
}

// readHeredoc remembers the last line of a heredoc, or skips the word of <<<.
func (r *scriptReader) readHeredoc(line string, i int) int {
	r.output()
	i += 2
	if i < len(line) && line[i] == '<' {
		r.skip = true
		return i
	}
	rest := strings.TrimLeft(line[i:], "- \t")
	i = len(line) - len(rest)
	end := strings.IndexAny(rest, " \t;&|<>()")
	if end < 0 {
		end = len(rest)
	}
	if word := strings.Trim(rest[:end], `'"\`); word != "" {
		r.heredocs = append(r.heredocs, word)
	}
	return i + end - 1
}

// skipHeredocs goes to the line after the heredocs that the last line began.
func (r *scriptReader) skipHeredocs() {
	for _, last := range r.heredocs {
		for r.at < len(r.lines) {
			line := strings.TrimLeft(r.lines[r.at], "\t")
			r.at++
			if line == last {
				break
			}
		}
	}
	r.heredocs = nil
}

func (r *scriptReader) add(ch byte) {
	r.begin()
	r.word.WriteByte(ch)
}

// begin begins a word, or goes on with it.
func (r *scriptReader) begin() {
	if !r.inWord {
		r.inWord, r.wordLine = true, r.first+r.at
	}
}

func (r *scriptReader) endWord() {
	if !r.inWord {
		return
	}
	word := r.word.String()
	r.word.Reset()
	r.inWord = false
	if r.current.line == 0 {
		r.current.line = r.wordLine
	}
	switch {
	case r.redirect:
		r.current.writes = append(r.current.writes, word)
	case !r.skip:
		r.current.words, r.current.at = append(r.current.words, word), append(r.current.at, r.wordLine)
	}
	r.redirect, r.skip = false, false
}

func (r *scriptReader) endCall(pipe bool) {
	r.endWord()
	r.redirect, r.skip = false, false
	if len(r.current.words) > 0 || len(r.current.writes) > 0 {
		r.calls = append(r.calls, r.current)
	}
	r.current = call{piped: pipe}
}
