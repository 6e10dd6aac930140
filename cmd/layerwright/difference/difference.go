package difference

import (
	"fmt"
	"slices"
	"strings"

	openshiftv1 "github.com/openshift/api/operator/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/rollout/disruption"
	"github.com/layerwright/layerwright/streams/compare"
	"github.com/layerwright/layerwright/view"
)

// Side is one of two images, or what is asked for. What is not known is empty, and nil.
type Side struct {
	// Name is how the user calls it, Image it by digest.
	Name   string                   `json:"name"`
	Image  mcfgv1.ImageDigestFormat `json:"image,omitempty"`
	Base   mcfgv1.ImageDigestFormat `json:"base,omitempty"`
	Stream string                   `json:"stream,omitempty"`
	// MachineConfig is the name of the rendered one, Config what it says.
	MachineConfig string                 `json:"machineConfig,omitempty"`
	Config        *machineconfigs.Config `json:"-"`
	// Record is what the image was made of.
	Record *plan.Record `json:"-"`
}

// Difference is how two images differ.
type Difference struct {
	Pool string `json:"pool"`
	From Side   `json:"from"`
	To   Side   `json:"to"`
	// Inputs are changes of what the content is made of, Configuration those of the rendered
	// MachineConfig, with what only nodes have.
	Inputs        []plan.Change `json:"inputs,omitempty"`
	Configuration []plan.Change `json:"configuration,omitempty"`
	// Packages are nil where they were not compared; SamePackages is why they need not be.
	Packages     *compare.PackageChanges `json:"packages,omitempty"`
	SamePackages string                  `json:"samePackages,omitempty"`
	// Effect is what the change from one to the other would do to a node where nothing was edited;
	// empty where that is not known.
	Effect string `json:"effect,omitempty"`
	// Unknown are what could not be compared, and why.
	Unknown []string `json:"unknown,omitempty"`
}

// Of compares two sides. Policies are the administrator's for disruption of nodes.
func Of(pool string, from, to Side, policies *openshiftv1.NodeDisruptionPolicyConfig) *Difference {
	d := &Difference{Pool: pool, From: from, To: to}
	d.compareInputs()
	if from.Config != nil && to.Config != nil {
		d.Configuration = configChanges(from.Config, to.Config)
	}
	d.judge(policies)
	return d
}

// compareInputs compares what was recorded. Where a rendered MachineConfig is gone, the record has
// at least what of it got into the image.
func (d *Difference) compareInputs() {
	for _, side := range []*Side{&d.From, &d.To} {
		if side.Config == nil {
			d.unknown("what %s asks of nodes (kernel arguments, SSH keys, files below /var): its rendered MachineConfig %s can't be read", side.Name, side.MachineConfig)
		}
		if side.Record == nil {
			d.unknown("what %s was made of: there is no MachineOSBuild of it any more", side.Name)
		}
	}
	if d.From.Record == nil || d.To.Record == nil {
		if d.From.Base != d.To.Base {
			d.Inputs = []plan.Change{{What: "base image", Verb: plan.Changed, Input: mcfgv1.BuildInputBaseImage, From: d.From.Base.Digest(), To: d.To.Base.Digest()}}
		}
		return
	}
	isRead := d.From.Config != nil && d.To.Config != nil
	for _, change := range d.From.Record.Changes(d.To.Record) {
		if change.Input != mcfgv1.BuildInputMachineConfig {
			d.Inputs = append(d.Inputs, change)
		} else if !isRead {
			d.Configuration = append(d.Configuration, change)
		}
	}
	if key := d.From.Record.Keys.Content; key != "" && key == d.To.Record.Keys.Content {
		d.SamePackages = "the content is the same, by its key " + key
	}
}

func (d *Difference) unknown(format string, args ...any) {
	d.Unknown = append(d.Unknown, fmt.Sprintf(format, args...))
}

// judge says what the change does to a node.
func (d *Difference) judge(policies *openshiftv1.NodeDisruptionPolicyConfig) {
	switch {
	case len(d.Inputs) > 0:
		d.Effect = words(disruption.Verdict{Reboot: d.Inputs[0].What + " differs"})
	case d.From.Config == nil || d.To.Config == nil:
		d.unknown("what the change would do to a node")
	case len(d.Configuration) == 0 && d.From.Record != nil && d.To.Record != nil:
		d.Effect = "nothing"
	case d.From.Record == nil || d.To.Record == nil:
		d.unknown("what the change would do to a node, beside what its configuration does")
	default:
		d.Effect = words(disruption.Decide(disruptionOf(d.Configuration, d.From.Config, d.To.Config), policies))
	}
}

// Text is for people.
func (d *Difference) Text() string {
	var t strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintln(&t, view.Visible(fmt.Sprintf(format, args...))) } // a builder takes everything
	line("Pool %s: from %s to %s", d.Pool, d.From.describe(), d.To.describe())
	if d.From.Stream != d.To.Stream && d.From.Stream != "" && d.To.Stream != "" {
		line("  stream         %s -> %s", d.From.Stream, d.To.Stream)
	}
	if d.From.MachineConfig != d.To.MachineConfig {
		line("  configuration  %s -> %s", d.From.MachineConfig, d.To.MachineConfig)
	}
	if d.Effect != "" {
		line("  node           %s", d.Effect)
	}
	section := func(title string, items []string) {
		if len(items) > 0 {
			line("%s", "")
			line("%s", title)
		}
		for _, item := range items {
			line("  %s", item)
		}
	}
	counted := func(title string, items []string) { section(fmt.Sprintf("%s (%d)", title, len(items)), items) }
	counted("Inputs of the content", texts(d.Inputs))
	counted("Configuration", texts(d.Configuration))
	section("Packages", d.packages()) // its lines say how many
	counted("Not known", d.Unknown)
	return t.String()
}

func texts(changes []plan.Change) []string {
	var out []string
	for _, change := range changes {
		out = append(out, change.String())
	}
	return out
}

func (d *Difference) packages() []string {
	if d.Packages == nil {
		if d.SamePackages == "" {
			return nil
		}
		return []string{"no difference: " + d.SamePackages}
	}
	var out []string
	for _, p := range d.Packages.Downgraded {
		out = append(out, fmt.Sprintf("%s downgraded from %s to %s", p.Name, p.Before, p.After))
	}
	for _, p := range d.Packages.Removed {
		out = append(out, fmt.Sprintf("%s %s removed", p.Name, p.Version))
	}
	for _, p := range d.Packages.Added {
		out = append(out, fmt.Sprintf("%s %s added", p.Name, p.Version))
	}
	for _, p := range d.Packages.Upgraded {
		out = append(out, fmt.Sprintf("%s upgraded from %s to %s", p.Name, p.Before, p.After))
	}
	return append(out, number(d.Packages.Same, "package")+" the same")
}

// describe is the name of a side, with its digest where that says more.
func (s *Side) describe() string {
	parts := slices.DeleteFunc([]string{s.Name, s.Image.Short()}, func(p string) bool { return p == "" })
	if len(parts) == 1 || parts[0] == parts[1] {
		return parts[0]
	}
	return parts[0] + " (" + parts[1] + ")"
}
