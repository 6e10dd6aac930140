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
	// Input is the kind of input, as a MachineOSBuild lists them in status.changedInputs.
	Input mcfgv1.BuildInput `json:"input"`
	// From and To are the values where they are short and not secret: digests, names of kernels.
	// Both may be empty.
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

// Explain says which inputs differ between an older image and a newer one. It is empty exactly if
// their keys are the same. The order is that of an image's layers: base, extensions, kernel,
// Containerfiles, build inputs, configuration; within each, by name.
func Explain(older, newer *Inputs) []Change {
	o, n := older.canonical(), newer.canonical()
	var d differences
	d.in = mcfgv1.BuildInputBaseImage
	d.value("base image digest", o.Base, n.Base)
	d.items(named("architecture ", architectureNames(o.Architectures)), named("architecture ", architectureNames(n.Architectures)))
	d.in = mcfgv1.BuildInputExtensionsImage
	d.value("extensions image digest", o.Extensions, n.Extensions)
	d.in = mcfgv1.BuildInputExtensions
	d.items(named("extension ", o.ExtensionNames), named("extension ", n.ExtensionNames))
	d.in = mcfgv1.BuildInputKernelType
	d.value("kernel type", o.KernelType, n.KernelType)
	d.in = mcfgv1.BuildInputContainerfile
	d.containerfiles(o.Containerfiles, n.Containerfiles)
	d.in = mcfgv1.BuildInputBuildInputs
	d.items(o.BuildInputs, n.BuildInputs)
	d.in = mcfgv1.BuildInputMachineConfig
	d.items(o.Config, n.Config)
	if o.ConfigVersion != n.ConfigVersion {
		d.add(Changed, "format of the configuration layer")
	}
	return d.changes
}

// ChangedInputs are the kinds of input among the changes, each once, in their order.
func ChangedInputs(changes []Change) []mcfgv1.BuildInput {
	var inputs []mcfgv1.BuildInput
	for _, change := range changes {
		if !slices.Contains(inputs, change.Input) {
			inputs = append(inputs, change.Input)
		}
	}
	return inputs
}

// differences collects changes, all of one kind of input at a time.
type differences struct {
	in      mcfgv1.BuildInput
	changes []Change
}

func (d *differences) add(verb Verb, what string) {
	d.changes = append(d.changes, Change{What: what, Verb: verb, Input: d.in})
}

func (d *differences) value(what, from, to string) {
	verb := Changed
	switch {
	case from == to:
		return
	case from == "":
		verb = Added
	case to == "":
		verb = Removed
	}
	d.changes = append(d.changes, Change{What: what, Verb: verb, Input: d.in, From: from, To: to})
}

func architectureNames(architectures []mcfgv1.Architecture) []string {
	names := make([]string, len(architectures))
	for i, a := range architectures {
		names[i] = a.OCI()
	}
	return names
}

// named makes items of names that have no content of their own.
func named(prefix string, names []string) []Item {
	items := make([]Item, len(names))
	for i, name := range names {
		items[i].Name = prefix + name
	}
	return items
}

// items walks two lists that are sorted by name. A name that is there more often on one side counts
// as added or removed.
func (d *differences) items(older, newer []Item) {
	for len(older) > 0 || len(newer) > 0 {
		switch {
		case len(newer) == 0 || len(older) > 0 && older[0].Name < newer[0].Name:
			d.add(Removed, older[0].Name)
			older = older[1:]
		case len(older) == 0 || newer[0].Name < older[0].Name:
			d.add(Added, newer[0].Name)
			newer = newer[1:]
		default:
			if older[0].Hash != newer[0].Hash {
				d.add(Changed, older[0].Name)
			}
			older, newer = older[1:], newer[1:]
		}
	}
}

// containerfiles walks two lists that are sorted by architecture.
func (d *differences) containerfiles(older, newer []Containerfile) {
	for len(older) > 0 || len(newer) > 0 {
		switch {
		case len(newer) == 0 || len(older) > 0 && older[0].Arch < newer[0].Arch:
			d.add(Removed, containerfileName(older[0].Arch))
			older = older[1:]
		case len(older) == 0 || newer[0].Arch < older[0].Arch:
			d.add(Added, containerfileName(newer[0].Arch))
			newer = newer[1:]
		default:
			d.lines(containerfileName(newer[0].Arch), older[0].Text, newer[0].Text)
			older, newer = older[1:], newer[1:]
		}
	}
}

func containerfileName(arch mcfgv1.ContainerfileArch) string {
	if arch == mcfgv1.NoArch {
		return "Containerfile"
	}
	return fmt.Sprintf("Containerfile for %s", arch)
}

// lines says which lines differ. Numbers are those of the newer text, but of the older one for
// lines that are gone.
func (d *differences) lines(name, older, newer string) {
	if older == newer {
		return
	}
	for _, op := range difflib.NewMatcher(splitLines(older), splitLines(newer)).GetOpCodes() {
		switch op.Tag {
		case 'r':
			d.add(Changed, lineRange(name, op.J1, op.J2))
		case 'i':
			d.add(Added, lineRange(name, op.J1, op.J2))
		case 'd':
			d.add(Removed, lineRange(name, op.I1, op.I2))
		}
	}
}

// splitLines splits text after each line end; joined, the lines are the text, so texts that differ
// have lines that differ.
func splitLines(text string) []string { return slices.Collect(strings.Lines(text)) }

// lineRange names the lines from the one at index from to the one before index to.
func lineRange(name string, from, to int) string {
	if to-from == 1 {
		return fmt.Sprintf("%s line %d", name, to)
	}
	return fmt.Sprintf("%s lines %d-%d", name, from+1, to)
}
