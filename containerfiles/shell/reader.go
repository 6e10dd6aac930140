package shell

import (
	"path"
	"slices"
	"strings"
)

// Call is one simple command of a RUN instruction: no pipe and no && in it.
type Call struct {
	Words []string
	at    []int // the line that each word begins on
	Line  int   // that of the first word
	Piped bool  // it reads what the command before it writes
	// Writes are the files that its output goes to.
	Writes []string
}

// Drop takes off the first words.
func (c *Call) Drop(n int) {
	c.Words, c.at = c.Words[n:], c.at[n:]
	if len(c.at) > 0 {
		c.Line = c.at[0]
	}
}

// Name is the program without its folder; empty where there is none.
func (c Call) Name() string {
	if len(c.Words) == 0 {
		return ""
	}
	return path.Base(c.Words[0])
}

// Has reports whether one of the words is among those after the program's name.
func (c Call) Has(words ...string) bool {
	return len(c.Words) > 0 && slices.ContainsFunc(c.Words[1:], func(w string) bool { return slices.Contains(words, w) })
}

// Verb is the first word after the program's name that is no option.
func (c Call) Verb() string {
	for _, word := range c.Operands() {
		return word
	}
	return ""
}

// Operands are the words after the program's name that are no options.
func (c Call) Operands() []string {
	if len(c.Words) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.Words[1:]), func(w string) bool { return strings.HasPrefix(w, "-") })
}

// IsShell reports whether a program is a shell.
func IsShell(name string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "ash", "zsh", "ksh"}, name)
}

// prefixes are words before the program that a command starts.
var prefixes = []string{"sudo", "exec", "time", "command", "env", "nohup", "eval", "if", "then", "else", "elif", "while", "until", "do", "!", "{"}

// PrefixWords is how many words stand before the program: assignments and words of the shell.
func PrefixWords(words []string) int {
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

// Read divides lines of shell into commands. Lines of a RUN instruction are joined, those of
// a script end commands.
func Read(lines []string, first int, script bool) []Call {
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
			r.calls[i].Drop(PrefixWords(r.calls[i].Words))
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
	calls    []Call
	current  Call
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
	if r.current.Line == 0 {
		r.current.Line = r.wordLine
	}
	switch {
	case r.redirect:
		r.current.Writes = append(r.current.Writes, word)
	case !r.skip:
		r.current.Words, r.current.at = append(r.current.Words, word), append(r.current.at, r.wordLine)
	}
	r.redirect, r.skip = false, false
}

func (r *scriptReader) endCall(pipe bool) {
	r.endWord()
	r.redirect, r.skip = false, false
	if len(r.current.Words) > 0 || len(r.current.Writes) > 0 {
		r.calls = append(r.calls, r.current)
	}
	r.current = Call{Piped: pipe}
}
