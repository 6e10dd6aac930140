package installpage

import (
	"regexp"
	"strings"
)

// Command is one of a user's shell.
type Command struct {
	// Section is the heading that it is below, and Text the command, without the prompt.
	Section, Text string
}

// Page is what a page has for users to copy.
type Page struct {
	// Commands are those of its consoles, in order.
	Commands []Command
	// Files are those in YAML that begin with a comment which is their name, by that name.
	Files map[string]string
}

var (
	fenced   = regexp.MustCompile("^```([a-z]+)$")
	fileName = regexp.MustCompile(`^# (\S+\.yaml)$`)
)

// Read reads a page in Markdown.
func Read(text string) *Page {
	page := &Page{Files: map[string]string{}}
	section, language, file := "", "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		begins := fenced.FindStringSubmatch(line)
		switch {
		case language == "" && begins != nil:
			language, file = begins[1], ""
		case language == "" && strings.HasPrefix(line, "#"):
			section = strings.TrimLeft(line, "# ")
		case line == "```":
			language = ""
		case language == "console":
			if command, is := strings.CutPrefix(line, "$ "); is {
				page.Commands = append(page.Commands, Command{Section: section, Text: command})
			}
		case language == "yaml" && file == "":
			file = "-" // a part of an object, for a user's own file
			if name := fileName.FindStringSubmatch(line); name != nil {
				file = name[1]
			}
		case language == "yaml" && file != "-":
			page.Files[file] += line + "\n"
		}
	}
	return page
}

// In are the commands of a section.
func (p *Page) In(section string) (commands []Command) {
	for _, command := range p.Commands {
		if command.Section == section {
			commands = append(commands, command)
		}
	}
	return commands
}
