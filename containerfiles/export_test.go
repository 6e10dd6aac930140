package containerfiles

import "fmt"

// Calls are the commands of the RUN instructions in a text: line, words and files that are written.
func Calls(c *Containerfile) []string {
	var lines []string
	for _, in := range c.Instructions {
		for _, call := range in.Calls(c) {
			line := fmt.Sprintf("%d %q", call.Line, call.Words)
			if len(call.Writes) > 0 {
				line += fmt.Sprintf(" > %q", call.Writes)
			}
			if call.Piped {
				line += " piped"
			}
			lines = append(lines, line)
		}
	}
	return lines
}
