package lint

import (
	"slices"
	"strings"

	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/shell"
)

// packages reports package managers whose leavings stay in the image.
func (l *linting) packages() {
	for _, in := range l.c.Instructions {
		if in.Keyword != "RUN" || in.Stage < 0 || !l.g.Stages[in.Stage].Result || keepsCacheOutside(in) {
			continue
		}
		for _, c := range l.runs[in] {
			if containerfiles.IsInstall(c) && !l.cleansUp(in, c.Name()) {
				l.reportLine(in, c.Line, containerfiles.ReasonPackageCache, "%s leaves its cache in the image", c.Name())
				break
			}
		}
	}
}

// keepsCacheOutside reports whether a mount keeps the cache out of the image.
func keepsCacheOutside(in *containerfiles.Instruction) bool {
	return slices.ContainsFunc(in.Mounts(), func(m containerfiles.Mount) bool {
		target, _ := m.Value("target", "dst", "destination")
		return m.Kind != "bind" && strings.HasPrefix(target, "/var/cache")
	})
}

// cleansUp reports whether the RUN instruction removes what the package manager leaves.
func (l *linting) cleansUp(in *containerfiles.Instruction, manager string) bool {
	return slices.ContainsFunc(l.runs[in], func(c shell.Call) bool {
		switch name := c.Name(); {
		case name == "ostree" && c.Verb() == "container":
			return true
		case manager == "rpm-ostree":
			return name == "rpm-ostree" && c.Verb() == "cleanup" || removes(c, "/var/cache/rpm-ostree", "/var/cache")
		case strings.HasPrefix(manager, "apt"):
			return removes(c, "/var/lib/apt", "/var/lib/apt/lists", "/var/cache")
		default:
			return slices.Contains([]string{"dnf", "dnf5", "yum", "microdnf"}, name) && c.Verb() == "clean" ||
				removes(c, "/var/cache/dnf", "/var/cache/yum", "/var/cache/libdnf5", "/var/cache")
		}
	})
}

// removes reports whether rm gets one of the directories, or everything in it.
func removes(c shell.Call, dirs ...string) bool {
	if c.Name() != "rm" {
		return false
	}
	return slices.ContainsFunc(c.Operands(), func(target string) bool {
		return slices.Contains(dirs, strings.TrimRight(target, "/*"))
	})
}

// commits reports rpm-ostree without what it wants at its end, in the same instruction or below.
func (l *linting) commits() {
	var open *containerfiles.Instruction
	var line int
	for _, in := range l.c.Instructions {
		if in.Keyword != "RUN" || in.Stage < 0 || !l.g.Stages[in.Stage].Result {
			continue
		}
		for _, c := range l.runs[in] {
			switch {
			case c.Name() == "rpm-ostree" && containerfiles.IsInstall(c):
				if open == nil {
					open, line = in, c.Line
				}
			case isCommit(c):
				open = nil
			}
		}
	}
	if open != nil {
		l.reportLine(open, line, containerfiles.ReasonNoCommit, "no ostree container commit follows rpm-ostree")
	}
}

func isCommit(c shell.Call) bool {
	return c.Name() == "ostree" && c.Verb() == "container" && c.Has("commit")
}

func isLint(c shell.Call) bool {
	return c.Name() == "bootc" && c.Verb() == "container" && c.Has("lint")
}

// finalCheck advises to end the last stage with a check, where the stage has content.
func (l *linting) finalCheck() {
	var last *containerfiles.Instruction
	for _, in := range l.c.Instructions {
		if in.Stage == len(l.stages)-1 && slices.Contains([]string{"RUN", "COPY", "ADD"}, in.Keyword) {
			last = in
		}
	}
	if last == nil || slices.ContainsFunc(l.runs[last], func(c shell.Call) bool { return isCommit(c) || isLint(c) }) {
		return
	}
	l.reportLines(last, [2]int{last.Line, last.End}, containerfiles.ReasonFinalCheck, "the last stage does not end with a check")
}
