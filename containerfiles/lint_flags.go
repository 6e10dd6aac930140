package containerfiles

import "slices"

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

func (l *linting) flags(in *instruction) {
	seen := map[string]bool{}
	for _, f := range in.flags {
		form, known := buildahFlags[in.keyword][f.name]
		switch {
		case f.name == "security" && in.keyword == "RUN":
			l.report(in, ReasonInsecureRun, "RUN --security is not supported")
		case !known:
			l.report(in, ReasonUnsupportedFlag, "%s has no flag --%s", in.keyword, clip(f.name))
		case form == wantsValue && f.value == "":
			l.report(in, ReasonMissingArguments, "%s --%s wants a value", in.keyword, f.name)
		case form == isSwitch && f.hasValue && f.value != "true" && f.value != "false":
			l.report(in, ReasonUnsupportedFlag, "%s --%s is true or false", in.keyword, f.name)
		case seen[f.name] && !slices.Contains(repeatable, f.name):
			l.report(in, ReasonUnsupportedFlag, "%s has --%s twice", in.keyword, f.name)
		default:
			l.flagValue(in, f)
		}
		seen[f.name] = true
	}
	for _, m := range in.mounts() {
		l.mount(in, m)
	}
}

// flagValue checks what Buildah is stricter about than BuildKit.
func (l *linting) flagValue(in *instruction, f flag) {
	value, err := l.flagView(in).expand(f.value)
	switch {
	case err != nil && f.name != "from": // which is checked with the other names
		l.report(in, ReasonSubstitution, "%s --%s: %v", in.keyword, f.name, err)
	case err == nil && value.text == "" && f.value != "" && f.name != "from":
		l.report(in, ReasonMissingArguments, "%s --%s has a variable without a value", in.keyword, f.name)
	case f.name == "chmod" && !isOctal(value.text):
		l.report(in, ReasonUnsupportedFlag, "%s --chmod wants an octal number such as 0644", in.keyword)
	case f.name == "network" && value.text == "host":
		l.report(in, ReasonHostNetwork, "RUN --network=host is not promised")
	case f.name == "network" && value.text != "default" && value.text != "none":
		l.report(in, ReasonUnsupportedFlag, "RUN --network is default or none")
	}
}

// flagView is the variables that a flag sees.
func (l *linting) flagView(in *instruction) view {
	if in.keyword == "FROM" || in.stage < 0 {
		return l.g.globals.view()
	}
	return l.g.views[in]
}

func (l *linting) mount(in *instruction, m mount) {
	switch m.kind {
	case "secret", "ssh":
		l.report(in, ReasonSecretMount, "RUN --mount=type=%s: builds get no secrets", m.kind)
		return
	}
	known, ok := buildahMounts[m.kind]
	if !ok {
		l.report(in, ReasonUnsupportedMount, "RUN --mount has no type %q", clip(m.kind))
		return
	}
	for _, option := range m.options {
		if !slices.Contains(known, option.name) {
			l.report(in, ReasonUnsupportedMount, "RUN --mount=type=%s has no option %q", m.kind, clip(option.name))
		}
	}
	if _, ok := m.value("target", "dst", "destination"); !ok {
		l.report(in, ReasonMissingArguments, "RUN --mount=type=%s wants a target", m.kind)
	}
	if sharing, ok := m.value("sharing"); ok && sharing != "shared" && sharing != "locked" {
		l.report(in, ReasonUnsupportedMount, "RUN --mount=type=cache: sharing is shared or locked")
	}
}
