package offline

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/containerfiles"
)

// ReportFile is the file of a folder that says what the image is; Previous reads it.
const ReportFile = "image.json"

// Report is a Result without bytes, for people and programs. There is no secret in it.
type Report struct {
	Pool string `json:"pool"`
	// MachineConfig is the name of the rendered MachineConfig, Sources those that it was joined
	// from.
	MachineConfig string   `json:"machineConfig"`
	Sources       []string `json:"sources,omitempty"`
	Base          string   `json:"base"`
	Extensions    string   `json:"extensions,omitempty"`
	// Keys are the image's identity, Inputs what they are made of.
	Keys   plan.Keys   `json:"keys"`
	Inputs plan.Inputs `json:"inputs"`
	// Changes are the inputs that differ from the image before, where there is one to compare with.
	Changes   []plan.Change    `json:"changes,omitempty"`
	Platforms []PlatformReport `json:"platforms"`
	// Warnings are about the configuration as a whole.
	Warnings []string `json:"warnings,omitempty"`
	// Unused are things in the files that play no part.
	Unused []string `json:"unused,omitempty"`

	compared bool
}

// PlatformReport is the image of one architecture.
type PlatformReport struct {
	Architecture mcfgv1.ContainerfileArch `json:"architecture"`
	// Strategy is how a change of configuration gets into the image, Reason why.
	Strategy containerfiles.Strategy `json:"strategy"`
	Reason   string                  `json:"reason"`
	// Containerfile is the hash of what a build would run; empty where there is nothing to build.
	Containerfile string   `json:"containerfile,omitempty"`
	Images        []string `json:"images,omitempty"`
	Layer         Layer    `json:"layer"`
	// NodeState is what nodes apply themselves, in words.
	NodeState []string `json:"nodeState,omitempty"`
	// Findings are about the Containerfile, Notices about the configuration and what was made of
	// the Containerfile.
	Findings []string `json:"findings,omitempty"`
	Notices  []string `json:"notices,omitempty"`
}

// Layer is the configuration layer. Without a DiffID it can only be made when the content is built.
type Layer struct {
	DiffID  string   `json:"diffID,omitempty"`
	Bytes   int64    `json:"bytes,omitempty"`
	Entries int      `json:"entries,omitempty"`
	Items   []string `json:"items,omitempty"`
	// Expected are things that the content has to bring.
	Expected []string `json:"expected,omitempty"`
}

// Report says what the result is.
func (r *Result) Report() (*Report, error) {
	report := &Report{
		Pool:          r.Pool,
		MachineConfig: r.Rendered.MachineConfig.Name,
		Sources:       r.Rendered.Sources,
		Base:          r.Base,
		Extensions:    r.Extensions,
		Keys:          r.Description.Keys,
		Inputs:        r.Description.Inputs,
		Warnings:      r.Rendered.Config.Warnings,
		Unused:        r.Unused,
	}
	for _, p := range r.Platforms {
		platform, err := p.report()
		if err != nil {
			return nil, err
		}
		report.Platforms = append(report.Platforms, platform)
	}
	return report, nil
}

func (p *PlatformResult) report() (PlatformReport, error) {
	report := PlatformReport{
		Architecture: p.Architecture, Strategy: p.Strategy, Reason: p.StrategyReason,
		NodeState: p.Layer.NodeState.Summary(), Notices: p.Layer.Notices,
		Layer: Layer{Expected: p.Layer.Expected},
	}
	if p.Config != nil {
		var err error
		if report.Layer.DiffID, err = p.Config.DiffID(); err != nil {
			return report, err
		}
		if report.Layer.Bytes, err = p.Config.WriteTo(io.Discard); err != nil {
			return report, err
		}
		report.Layer.Entries = len(p.Config.Entries())
	}
	for _, item := range p.Layer.Items {
		report.Layer.Items = append(report.Layer.Items, item.Name)
	}
	for _, finding := range p.Findings {
		report.Findings = append(report.Findings, finding.String())
	}
	if p.Containerfile != nil {
		report.Containerfile, report.Images = p.Containerfile.Hash, p.Containerfile.Images
		report.Notices = append(report.Notices, p.Containerfile.Notices...)
	}
	return report, nil
}

// Previous reads the report that Write left in a folder; nil if there is none.
func Previous(folder string) (*Report, error) {
	content, err := os.ReadFile(filepath.Join(folder, ReportFile)) //nolint:gosec // the user names the folder
	if os.IsNotExist(err) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was rendered before: %w", err)
	}
	report := &Report{}
	if err := json.Unmarshal(content, report); err != nil {
		return nil, fmt.Errorf("reading what was rendered before in %q: %w", filepath.Join(folder, ReportFile), err)
	}
	return report, nil
}

// Compare adds what differs from an older report.
func (r *Report) Compare(older *Report) {
	r.Changes, r.compared = plan.Explain(&older.Inputs, &r.Inputs), true
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	t := &text{}
	t.line("Image of pool %s", r.Pool)
	t.line("  build key         %s", r.Keys.Build)
	t.line("  content key       %s", r.Keys.Content)
	t.line("  base image        %s", r.Base)
	if r.Extensions != "" {
		t.line("  extensions image  %s", r.Extensions)
	}
	t.line("  configuration     %s", r.MachineConfig)
	if len(r.Sources) > 0 {
		t.line("  joined from       %s", strings.Join(r.Sources, ", "))
	}
	for _, p := range r.Platforms {
		p.writeText(t)
	}
	t.list("Warnings", r.Warnings)
	t.list("Not used", r.Unused)
	if r.compared {
		t.list("Changed since the last time", phrases(r.Changes))
		if len(r.Changes) == 0 {
			t.line("\nThe same image as the last time: nothing would be built.")
		}
	}
	_, err := io.WriteString(w, t.String())
	return err
}

func (p *PlatformReport) writeText(t *text) {
	t.line("\n%s", p.Architecture)
	if p.Containerfile == "" {
		t.line("  nothing is built: the configuration is appended to the base image")
	} else {
		t.line("  %s: %s", p.Strategy, p.Reason)
		t.list("  pulled for the build", p.Images)
	}
	details := "made when the content is built"
	if p.Layer.DiffID != "" {
		details = fmt.Sprintf("%d entries, %d bytes, %s", p.Layer.Entries, p.Layer.Bytes, p.Layer.DiffID)
	}
	t.list(fmt.Sprintf("  in the configuration layer (%s)", details), p.Layer.Items)
	t.list("  expected of the Containerfile and extensions, because the base image does not have it", p.Layer.Expected)
	t.list("  applied by each node, not in the image", p.NodeState)
	t.list("  about the Containerfile", p.Findings)
	t.list("  notices", p.Notices)
}

func phrases(changes []plan.Change) []string {
	all := make([]string, len(changes))
	for i, change := range changes {
		all[i] = change.String()
	}
	return all
}

// text is what is being written.
type text struct{ strings.Builder }

func (t *text) line(format string, args ...any) {
	_, _ = fmt.Fprintf(t, format+"\n", args...) // a builder takes everything
}

// list writes a title and lines below it; nothing for no lines.
func (t *text) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	indent := title[:len(title)-len(strings.TrimLeft(title, " "))]
	if indent == "" {
		t.line("")
	}
	t.line("%s:", title)
	for _, line := range lines {
		t.line("%s  %s", indent, strings.ReplaceAll(line, "\n", "\n  "+indent))
	}
}
