package systemd

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// whitespace separates words in unit files.
const whitespace = " \t\n\r"

// assignment is a line key=value of an [Install] section.
type assignment struct{ key, value string }

// parseInstall reads the [Install] sections of a unit file, as systemd's parser does: what is no
// assignment is ignored, and only a broken section header makes the file unreadable. (The parser of
// go-systemd refuses lines over 2048 bytes and lines without "=", both of which systemd accepts.)
func parseInstall(data []byte) ([]assignment, error) {
	var found []assignment
	section, pending := "", ""
	logical := func(line string) error {
		line = strings.Trim(line, whitespace)
		switch {
		case line == "" || !utf8.ValidString(line):
			return nil
		case line[0] == '[':
			if !strings.HasSuffix(line, "]") {
				return fmt.Errorf("invalid section header %q", cut(line))
			}
			section = line[1 : len(line)-1]
			return nil
		}
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimRight(key, whitespace); section == "Install" && ok && key != "" {
			found = append(found, assignment{key, strings.TrimLeft(value, whitespace)})
		}
		return nil
	}
	for line := range lines(data) {
		if start := strings.TrimLeft(line, whitespace); start != "" && (start[0] == '#' || start[0] == ';') {
			continue // also between continued lines
		}
		line = pending + line
		pending = ""
		if endsEscaped(line) {
			pending = line[:len(line)-1] + " "
			continue
		}
		if err := logical(line); err != nil {
			return nil, err
		}
	}
	return found, logical(pending)
}

// lines yields the lines of a file. Line feeds, carriage returns and zero bytes end a line.
func lines(data []byte) func(yield func(string) bool) {
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	return func(yield func(string) bool) {
		for len(data) > 0 {
			end := bytes.IndexAny(data, "\n\r\x00")
			if end < 0 {
				yield(string(data))
				return
			}
			if !yield(string(data[:end])) {
				return
			}
			data = data[end+1:]
		}
	}
}

// endsEscaped reports whether a line ends with a backslash that is not itself escaped.
func endsEscaped(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// cut shortens foreign text for messages.
func cut(s string) string {
	const limit = 80
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return s
}

// words splits a value at whitespace. Quotes are taken away, backslashes stay. At a quote without
// its partner the words end.
func words(value string) []string {
	var all []string
	for {
		value = strings.TrimLeft(value, whitespace)
		if value == "" {
			return all
		}
		word, rest, ok := firstWord(value)
		if !ok {
			return all
		}
		all, value = append(all, word), rest
	}
}

func firstWord(s string) (word, rest string, ok bool) {
	text := &strings.Builder{}
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == '\\':
			if i+1 == len(s) { // nothing to escape
				return "", "", false
			}
			i++
			text.WriteString(s[i-1 : i+1])
		case quote == 0 && strings.IndexByte(whitespace, c) >= 0:
			return text.String(), s[i:], true
		default:
			text.WriteByte(c)
		}
	}
	return text.String(), "", quote == 0
}

// plainWords splits a value at whitespace. Quotes stay, and a backslash is taken away from what
// follows it.
func plainWords(value string) []string {
	var all []string
	text, in := &strings.Builder{}, false
	for i := 0; i < len(value); i++ {
		c := value[i]
		if strings.IndexByte(whitespace, c) >= 0 {
			if in {
				all = append(all, text.String())
			}
			text.Reset()
			in = false
			continue
		}
		in = true
		if c == '\\' {
			if i++; i == len(value) {
				return all
			}
			c = value[i]
		}
		text.WriteByte(c)
	}
	if in {
		all = append(all, text.String())
	}
	return all
}
