package lint

import (
	"slices"

	"github.com/layerwright/layerwright/containerfiles"
)

// flagForm is what may follow a flag's name.
type flagForm int

const (
	wantsValue flagForm = iota
	isSwitch            // --link, --link=true, --link=false
)

// buildahFlags are the flags of Buildah 1.45 and its imagebuilder 1.2.21. FROM --after is left out:
// it is Buildah's alone.
var buildahFlags = map[string]map[string]flagForm{
	"FROM":        {"platform": wantsValue},
	"RUN":         {"mount": wantsValue, "network": wantsValue},
	"COPY":        {"from": wantsValue, "chown": wantsValue, "chmod": wantsValue, "exclude": wantsValue, "link": isSwitch, "parents": isSwitch},
	"ADD":         {"chown": wantsValue, "chmod": wantsValue, "checksum": wantsValue, "exclude": wantsValue, "link": isSwitch, "keep-git-dir": isSwitch},
	"HEALTHCHECK": {"interval": wantsValue, "timeout": wantsValue, "start-period": wantsValue, "start-interval": wantsValue, "retries": wantsValue},
}

// repeatable are the flags that may be there more than once.
var repeatable = []string{"mount", "exclude"}

// buildahMounts are the options of RUN --mount by its type, in Buildah 1.45.
var buildahMounts = map[string][]string{
	"bind": {
		"type", "from", "source", "src", "target", "dst", "destination", "rw", "readwrite", "ro", "readonly", "bind-nonrecursive",
		"bind-propagation", "relabel", "consistency", "nosuid", "nodev", "noexec", "shared", "rshared", "private", "rprivate", "slave",
		"rslave", "Z", "z", "U", "no-dereference",
	},
	"cache": {
		"type", "from", "source", "src", "target", "dst", "destination", "rw", "readwrite", "ro", "readonly", "id", "sharing", "mode",
		"uid", "gid", "bind-propagation", "nosuid", "nodev", "noexec", "shared", "rshared", "private", "rprivate", "slave", "rslave", "Z",
		"z", "U",
	},
	"tmpfs": {
		"type", "target", "dst", "destination", "ro", "readonly", "tmpcopyup", "tmpfs-mode", "tmpfs-size", "nosuid", "nodev", "noexec",
	},
}

func (l *linting) flags(in *containerfiles.Instruction) {
	seen := map[string]bool{}
	for _, f := range in.Flags {
		form, known := buildahFlags[in.Keyword][f.Name]
		switch {
		case f.Name == "security" && in.Keyword == "RUN":
			l.report(in, containerfiles.ReasonInsecureRun, "RUN --security is not supported")
		case !known:
			l.report(in, containerfiles.ReasonUnsupportedFlag, "%s has no flag --%s", in.Keyword, containerfiles.Clip(f.Name))
		case form == wantsValue && f.Value == "":
			l.report(in, containerfiles.ReasonMissingArguments, "%s --%s wants a value", in.Keyword, f.Name)
		case form == isSwitch && f.HasValue && f.Value != "true" && f.Value != "false":
			l.report(in, containerfiles.ReasonUnsupportedFlag, "%s --%s is true or false", in.Keyword, f.Name)
		case seen[f.Name] && !slices.Contains(repeatable, f.Name):
			l.report(in, containerfiles.ReasonUnsupportedFlag, "%s has --%s twice", in.Keyword, f.Name)
		default:
			l.flagValue(in, f)
		}
		seen[f.Name] = true
	}
	for _, m := range in.Mounts() {
		l.mount(in, m)
	}
}

// flagValue checks what Buildah is stricter about than BuildKit.
func (l *linting) flagValue(in *containerfiles.Instruction, f containerfiles.Flag) {
	value, err := l.flagView(in).Expand(f.Value)
	switch {
	case err != nil && f.Name != "from": // which is checked with the other names
		l.report(in, containerfiles.ReasonSubstitution, "%s --%s: %v", in.Keyword, f.Name, err)
	case err == nil && value.Text == "" && f.Value != "" && f.Name != "from":
		l.report(in, containerfiles.ReasonMissingArguments, "%s --%s has a variable without a value", in.Keyword, f.Name)
	case f.Name == "chmod" && !isOctal(value.Text):
		l.report(in, containerfiles.ReasonUnsupportedFlag, "%s --chmod wants an octal number such as 0644", in.Keyword)
	case f.Name == "network" && value.Text == "host":
		l.report(in, containerfiles.ReasonHostNetwork, "RUN --network=host is not promised")
	case f.Name == "network" && value.Text != "default" && value.Text != "none":
		l.report(in, containerfiles.ReasonUnsupportedFlag, "RUN --network is default or none")
	}
}

// flagView is the variables that a flag sees.
func (l *linting) flagView(in *containerfiles.Instruction) containerfiles.View {
	if in.Keyword == "FROM" || in.Stage < 0 {
		return l.g.Globals.View()
	}
	return l.g.Views[in]
}

func (l *linting) mount(in *containerfiles.Instruction, m containerfiles.Mount) {
	switch m.Kind {
	case "secret", "ssh":
		l.report(in, containerfiles.ReasonSecretMount, "RUN --mount=type=%s: builds get no secrets", m.Kind)
		return
	}
	known, ok := buildahMounts[m.Kind]
	if !ok {
		l.report(in, containerfiles.ReasonUnsupportedMount, "RUN --mount has no type %q", containerfiles.Clip(m.Kind))
		return
	}
	for _, option := range m.Options {
		if !slices.Contains(known, option.Name) {
			l.report(in, containerfiles.ReasonUnsupportedMount, "RUN --mount=type=%s has no option %q", m.Kind, containerfiles.Clip(option.Name))
		}
	}
	if _, ok := m.Value("target", "dst", "destination"); !ok {
		l.report(in, containerfiles.ReasonMissingArguments, "RUN --mount=type=%s wants a target", m.Kind)
	}
	if sharing, ok := m.Value("sharing"); ok && sharing != "shared" && sharing != "locked" {
		l.report(in, containerfiles.ReasonUnsupportedMount, "RUN --mount=type=cache: sharing is shared or locked")
	}
}
