package containerfiles

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// shell checks the commands of a RUN instruction.
func (l *linting) shell(in *instruction) {
	l.contextMounts(in)
	l.errexit(in)
	l.substitutedScript(in)
	calls := l.runs[in]
	for i, c := range calls {
		l.hostState(in, c)
		if l.g.stages[in.stage].result {
			l.writes(in, c)
			l.kernel(in, c)
		}
		if i > 0 && c.piped && isInterpreter(c) && isDownload(calls[i-1]) {
			l.reportLine(in, c.line, ReasonPipeToShell, "a download goes straight into %s", c.name())
		}
	}
}

// contextMounts checks bind mounts of the build context.
func (l *linting) contextMounts(in *instruction) {
	for _, m := range in.mounts() {
		_, elsewhere := m.value("from")
		source, ok := m.value("source", "src")
		if m.kind != "bind" || elsewhere || !ok || strings.Contains(source, "$") || path.Clean("/"+source) == "/" {
			continue
		}
		if !inContext(l.opts.Context, source) {
			l.report(in, ReasonMissingFile, "RUN --mount: %s", notInContext(l.opts.Context, source))
		}
	}
}

func isDownload(c call) bool { return slices.Contains([]string{"curl", "wget"}, c.name()) }

func isInterpreter(c call) bool {
	name := c.name()
	return isShell(name) || strings.HasPrefix(name, "python") || slices.Contains([]string{"perl", "ruby", "node"}, name)
}

// substituted is a shell that runs the output of a download.
var substituted = regexp.MustCompile("\\b(?:(?:ba|da|z|k)?sh|eval|source|\\.)\\s+(?:-\\w+\\s+)*[\"']?(?:\\$\\(|<\\(|`)\\s*(?:curl|wget)\\b")

func (l *linting) substitutedScript(in *instruction) {
	for line := in.line; line <= in.end; line++ {
		text := l.c.lines[line-1]
		if (strings.Contains(text, "curl") || strings.Contains(text, "wget")) && substituted.MatchString(text) {
			l.reportLine(in, line, ReasonPipeToShell, "a download is run as a script")
		}
	}
}

// errexit reports a heredoc of several commands that goes on after one of them failed.
func (l *linting) errexit(in *instruction) {
	if len(in.node.Heredocs) == 0 || !in.runsHeredocs(slices.DeleteFunc(slices.Clone(l.runs[in]), func(c call) bool { return c.line > in.header })) {
		return
	}
	if strings.Contains(strings.Join(in.headerLines(l.c), " "), "-e") {
		return
	}
	commands, safe := 0, false
	for _, c := range l.runs[in] {
		if c.line <= in.header {
			continue
		}
		commands++
		safe = safe || setsErrexit(c)
	}
	body := in.heredocLines(l.c)[0].lines
	if len(body) > 0 && strings.HasPrefix(body[0], "#!") && strings.Contains(body[0], " -e") {
		safe = true
	}
	if commands > 1 && !safe {
		l.report(in, ReasonNoErrexit, "the script goes on after a command that failed")
	}
}

func setsErrexit(c call) bool {
	return c.name() == "set" && slices.ContainsFunc(c.words[1:], func(w string) bool {
		return w == "errexit" || strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.Contains(w, "e")
	})
}

// hostTools are programs that need a running host, with the sub-commands that do; none stands for
// all.
var hostTools = map[string][]string{
	"rpm-ostree":     {"kargs", "upgrade", "rebase", "rollback", "deploy", "apply-live", "reset", "status"},
	"bootc":          {"switch", "upgrade", "update", "rollback", "status", "install"},
	"grubby":         nil,
	"grub2-mkconfig": nil,
	"hostnamectl":    nil,
	"timedatectl":    nil,
	"localectl":      nil,
	"loginctl":       nil,
	"firewall-cmd":   nil,
	"nmcli":          nil,
	"modprobe":       nil,
	"insmod":         nil,
	"reboot":         nil,
	"shutdown":       nil,
	"poweroff":       nil,
	"halt":           nil,
}

// systemctlOffline are what systemctl can do without systemd.
var systemctlOffline = []string{
	"enable", "disable", "reenable", "mask", "unmask", "preset", "preset-all", "set-default", "get-default", "link", "add-wants",
	"add-requires", "is-enabled", "cat", "edit", "list-unit-files", "revert", "",
}

// hostState reports what acts on a running host.
func (l *linting) hostState(in *instruction, c call) {
	name := c.name()
	verbs, known := hostTools[name]
	switch {
	case known && (verbs == nil || slices.Contains(verbs, c.verb())):
		l.reportLine(in, c.line, ReasonHostCommand, "%s is for a running host", strings.TrimSpace(name+" "+pick(verbs, c.verb())))
	case name == "setenforce":
		l.reportLine(in, c.line, ReasonSELinux, "setenforce changes a running kernel")
	case name == "sysctl" && (c.has("-w", "--write", "-p", "--system") || slices.ContainsFunc(c.words[1:], isAssignment)):
		l.reportLine(in, c.line, ReasonHostCommand, "sysctl sets values of the kernel that builds; write them to /usr/lib/sysctl.d")
	case name == "systemctl" && !slices.Contains(systemctlOffline, c.verb()):
		l.reportLine(in, c.line, ReasonNoSystemd, "systemctl %s wants a running systemd", clip(c.verb()))
	case name == "systemctl" && c.has("--now"):
		l.reportLine(in, c.line, ReasonNoSystemd, "systemctl --now wants a running systemd")
	case name == "service" && len(c.words) > 2:
		l.reportLine(in, c.line, ReasonNoSystemd, "service wants a running systemd")
	}
}

func isAssignment(word string) bool {
	return strings.Contains(word, "=") && !strings.HasPrefix(word, "-")
}

func pick(verbs []string, verb string) string {
	if verbs == nil {
		return ""
	}
	return verb
}

// writes reports commands that make something where a node takes nothing from an image. What is
// read, and scratch files in /tmp, /run and /var/tmp, are left alone.
func (l *linting) writes(in *instruction, c call) {
	targets := slices.Clone(c.writes)
	switch operands := c.operands(); c.name() {
	case "mkdir", "touch", "tee":
		targets = append(targets, operands...)
	case "cp", "mv", "install", "ln", "rsync":
		if len(operands) > 1 {
			targets = append(targets, operands[len(operands)-1])
		}
	}
	for _, target := range targets {
		dir, why, lost := lostPath(target)
		if !lost || !path.IsAbs(target) || isScratchPath(target) || strings.Contains(target, "$") {
			continue
		}
		l.reportLine(in, c.line, ReasonNotInImage, "%s writes below %s, which %s", writer(c), dir, why)
		return
	}
}

func writer(c call) string {
	if name := c.name(); name != "" {
		return clip(name)
	}
	return "the line"
}

func isScratchPath(name string) bool {
	for _, dir := range []string{"/tmp", "/run", "/var/tmp", "/var/cache", "/dev"} {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

var (
	packageManagers = []string{"dnf", "dnf5", "yum", "microdnf", "rpm-ostree", "rpm"}
	removals        = []string{"remove", "erase", "uninstall", "autoremove", "-e", "--erase"}
	kernelPackage   = regexp.MustCompile(`^kernel(?:-(?:rt|64k))?(?:-(?:core|modules|modules-core))?\*?$`)
)

// kernel reports that the kernel is taken out and none put in.
func (l *linting) kernel(in *instruction, c call) {
	if c.name() == "rm" {
		for _, target := range c.operands() {
			if slices.Contains([]string{"/usr/lib/modules", "/lib/modules"}, path.Clean(strings.TrimSuffix(target, "*"))) {
				l.reportLine(in, c.line, ReasonKernelRemoved, "rm takes the kernel out of the image")
			}
		}
		return
	}
	if !slices.Contains(packageManagers, c.name()) || !c.has(removals...) || !slices.ContainsFunc(c.operands(), kernelPackage.MatchString) {
		return
	}
	for _, other := range l.runs[in] {
		if slices.Contains(packageManagers, other.name()) && installsKernel(other) {
			return
		}
	}
	l.reportLine(in, c.line, ReasonKernelRemoved, "%s takes the kernel out of the image", c.name())
}

func installsKernel(c call) bool {
	return c.has("install", "swap", "replace", "--install", "-i", "-U", "-ivh", "-Uvh") ||
		slices.ContainsFunc(c.words, func(w string) bool { return strings.HasPrefix(w, "--install=kernel") })
}
