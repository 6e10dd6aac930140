package containerfiles

import (
	"slices"
	"strings"

	"github.com/layerwright/layerwright/containerfiles/shell"
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
	for _, in := range c.Instructions {
		if in.Keyword != "RUN" {
			continue
		}
		for _, call := range in.Calls(c) {
			if !IsInstall(call) {
				continue
			}
			for _, word := range call.Operands() {
				if word != call.Verb() && word != "install" && !strings.ContainsAny(word, "$*") {
					found = append(found, Install{Package: word, Line: call.Line})
				}
			}
		}
	}
	return found
}

// IsInstall reports whether a command installs packages.
func IsInstall(c shell.Call) bool {
	switch c.Name() {
	case "dnf", "dnf5", "yum", "microdnf":
		return slices.Contains([]string{"install", "update", "upgrade", "reinstall", "swap", "groupinstall", "distro-sync", "builddep"}, c.Verb()) ||
			(c.Verb() == "group" || c.Verb() == "module") && c.Has("install")
	case "rpm-ostree":
		return c.Verb() == "install" || c.Verb() == "override" || c.Verb() == "replace"
	case "apt-get", "apt":
		return c.Verb() == "install" || c.Verb() == "upgrade" || c.Verb() == "dist-upgrade"
	default:
		return false
	}
}
