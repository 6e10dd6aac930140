package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Report is what a move changes. As JSON it is for programs.
type Report struct {
	Pool string `json:"pool"`
	From OS     `json:"from"`
	To   OS     `json:"to"`
	// TrialImage is the image that was built for the other stream, by digest; empty where none was,
	// and then NotBuilt is why.
	TrialImage string `json:"trialImage,omitempty"`
	NotBuilt   string `json:"notBuilt,omitempty"`
	// Blockers are what has to be changed before the pool moves, Warnings what has to be looked at.
	Blockers []Finding `json:"blockers,omitempty"`
	Warnings []Finding `json:"warnings,omitempty"`
	// Packages are nil where one of the images has no package database.
	Packages *PackageChanges `json:"packages,omitempty"`
	// Config is how the configuration in the image changes, and Replaced which of its files take
	// the place of one that the OS images have in different versions.
	Config   []Change   `json:"config,omitempty"`
	Replaced []Replaced `json:"replaced,omitempty"`
}

// OS is one side of a move.
type OS struct {
	Stream  string   `json:"stream"`
	Image   string   `json:"image"`
	Name    string   `json:"name,omitempty"`
	Kernels []string `json:"kernels,omitempty"`
}

// Replaced is a file of the configuration in place of the OS's own.
type Replaced struct {
	Path   string `json:"path"`
	Object string `json:"object"`
}

func (r *Report) sort() {
	slices.SortFunc(r.Config, func(a, b Change) int { return cmp.Compare(a.What, b.What) })
	slices.SortFunc(r.Replaced, func(a, b Replaced) int { return cmp.Compare(a.Path, b.Path) })
	byPlace := func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Place, b.Place), cmp.Compare(a.Found, b.Found))
	}
	slices.SortStableFunc(r.Blockers, byPlace)
	slices.SortStableFunc(r.Warnings, byPlace)
}

// Summary is the report in one line.
func (r *Report) Summary() string {
	parts := []string{count(len(r.Blockers), "blocker"), count(len(r.Warnings), "warning")}
	if p := r.Packages; p != nil {
		parts = append(parts, fmt.Sprintf("packages: %d added, %d removed, %d upgraded, %d downgraded, %d the same",
			len(p.Added), len(p.Removed), len(p.Upgraded), len(p.Downgraded), p.Same))
	}
	if n := len(r.Config); n > 0 {
		parts = append(parts, count(n, "change")+" of the configuration")
	}
	return strings.Join(parts, "; ")
}

func count(n int, what string) string {
	switch n {
	case 0:
		return "no " + what + "s"
	case 1:
		return "1 " + what
	default:
		return fmt.Sprintf("%d %ss", n, what)
	}
}

// Text is the report for people. What matters most comes first.
func (r *Report) Text() string {
	t := &text{}
	t.line("Pool %s: from stream %s to %s", r.Pool, orNone(r.From.Stream), r.To.Stream)
	t.line("  %s", r.Summary())
	t.os("now", &r.From)
	t.os("then", &r.To)
	switch {
	case r.TrialImage != "":
		t.line("  trial image   %s", r.TrialImage)
	case r.NotBuilt != "":
		t.line("  not built: %s", r.NotBuilt)
	}
	t.findings("Blockers: change these before the pool moves", r.Blockers)
	t.findings("Warnings: look at these", r.Warnings)
	if r.Packages != nil {
		t.packages(r.Packages)
	}
	list(t, "Configuration in the image", r.Config, func(c Change) string { return c.What + " " + c.How })
	list(t, "Files that replace an OS file which differs between the streams", r.Replaced,
		func(c Replaced) string { return c.Path + " (" + c.Object + ")" })
	return t.String()
}

func orNone(stream string) string { return cmp.Or(stream, "(none)") }

// text is what is being written.
type text struct{ strings.Builder }

func (t *text) line(format string, args ...any) {
	_, _ = fmt.Fprintf(t, format+"\n", args...) // a builder takes everything
}

func (t *text) os(when string, os *OS) {
	t.line("  %-4s  image    %s", when, os.Image)
	if os.Name != "" {
		t.line("        system   %s", os.Name)
	}
	if len(os.Kernels) > 0 {
		t.line("        kernel   %s", strings.Join(os.Kernels, ", "))
	}
}

// where is the object and the place in it; empty where there is neither.
func (f *Finding) where() string {
	return strings.Join(slices.DeleteFunc([]string{f.Object, f.Place}, func(s string) bool { return s == "" }), ", ")
}

// Short is the finding in a few words: its rule, and where it is or else what.
func (f *Finding) Short() string { return f.Rule + ": " + cmp.Or(f.where(), f.Found) }

func (t *text) findings(title string, findings []Finding) {
	if len(findings) == 0 {
		return
	}
	t.line("\n%s", title)
	for _, f := range findings {
		where := f.where()
		if where != "" {
			where += ": "
		}
		t.line("  %s: %s%s", f.Rule, where, f.Found)
		t.line("    why  %s", f.Why)
		t.line("    fix  %s", f.Fix)
	}
}

func (t *text) packages(p *PackageChanges) {
	version := func(c PackageVersion) string { return fmt.Sprintf("%s %s -> %s", c.Name, c.Before, c.After) }
	name := func(c Package) string { return c.Name + " " + c.Version }
	list(t, "Packages downgraded", p.Downgraded, version)
	list(t, "Packages removed", p.Removed, name)
	list(t, "Packages added", p.Added, name)
	list(t, "Packages upgraded", p.Upgraded, version)
}

// list writes a title with the number of its lines, and the lines; nothing for no lines.
func list[T any](t *text, title string, items []T, say func(T) string) {
	if len(items) == 0 {
		return
	}
	t.line("\n%s (%d)", title, len(items))
	for _, item := range items {
		t.line("  %s", say(item))
	}
}
