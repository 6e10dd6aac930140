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
// here and nowhere else, with why: numbers may go down, and entries go when they are not needed any
// more.
func Walls() []Wall {
	return []Wall{
		{
			Name: "lines", Most: 2500, Of: func(f Figures) int { return f.Lines },
			Beyond: map[string]int{
				"api/machineconfiguration/v1": 3700, // the types of one API group, which clients import as one package
				"rollout/bootimages":          2850, // machines of four kinds, their templates and the canary are rooms to come
			},
		},
		{
			Name: "files that need each other", Most: 8, Of: func(f Figures) int { return len(f.Knot) },
		},
		{
			Name: "functions that take a build's scope", Most: 20, Of: func(f Figures) int { return f.Places },
		},
		{
			// Of those with up to 15, half are the API, conditions, faults, events and names.
			Name: "imported packages of this module", Most: 10, Of: func(f Figures) int { return len(f.Imports) },
			Beyond: map[string]int{
				"builder/builds":           12, // has all that a build needs done in one reconcile
				"builder/configs":          15, // shows what all others found out in one status
				"builder/content":          12, // follows what backends do, and says it in the words of builds
				"builder/engine":           11, // its four steps use all the rooms below it
				"builder/made":             12, // joins the image that was made with those who attest and sign it
				"builder/maker":            12, // has content built, and puts the configuration on it
				"builder/making":           12, // joins content, maker and what is written down
				"builder/objects":          12, // reads and writes what reconcilers of builds share
				"builder/wanted/preflight": 12, // checks all that a build takes, each by those who know it
				"builder/retention":        12, // asks images, objects and registry what may go
				"builder/standalone":       18, // does in one call what reconcilers do with preflight, registry, maker and images
				"builder/wanted":           13, // has what an image is made of looked at on behalf of a MachineOSConfig
				"cmd/layerwright/offline":  14, // is wiring for what works without a cluster
				"trust/enforcement":        16, // joins what signers, streams and nodes say
				"images":                   14, // joins signer, attester and gate
				"pools":                    14, // joins rendering, streams and nodes
				"rollout/bootimages":       13, // joins platforms, streams and importers
				"test/cluster/demo":        12, // is a program in all but its place
				"test/cluster/stack":       19, // is wiring of the playground
				"test/worldtest":           33, // wires what cmd wires, for stories
				"trials":                   18, // says in one status what rendering, experiment and retention found
				"trials/experiment":        19, // does in one reconcile what preflight, registry, maker and backends do
			},
		},
	}
}

// isWiring reports whether a package puts others together, which is all that it does: programs, not
// what lies below them, and the root of the builder.
func isWiring(folder string) bool {
	program, isProgram := strings.CutPrefix(folder, "cmd/")
	return isProgram && !strings.Contains(program, "/") || folder == "builder"
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
