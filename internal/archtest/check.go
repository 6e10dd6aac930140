package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Package is what the rules need to know about one package of the module. Test files are left out.
type Package struct {
	// Path is the full import path.
	Path string
	// Imports are the packages that its files import.
	Imports []string
	// Graph is everything that it links, with the path that leads there; nil when no one asked for
	// it.
	Graph map[string][]string
	// ClockUses are the places that read or wait for the time, such as "plan.go:12: time.Now".
	ClockUses []string
	// HasPackageComment says that doc.go carries the package's comment.
	HasPackageComment bool
}

// Violation is one place where a rule is broken.
type Violation struct {
	Rule   Rule
	Path   string
	Detail string
}

// String is the message that a person gets.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s\n\trule: %s\n\tbecause %s", v.Path, v.Detail, v.Rule.Name, v.Rule.Reason)
}

// Checker applies rules to the packages of one module.
type Checker struct {
	// Module is the module's path; patterns that start with "./" are relative to it.
	Module string
	Rules  []Rule
}

// Check returns every violation, in the order of rules and packages.
func (c Checker) Check(packages []Package) []Violation {
	var found []Violation
	for _, rule := range c.Rules {
		for _, p := range packages {
			if !c.matchesAny(p.Path, rule.From) || c.matchesAny(p.Path, rule.Except) {
				continue
			}
			for _, detail := range c.details(rule, p) {
				found = append(found, Violation{Rule: rule, Path: p.Path, Detail: detail})
			}
		}
	}
	return found
}

// NeedsGraph reports whether any rule looks at everything that the package links.
func (c Checker) NeedsGraph(path string) bool {
	return slices.ContainsFunc(c.Rules, func(rule Rule) bool {
		return rule.WholeGraph && c.matchesAny(path, rule.From) && !c.matchesAny(path, rule.Except)
	})
}

func (c Checker) details(rule Rule, p Package) []string {
	var details []string
	for _, imported := range p.Imports {
		switch {
		case c.matchesAny(imported, rule.Deny):
			details = append(details, "imports "+imported)
		case rule.AllowOwn != nil && c.isOwn(imported) && !c.matchesAny(imported, rule.AllowOwn) && !c.sameFolder(rule, p.Path, imported):
			details = append(details, "imports "+imported)
		}
	}
	if rule.WholeGraph {
		details = append(details, c.linked(rule, p)...)
	}
	if rule.NoClock {
		for _, use := range p.ClockUses {
			details = append(details, "uses the clock at "+use)
		}
	}
	if rule.PackageComment && !p.HasPackageComment {
		details = append(details, "has no package comment in doc.go")
	}
	return details
}

// linked names what is linked in against the rule; direct imports have been reported already.
func (c Checker) linked(rule Rule, p Package) []string {
	var details []string
	for dependency, way := range p.Graph {
		if c.matchesAny(dependency, rule.Deny) && !slices.Contains(p.Imports, dependency) {
			details = append(details, "links "+strings.Join(way, " -> "))
		}
	}
	slices.Sort(details)
	return details
}

// sameFolder allows a package the others in the folder that made the rule apply to it, as far as
// the rule is about them.
func (c Checker) sameFolder(rule Rule, path, imported string) bool {
	return !c.matchesAny(imported, rule.Except) && slices.ContainsFunc(rule.From, func(pattern string) bool {
		return c.matches(path, pattern) && c.matches(imported, pattern)
	})
}

func (c Checker) isOwn(path string) bool { return c.matches(path, "./...") }

func (c Checker) matchesAny(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return c.matches(path, pattern) })
}

// matches knows two patterns: a package, and "folder/..." for the folder and all below it.
func (c Checker) matches(path, pattern string) bool {
	if own, ok := strings.CutPrefix(pattern, "./"); ok {
		pattern = c.Module + "/" + own
	}
	folder, all := strings.CutSuffix(pattern, "/...")
	return path == folder || all && strings.HasPrefix(path, folder+"/")
}
