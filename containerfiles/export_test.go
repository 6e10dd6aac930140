package containerfiles

import "fmt"

// BuildKitRules are the lines of the table in docs/containerfiles.md.
func BuildKitRules() []string {
	var lines []string
	for _, rule := range buildKitRules {
		used := "no"
		if rule.used {
			used = "yes"
		}
		lines = append(lines, fmt.Sprintf("| %#q | %s | %s |", rule.name, used, rule.why))
	}
	return lines
}

// UsedBuildKitRules are the names of those that are used.
func UsedBuildKitRules() []string {
	var names []string
	for _, rule := range buildKitRules {
		if rule.used {
			names = append(names, rule.name)
		}
	}
	return names
}

// KernelTable are the lines of the table in docs/containerfiles.md.
func KernelTable() []string {
	lines := []string{}
	for _, name := range []KernelType{KernelRealtime, Kernel64kPages} {
		k := kernels[name]
		packages := ""
		for _, p := range k.packages {
			packages += ", `" + p + "`"
		}
		if k.optional != "" {
			packages += ", and `" + k.optional + "` where the extensions image has it"
		}
		lines = append(lines, fmt.Sprintf("| kernel %#q | %s | %s |", name, packages[2:], joinArchs(k.archs)))
	}
	return lines
}

// Calls are the commands of the RUN instructions in a text: line, words and files that are written.
func Calls(c *Containerfile) []string {
	var lines []string
	for _, in := range c.instructions {
		for _, call := range in.calls(c) {
			line := fmt.Sprintf("%d %q", call.line, call.words)
			if len(call.writes) > 0 {
				line += fmt.Sprintf(" > %q", call.writes)
			}
			if call.piped {
				line += " piped"
			}
			lines = append(lines, line)
		}
	}
	return lines
}
