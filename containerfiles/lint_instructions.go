package containerfiles

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
)

// isWhole reports what keeps an instruction from being understood at all.
func (l *linting) isWhole(in *instruction) bool {
	unknown := &instructions.UnknownInstructionError{}
	switch {
	case errors.As(in.err, &unknown):
		l.report(in, ReasonUnknownInstruction, "unknown instruction: %q", clip(in.keyword))
	case in.isMissingArguments():
		l.report(in, ReasonMissingArguments, "%s wants arguments", in.keyword)
	case in.err != nil && slices.Contains([]string{"ENV", "LABEL", "ARG"}, in.keyword):
		l.report(in, ReasonLegacyKeyValue, "%s %v", in.keyword, errPairs)
	case in.err != nil:
		l.report(in, ReasonSyntax, "%s", clean(in.err.Error()))
	case in.stage < 0 && in.keyword != "ARG":
		l.report(in, ReasonBeforeFrom, "%s stands before the first FROM", in.keyword)
	default:
		return true
	}
	return false
}

// isMissingArguments is whether there is less than the instruction needs. RUN has the bodies of
// heredocs.
func (in *instruction) isMissingArguments() bool {
	switch in.keyword {
	case "COPY", "ADD":
		return len(in.args) < 2
	case "CMD", "ENTRYPOINT":
		return false // an empty one takes that of the base away
	case "HEALTHCHECK":
		return len(in.args) == 0
	}
	return len(in.args) == 0 || in.args[0] == "" && len(in.args) == 1 && in.keyword != "ONBUILD"
}

// notes passes on what BuildKit's linter found while it read the instruction.
func (l *linting) notes(in *instruction) {
	for _, n := range in.notes {
		if n.rule == linter.RuleMaintainerDeprecated.Name || n.rule == linter.RuleStageNameCasing.Name {
			l.report(in, n.rule, "%s", clip(n.text))
		}
	}
}

// continuation reports empty lines and doubled backslashes: tools differ about where the
// instruction ends.
func (l *linting) continuation(in *instruction) {
	double := strings.Repeat(string(l.c.escape), 2)
	for line := in.line; line <= in.header; line++ {
		text := l.c.lines[line-1]
		bare := strings.TrimSpace(text)
		switch {
		case bare == "":
			l.reportLine(in, line, ReasonEmptyContinued, "an empty line in the middle of %s", in.keyword)
		case bare[0] != '#' && strings.HasSuffix(strings.TrimRight(text, " \t"), double):
			l.reportLine(in, line, ReasonContinuation, "the line ends with %s", double)
		}
	}
}

// words checks the variables and the secrets in an instruction.
func (l *linting) words(in *instruction) {
	switch cmd := in.command.(type) {
	case *instructions.EnvCommand:
		for _, pair := range cmd.Env {
			l.pair(in, pair)
		}
	case *instructions.LabelCommand:
		for _, pair := range cmd.Labels {
			l.pair(in, pair)
		}
	case *instructions.ArgCommand:
		for _, pair := range cmd.Args {
			l.secretName(in, pair.Key)
			l.expandable(in, pair.Key)
			l.expandable(in, pair.ValueString())
		}
	}
	l.secretText(in)
	l.undefined(in)
}

func (l *linting) pair(in *instruction, pair instructions.KeyValuePair) {
	if pair.NoDelim {
		l.report(in, ReasonLegacyKeyValue, "%s %s lacks an equals sign", in.keyword, clip(pair.Key))
		return
	}
	if in.keyword == "ENV" {
		l.secretName(in, pair.Key)
	}
	l.expandable(in, pair.Key)
	l.expandable(in, pair.Value)
}

func (l *linting) expandable(in *instruction, word string) {
	if _, err := l.flagView(in).expand(word); err != nil {
		l.report(in, ReasonSubstitution, "%s: %v", in.keyword, err)
	}
}

// secretWords are the words in a variable's name that BuildKit's rule takes for a secret, and
// publicWords those that excuse it
// (docs.docker.com/reference/build-checks/secrets-used-in-arg-or-env).
var (
	secretWords = regexp.MustCompile(`(?i)(?:^|_)(?:apikey|auth|credentials?|key|passwd|password|pword|secret|token)(?:_|$)`)
	publicWords = regexp.MustCompile(`(?i)(?:^|_)(?:public|file|version)(?:_|$)`)
)

func (l *linting) secretName(in *instruction, name string) {
	if secretWords.MatchString(name) && !publicWords.MatchString(name) {
		l.report(in, ReasonSecretVariable, "%s %s has the name of a secret", in.keyword, clip(name))
	}
}

// secretForms are texts that are secrets by their form. Only lines with the hint are looked at
// closely.
var secretForms = []struct {
	name, hint string
	form       *regexp.Regexp
}{
	{"a private key", "PRIVATE KEY-----", regexp.MustCompile(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----`)},
	{"an AWS access key", "IA", regexp.MustCompile(`\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`)},
	{"a GitHub token", "gh", regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{36}`)},
	{"a GitHub token", "github_pat_", regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{22}`)},
	{"a GitLab token", "glpat-", regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20}`)},
	{"a Slack token", "xox", regexp.MustCompile(`\bxox[abeoprs]-[A-Za-z0-9-]{10}`)},
	{"a JSON web token", "eyJ", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}`)},
	{"a password in a URL", "://", regexp.MustCompile(`\b[a-z][a-z0-9+.-]*://[^\s/:@'"$]+:[^\s/:@'"$]+@`)},
	{"a password hash", "$", regexp.MustCompile(`\$(?:1|2[aby]|5|6|y)\$[^\s:'"]{12,}`)},
}

func (l *linting) secretText(in *instruction) {
	for line := in.line; line <= in.end; line++ {
		text := l.c.lines[line-1]
		for _, secret := range secretForms {
			if strings.Contains(text, secret.hint) && secret.form.MatchString(text) {
				l.reportLine(in, line, ReasonSecretText, "%s has what looks like %s", in.keyword, secret.name)
			}
		}
	}
}

var variableName = regexp.MustCompile(`\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))`)

// undefined finds variables that are set before the first FROM and were meant to be there inside of
// the stage.
func (l *linting) undefined(in *instruction) {
	if in.stage < 0 || in.keyword == "FROM" || len(l.g.globals.history) == 0 {
		return
	}
	text := in.node.Original
	seen := map[string]bool{}
	for _, match := range variableName.FindAllStringSubmatch(text, -1) {
		name := match[1] + match[2]
		_, global := l.g.globals.history[name]
		if !global || seen[name] || isPlatformArg(name) || l.g.views[in].declared(name) || slices.Contains(predefinedArgs, name) {
			continue
		}
		seen[name] = true
		if in.keyword == "RUN" && strings.Contains(text, name+"=") {
			continue // the line sets it itself
		}
		l.report(in, ReasonUndefinedVar, "%s is declared before the first FROM only", name)
	}
}

// hostMeaning reports instructions that mean nothing on a node.
func (l *linting) hostMeaning(in *instruction) {
	switch in.keyword {
	case "ONBUILD":
		l.report(in, ReasonOnbuild, "ONBUILD has no meaning here")
	case "STOPSIGNAL", "USER", "VOLUME", "EXPOSE":
		for _, word := range in.args {
			l.expandable(in, word)
		}
	}
	switch in.keyword {
	case "STOPSIGNAL":
		l.signal(in)
		fallthrough
	case "VOLUME", "EXPOSE", "HEALTHCHECK":
		if l.g.stages[in.stage].result {
			l.report(in, ReasonNoEffect, "%s has no effect on a node", in.keyword)
		}
	case "CMD", "ENTRYPOINT":
		if l.g.stages[in.stage].result && !isInit(in) {
			l.report(in, ReasonNotInit, "%s is not what a node starts", in.keyword)
		}
	case "SHELL":
		l.report(in, ReasonShell, "SHELL changes what later lines mean")
	}
}

// signalName is what Buildah takes for STOPSIGNAL.
var signalName = regexp.MustCompile(`^(?:[1-9][0-9]?|(?i:(?:SIG)?(?:ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|` +
	`PWR|QUIT|SEGV|STKFLT|STOP|SYS|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|XFSZ|RTMIN(?:\+[0-9]+)?|RTMAX(?:-[0-9]+)?)))$`)

func (l *linting) signal(in *instruction) {
	if signal, err := l.g.views[in].expand(in.args[0]); err == nil && !signalName.MatchString(signal.text) {
		l.report(in, ReasonSyntax, "STOPSIGNAL names no signal")
	}
}

// isInit is whether CMD says what bootable images say.
func isInit(in *instruction) bool {
	return in.keyword == "CMD" && len(in.args) == 1 && (in.args[0] == "/sbin/init" || in.args[0] == "/usr/sbin/init")
}

// isOctal is whether Buildah takes a word for --chmod.
func isOctal(mode string) bool {
	_, err := strconv.ParseUint(mode, 8, 32)
	return err == nil
}
