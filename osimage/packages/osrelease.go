package packages

import "strings"

// OSRelease reads os-release(5): assignments of a shell, of which none needs more than its quotes
// taken off.
func OSRelease(content []byte) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(string(content)) {
		name, value, isField := strings.Cut(strings.TrimSpace(line), "=")
		if !isField || strings.HasPrefix(name, "#") {
			continue
		}
		if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
			value = value[1 : len(value)-1]
		}
		fields[name] = value
	}
	return fields
}
