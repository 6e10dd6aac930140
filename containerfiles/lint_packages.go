package containerfiles

import (
	"slices"
	"strings"
)

// packages reports package managers whose leavings stay in the image.
func (l *linting) packages() {
	for _, in := range l.c.instructions {
		if in.keyword != "RUN" || in.stage < 0 || !l.g.stages[in.stage].result || keepsCacheOutside(in) {
			continue
		}
		for _, c := range l.runs[in] {
			if isInstall(c) && !l.cleansUp(in, c.name()) {
				l.reportLine(in, c.line, ReasonPackageCache, "%s leaves its cache in the image", c.name())
				break
			}
		}
	}
}

// keepsCacheOutside is whether a mount keeps the cache out of the image.
func keepsCacheOutside(in *instruction) bool {
	return slices.ContainsFunc(in.mounts(), func(m mount) bool {
		target, _ := m.value("target", "dst", "destination")
		return m.kind != "bind" && strings.HasPrefix(target, "/var/cache")
	})
}

func isInstall(c call) bool {
	switch c.name() {
	case "dnf", "dnf5", "yum", "microdnf":
		return slices.Contains([]string{"install", "update", "upgrade", "reinstall", "swap", "groupinstall", "distro-sync", "builddep"}, c.verb()) ||
			(c.verb() == "group" || c.verb() == "module") && c.has("install")
	case "rpm-ostree":
		return c.verb() == "install" || c.verb() == "override" || c.verb() == "replace"
	case "apt-get", "apt":
		return c.verb() == "install" || c.verb() == "upgrade" || c.verb() == "dist-upgrade"
	default:
		return false
	}
}

// cleansUp is whether the RUN instruction removes what the package manager leaves.
func (l *linting) cleansUp(in *instruction, manager string) bool {
	return slices.ContainsFunc(l.runs[in], func(c call) bool {
		switch name := c.name(); {
		case name == "ostree" && c.verb() == "container":
			return true
		case manager == "rpm-ostree":
			return name == "rpm-ostree" && c.verb() == "cleanup" || c.removes("/var/cache/rpm-ostree", "/var/cache")
		case strings.HasPrefix(manager, "apt"):
			return c.removes("/var/lib/apt", "/var/lib/apt/lists", "/var/cache")
		default:
			return slices.Contains([]string{"dnf", "dnf5", "yum", "microdnf"}, name) && c.verb() == "clean" ||
				c.removes("/var/cache/dnf", "/var/cache/yum", "/var/cache/libdnf5", "/var/cache")
		}
	})
}

// removes is whether rm gets one of the directories, or everything in it.
func (c call) removes(dirs ...string) bool {
	if c.name() != "rm" {
		return false
	}
	return slices.ContainsFunc(c.operands(), func(target string) bool {
		return slices.Contains(dirs, strings.TrimRight(target, "/*"))
	})
}

// commits reports rpm-ostree without what it wants at its end, in the same instruction or below.
func (l *linting) commits() {
	var open *instruction
	var line int
	for _, in := range l.c.instructions {
		if in.keyword != "RUN" || in.stage < 0 || !l.g.stages[in.stage].result {
			continue
		}
		for _, c := range l.runs[in] {
			switch {
			case c.name() == "rpm-ostree" && isInstall(c):
				if open == nil {
					open, line = in, c.line
				}
			case isCommit(c):
				open = nil
			}
		}
	}
	if open != nil {
		l.reportLine(open, line, ReasonNoCommit, "no ostree container commit follows rpm-ostree")
	}
}

func isCommit(c call) bool { return c.name() == "ostree" && c.verb() == "container" && c.has("commit") }

func isLint(c call) bool { return c.name() == "bootc" && c.verb() == "container" && c.has("lint") }

// finalCheck advises to end the last stage with a check, where the stage has content.
func (l *linting) finalCheck() {
	var last *instruction
	for _, in := range l.c.instructions {
		if in.stage == len(l.c.stages)-1 && slices.Contains([]string{"RUN", "COPY", "ADD"}, in.keyword) {
			last = in
		}
	}
	if last == nil || slices.ContainsFunc(l.runs[last], func(c call) bool { return isCommit(c) || isLint(c) }) {
		return
	}
	l.reportLines(last, [2]int{last.line, last.end}, ReasonFinalCheck, "the last stage does not end with a check")
}
