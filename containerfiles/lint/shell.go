package lint

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/shell"
)

// shell checks the commands of a RUN instruction.
func (l *linting) shell(in *containerfiles.Instruction) {
	l.contextMounts(in)
	l.errexit(in)
	l.substitutedScript(in)
	calls := l.runs[in]
	for i, c := range calls {
		l.hostState(in, c)
		if l.g.Stages[in.Stage].Result {
			l.writes(in, c)
			l.kernel(in, c)
		}
		if i > 0 && c.Piped && isInterpreter(c) && isDownload(calls[i-1]) {
			l.reportLine(in, c.Line, containerfiles.ReasonPipeToShell, "a download goes straight into %s", c.Name())
		}
	}
}

// contextMounts checks bind mounts of the build context.
func (l *linting) contextMounts(in *containerfiles.Instruction) {
	for _, m := range in.Mounts() {
		_, elsewhere := m.Value("from")
		source, ok := m.Value("source", "src")
		if m.Kind != "bind" || elsewhere || !ok || strings.Contains(source, "$") || path.Clean("/"+source) == "/" {
			continue
		}
		if !containerfiles.InContext(l.opts.Context, source) {
			l.report(in, containerfiles.ReasonMissingFile, "RUN --mount: %s", notInContext(l.opts.Context, source))
		}
	}
}

func isDownload(c shell.Call) bool { return slices.Contains([]string{"curl", "wget"}, c.Name()) }

func isInterpreter(c shell.Call) bool {
	name := c.Name()
	return shell.IsShell(name) || strings.HasPrefix(name, "python") || slices.Contains([]string{"perl", "ruby", "node"}, name)
}

// substituted is a shell that runs the output of a download.
var substituted = regexp.MustCompile("\\b(?:(?:ba|da|z|k)?sh|eval|source|\\.)\\s+(?:-\\w+\\s+)*[\"']?(?:\\$\\(|<\\(|`)\\s*(?:curl|wget)\\b")

func (l *linting) substitutedScript(in *containerfiles.Instruction) {
	for line := in.Line; line <= in.End; line++ {
		text := l.c.Lines[line-1]
		if (strings.Contains(text, "curl") || strings.Contains(text, "wget")) && substituted.MatchString(text) {
			l.reportLine(in, line, containerfiles.ReasonPipeToShell, "a download is run as a script")
		}
	}
}

// errexit reports a heredoc of several commands that goes on after one of them failed.
func (l *linting) errexit(in *containerfiles.Instruction) {
	if len(in.Node.Heredocs) == 0 || !in.RunsHeredocs(slices.DeleteFunc(slices.Clone(l.runs[in]), func(c shell.Call) bool { return c.Line > in.Header })) {
		return
	}
	if strings.Contains(strings.Join(in.HeaderLines(l.c), " "), "-e") {
		return
	}
	commands, safe := 0, false
	for _, c := range l.runs[in] {
		if c.Line <= in.Header {
			continue
		}
		commands++
		safe = safe || setsErrexit(c)
	}
	body := in.HeredocLines(l.c)[0].Lines
	if len(body) > 0 && strings.HasPrefix(body[0], "#!") && strings.Contains(body[0], " -e") {
		safe = true
	}
	if commands > 1 && !safe {
		l.report(in, containerfiles.ReasonNoErrexit, "the script goes on after a command that failed")
	}
}

func setsErrexit(c shell.Call) bool {
	return c.Name() == "set" && slices.ContainsFunc(c.Words[1:], func(w string) bool {
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
func (l *linting) hostState(in *containerfiles.Instruction, c shell.Call) {
	name := c.Name()
	verbs, known := hostTools[name]
	switch {
	case known && (verbs == nil || slices.Contains(verbs, c.Verb())):
		l.reportLine(in, c.Line, containerfiles.ReasonHostCommand, "%s is for a running host", strings.TrimSpace(name+" "+pick(verbs, c.Verb())))
	case name == "setenforce":
		l.reportLine(in, c.Line, containerfiles.ReasonSELinux, "setenforce changes a running kernel")
	case name == "sysctl" && (c.Has("-w", "--write", "-p", "--system") || slices.ContainsFunc(c.Words[1:], isAssignment)):
		l.reportLine(in, c.Line, containerfiles.ReasonHostCommand, "sysctl sets values of the kernel that builds; write them to /usr/lib/sysctl.d")
	case name == "systemctl" && !slices.Contains(systemctlOffline, c.Verb()):
		l.reportLine(in, c.Line, containerfiles.ReasonNoSystemd, "systemctl %s wants a running systemd", containerfiles.Clip(c.Verb()))
	case name == "systemctl" && c.Has("--now"):
		l.reportLine(in, c.Line, containerfiles.ReasonNoSystemd, "systemctl --now wants a running systemd")
	case name == "service" && len(c.Words) > 2:
		l.reportLine(in, c.Line, containerfiles.ReasonNoSystemd, "service wants a running systemd")
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
func (l *linting) writes(in *containerfiles.Instruction, c shell.Call) {
	targets := slices.Clone(c.Writes)
	switch operands := c.Operands(); c.Name() {
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
		l.reportLine(in, c.Line, containerfiles.ReasonNotInImage, "%s writes below %s, which %s", writer(c), dir, why)
		return
	}
}

func writer(c shell.Call) string {
	if name := c.Name(); name != "" {
		return containerfiles.Clip(name)
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
func (l *linting) kernel(in *containerfiles.Instruction, c shell.Call) {
	if c.Name() == "rm" {
		for _, target := range c.Operands() {
			if slices.Contains([]string{"/usr/lib/modules", "/lib/modules"}, path.Clean(strings.TrimSuffix(target, "*"))) {
				l.reportLine(in, c.Line, containerfiles.ReasonKernelRemoved, "rm takes the kernel out of the image")
			}
		}
		return
	}
	if !slices.Contains(packageManagers, c.Name()) || !c.Has(removals...) || !slices.ContainsFunc(c.Operands(), kernelPackage.MatchString) {
		return
	}
	for _, other := range l.runs[in] {
		if slices.Contains(packageManagers, other.Name()) && installsKernel(other) {
			return
		}
	}
	l.reportLine(in, c.Line, containerfiles.ReasonKernelRemoved, "%s takes the kernel out of the image", c.Name())
}

func installsKernel(c shell.Call) bool {
	return c.Has("install", "swap", "replace", "--install", "-i", "-U", "-ivh", "-Uvh") ||
		slices.ContainsFunc(c.Words, func(w string) bool { return strings.HasPrefix(w, "--install=kernel") })
}
