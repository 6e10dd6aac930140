package containerfiles

import (
	"slices"
	"strings"
)

// Install is a package that a RUN line asks for.
type Install struct {
	// Package is its name as it is written, which may be a path or have a version in it.
	Package string
	// Line counts from 1.
	Line int
}

// Installs lists the packages that RUN lines install, in the order of the file, as far as the text
// says: no variable is expanded, and what a script of its own installs is not seen.
func Installs(c *Containerfile) []Install {
	if c == nil {
		return nil
	}
	var found []Install
	for _, in := range c.instructions {
		if in.keyword != "RUN" {
			continue
		}
		for _, call := range in.calls(c) {
			if !isInstall(call) {
				continue
			}
			for _, word := range call.operands() {
				if word != call.verb() && word != "install" && !strings.ContainsAny(word, "$*") {
					found = append(found, Install{Package: word, Line: call.line})
				}
			}
		}
	}
	return found
}

// KernelPackages are the packages that another kernel cannot do without; nil for the default one
// and for kernels that are not known.
func KernelPackages(name KernelType) []string { return slices.Clone(kernels[name].packages) }
