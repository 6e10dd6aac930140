package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Verb is what happened to an input.
type Verb string

const (
	// Added is an input that the older image did not have.
	Added Verb = "added"
	// Removed is an input that the newer image does not have.
	Removed Verb = "removed"
	// Changed is an input that both have, and that differs.
	Changed Verb = "changed"
)

// Change is one difference between the inputs of two images, in words for people.
type Change struct {
	// What names the input: "base image digest", "file /etc/chrony.conf", "Containerfile line 3".
	What string `json:"what"`
	Verb Verb   `json:"verb"`
	// From and To are the values where they are short and not secret: digests, names of kernels. Both may be empty.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// String is the change as a phrase: "kernel type changed from default to realtime".
func (c Change) String() string {
	if c.From == "" || c.To == "" {
		return fmt.Sprintf("%s %s", c.What, c.Verb)
	}
	return fmt.Sprintf("%s %s from %s to %s", c.What, c.Verb, short(c.From), short(c.To))
}

// digestLength is how much of a digest people compare by eye, beside its algorithm.
const digestLength = len("sha256:") + 12

// short cuts a digest to what people compare by eye.
func short(value string) string {
	if strings.HasPrefix(value, "sha256:") && len(value) > digestLength {
		return value[:digestLength]
	}
	return value
}

// Explain says which inputs differ between an older image and a newer one. It is empty exactly if their keys are the same. The order is
// that of an image's layers: base, extensions, kernel, Containerfiles, build inputs, configuration; within each, by name.
func Explain(older, newer *Inputs) []Change {
	o, n := older.canonical(), newer.canonical()
	var changes []Change
	changes = appendValue(changes, "base image digest", o.Base, n.Base)
	changes = appendValue(changes, "extensions image digest", o.Extensions, n.Extensions)
	changes = appendItems(changes, named("extension ", o.ExtensionNames), named("extension ", n.ExtensionNames))
	changes = appendValue(changes, "kernel type", o.KernelType, n.KernelType)
	changes = appendContainerfiles(changes, o.Containerfiles, n.Containerfiles)
	changes = appendItems(changes, o.BuildInputs, n.BuildInputs)
	return appendItems(changes, o.Config, n.Config)
}

// Summary joins changes to one sentence of at most limit changes, and says how many more there are. It is empty for no change.
func Summary(changes []Change, limit int) string {
	phrases := make([]string, 0, limit+1)
	for i, change := range changes {
		if i == limit {
			phrases = append(phrases, fmt.Sprintf("and %d more", len(changes)-limit))
			break
		}
		phrases = append(phrases, change.String())
	}
	return strings.Join(phrases, "; ")
}

func appendValue(changes []Change, what, from, to string) []Change {
	switch {
	case from == to:
		return changes
	case from == "":
		return append(changes, Change{What: what, Verb: Added, To: to})
	case to == "":
		return append(changes, Change{What: what, Verb: Removed, From: from})
	default:
		return append(changes, Change{What: what, Verb: Changed, From: from, To: to})
	}
}

// named makes items of names that have no content of their own.
func named(prefix string, names []string) []Item {
	items := make([]Item, len(names))
	for i, name := range names {
		items[i].Name = prefix + name
	}
	return items
}

// appendItems walks two lists that are sorted by name. A name may be there more than once: it has changed then if any hash of it
// has.
func appendItems(changes []Change, older, newer []Item) []Change {
	for len(older) > 0 || len(newer) > 0 {
		switch {
		case len(newer) == 0 || len(older) > 0 && older[0].Name < newer[0].Name:
			changes = append(changes, Change{What: older[0].Name, Verb: Removed})
			older = older[1:]
		case len(older) == 0 || newer[0].Name < older[0].Name:
			changes = append(changes, Change{What: newer[0].Name, Verb: Added})
			newer = newer[1:]
		default:
			if older[0].Hash != newer[0].Hash {
				changes = append(changes, Change{What: older[0].Name, Verb: Changed})
			}
			older, newer = older[1:], newer[1:]
		}
	}
	return changes
}

// appendContainerfiles walks two lists that are sorted by architecture.
func appendContainerfiles(changes []Change, older, newer []Containerfile) []Change {
	for len(older) > 0 || len(newer) > 0 {
		switch {
		case len(newer) == 0 || len(older) > 0 && older[0].Arch < newer[0].Arch:
			changes = append(changes, Change{What: containerfileName(older[0].Arch), Verb: Removed})
			older = older[1:]
		case len(older) == 0 || newer[0].Arch < older[0].Arch:
			changes = append(changes, Change{What: containerfileName(newer[0].Arch), Verb: Added})
			newer = newer[1:]
		default:
			changes = append(changes, lineChanges(containerfileName(newer[0].Arch), older[0].Text, newer[0].Text)...)
			older, newer = older[1:], newer[1:]
		}
	}
	return changes
}

func containerfileName(arch mcfgv1.ContainerfileArch) string {
	if arch == mcfgv1.NoArch {
		return "Containerfile"
	}
	return fmt.Sprintf("Containerfile for %s", arch)
}

// lineChanges says which lines differ. Numbers are those of the newer text, but of the older one for lines that are gone.
func lineChanges(name, older, newer string) []Change {
	if older == newer {
		return nil
	}
	var changes []Change
	for _, op := range difflib.NewMatcher(lines(older), lines(newer)).GetOpCodes() {
		switch op.Tag {
		case 'r':
			changes = append(changes, Change{What: lineRange(name, op.J1, op.J2), Verb: Changed})
		case 'i':
			changes = append(changes, Change{What: lineRange(name, op.J1, op.J2), Verb: Added})
		case 'd':
			changes = append(changes, Change{What: lineRange(name, op.I1, op.I2), Verb: Removed})
		}
	}
	return changes
}

// lines splits text after each line end; joined, the lines are the text, so texts that differ have lines that differ.
func lines(text string) []string { return slices.Collect(strings.Lines(text)) }

// lineRange names the lines from the one at index from to the one before index to.
func lineRange(name string, from, to int) string {
	if to-from == 1 {
		return fmt.Sprintf("%s line %d", name, to)
	}
	return fmt.Sprintf("%s lines %d-%d", name, from+1, to)
}
