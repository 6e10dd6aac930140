package archtest

import (
	"fmt"
	"strings"
)

// Wall is a limit of what a package may grow to.
type Wall struct {
	// Name is what is counted.
	Name string
	// Most is the limit, and Of counts.
	Most int
	Of   func(Figures) int
	// Beyond are folders that do not keep the limit yet, each with a limit of its own.
	Beyond map[string]int
}

// Walls are the limits between the rooms of this repository. What does not keep them yet is listed
// here and nowhere else: numbers may go down, and entries go when they are not needed any more.
func Walls() []Wall {
	return []Wall{
		{
			Name: "lines", Most: 2500, Of: func(f Figures) int { return f.Lines },
			Beyond: map[string]int{
				"api/machineconfiguration/v1": 3300,
				"builder/engine":              3750,
				"containerfiles":              4100,
				"internal/registry":           3750,
				"internal/sign":               2800,
				"machineconfigs":              3000,
				"test/cluster/stack":          3000,
				"test/fixtures":               2900,
			},
		},
		{
			Name: "files that need each other", Most: 8, Of: func(f Figures) int { return len(f.Knot) },
			Beyond: map[string]int{
				"builder/engine":          14,
				"builder/jobs":            9,
				"internal/sign":           9,
				"machineconfigs/layer":    12,
				"rollout/bootimages/plan": 10,
				"test/cluster/stack":      13,
			},
		},
		{
			Name: "imported packages of this module", Most: 10, Of: func(f Figures) int { return len(f.Imports) },
			Beyond: map[string]int{
				"builder":                 15,
				"builder/builds":          23,
				"builder/configs":         18,
				"builder/wanted":          15,
				"builder/retention":       13,
				"trials":                  25,
				"trials/trial":            10,
				"cmd/layerwright/offline": 13,
				"builder/maker":           19,
				"enforcement":             15,
				"images":                  15,
				"pools":                   13,
				"rollout/bootimages":      13,
				"test/cluster/demo":       12,
				"test/cluster/stack":      19,
			},
		},
	}
}

// isWiring reports whether a package puts others together, which is all that it does: programs, and
// not what lies below them.
func isWiring(folder string) bool {
	program, isProgram := strings.CutPrefix(folder, "cmd/")
	return isProgram && !strings.Contains(program, "/")
}

// Breaches are the packages beyond a wall, in words.
func Breaches(walls []Wall, all []Figures) []string {
	var out []string
	for _, wall := range walls {
		for _, f := range all {
			most := max(wall.Most, wall.Beyond[f.Folder])
			if n := wall.Of(f); n > most && !isWiring(f.Folder) {
				out = append(out, fmt.Sprintf("%s: %d %s, and %d is the limit", f.Folder, n, wall.Name, most))
			}
		}
	}
	return out
}
