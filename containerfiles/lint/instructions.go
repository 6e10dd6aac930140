package lint

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"

	"github.com/layerwright/layerwright/containerfiles"
)

// checkSyntax reports syntax errors of an instruction as findings, and whether there are none.
func (l *linting) checkSyntax(in *containerfiles.Instruction) bool {
	unknown := &instructions.UnknownInstructionError{}
	switch {
	case errors.As(in.Err, &unknown):
		l.report(in, containerfiles.ReasonUnknownInstruction, "unknown instruction: %q", containerfiles.Clip(in.Keyword))
	case isMissingArguments(in):
		l.report(in, containerfiles.ReasonMissingArguments, "%s wants arguments", in.Keyword)
	case in.Err != nil && slices.Contains([]string{"ENV", "LABEL", "ARG"}, in.Keyword):
		l.report(in, containerfiles.ReasonSyntax, "%s %v", in.Keyword, containerfiles.ErrPairs)
	case in.Err != nil:
		l.report(in, containerfiles.ReasonSyntax, "%s", containerfiles.Clean(in.Err.Error()))
	case in.Stage < 0 && in.Keyword != "ARG":
		l.report(in, containerfiles.ReasonBeforeFrom, "%s stands before the first FROM", in.Keyword)
	default:
		return true
	}
	return false
}

// isMissingArguments reports whether there is less than the instruction needs. RUN has the bodies
// of heredocs.
func isMissingArguments(in *containerfiles.Instruction) bool {
	switch in.Keyword {
	case "COPY", "ADD":
		return len(in.Args) < 2
	case "CMD", "ENTRYPOINT":
		return false // an empty one takes that of the base away
	case "HEALTHCHECK":
		return len(in.Args) == 0
	}
	return len(in.Args) == 0 || in.Args[0] == "" && len(in.Args) == 1 && in.Keyword != "ONBUILD"
}

// notes passes on what BuildKit's linter found while it read the instruction.
func (l *linting) notes(in *containerfiles.Instruction) {
	for _, n := range in.Notes {
		if n.Rule == linter.RuleMaintainerDeprecated.Name || n.Rule == linter.RuleStageNameCasing.Name {
			l.report(in, n.Rule, "%s", containerfiles.Clip(n.Text))
		}
	}
}

// continuation reports empty lines and doubled backslashes: tools differ about where the
// instruction ends.
func (l *linting) continuation(in *containerfiles.Instruction) {
	double := strings.Repeat(string(l.c.Escape), 2)
	for line := in.Line; line <= in.Header; line++ {
		text := l.c.Lines[line-1]
		bare := strings.TrimSpace(text)
		switch {
		case bare == "":
			l.reportLine(in, line, containerfiles.ReasonEmptyContinued, "an empty line in the middle of %s", in.Keyword)
		case bare[0] != '#' && strings.HasSuffix(strings.TrimRight(text, " \t"), double):
			l.reportLine(in, line, containerfiles.ReasonContinuation, "the line ends with %s", double)
		}
	}
}

// words checks the variables and the secrets in an instruction.
func (l *linting) words(in *containerfiles.Instruction) {
	switch cmd := in.Command.(type) {
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

func (l *linting) pair(in *containerfiles.Instruction, pair instructions.KeyValuePair) {
	if pair.NoDelim {
		l.report(in, containerfiles.ReasonLegacyKeyValue, "%s %s lacks an equals sign", in.Keyword, containerfiles.Clip(pair.Key))
	}
	if in.Keyword == "ENV" {
		l.secretName(in, pair.Key)
	}
	l.expandable(in, pair.Key)
	l.expandable(in, pair.Value)
}

func (l *linting) expandable(in *containerfiles.Instruction, word string) {
	if _, err := l.flagView(in).Expand(word); err != nil {
		l.report(in, containerfiles.ReasonSubstitution, "%s: %v", in.Keyword, err)
	}
}

// secretWords are the words in a variable's name that BuildKit's rule takes for a secret, and
// publicWords those that excuse it
// (docs.docker.com/reference/build-checks/secrets-used-in-arg-or-env).
var (
	secretWords = regexp.MustCompile(`(?i)(?:^|_)(?:apikey|auth|credentials?|key|passwd|password|pword|secret|token)(?:_|$)`)
	publicWords = regexp.MustCompile(`(?i)(?:^|_)(?:public|file|version)(?:_|$)`)
)

func (l *linting) secretName(in *containerfiles.Instruction, name string) {
	if secretWords.MatchString(name) && !publicWords.MatchString(name) {
		l.report(in, containerfiles.ReasonSecretVariable, "%s %s has the name of a secret", in.Keyword, containerfiles.Clip(name))
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

func (l *linting) secretText(in *containerfiles.Instruction) {
	for line := in.Line; line <= in.End; line++ {
		text := l.c.Lines[line-1]
		for _, secret := range secretForms {
			if strings.Contains(text, secret.hint) && secret.form.MatchString(text) {
				l.reportLine(in, line, containerfiles.ReasonSecretText, "%s has what looks like %s", in.Keyword, secret.name)
			}
		}
	}
}

var variableName = regexp.MustCompile(`\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))`)

// undefined finds variables that are set before the first FROM and were meant to be there inside of
// the stage.
func (l *linting) undefined(in *containerfiles.Instruction) {
	if in.Stage < 0 || in.Keyword == "FROM" || len(l.g.Globals.History) == 0 {
		return
	}
	text := in.Node.Original
	seen := map[string]bool{}
	for _, match := range variableName.FindAllStringSubmatch(text, -1) {
		name := match[1] + match[2]
		_, global := l.g.Globals.History[name]
		if !global || seen[name] || containerfiles.IsPlatformArg(name) || l.g.Views[in].Declared(name) || slices.Contains(containerfiles.PredefinedArgs, name) {
			continue
		}
		seen[name] = true
		if in.Keyword == "RUN" && strings.Contains(text, name+"=") {
			continue // the line sets it itself
		}
		l.report(in, containerfiles.ReasonUndefinedVar, "%s is declared before the first FROM only", name)
	}
}

// hostMeaning reports instructions that mean nothing on a node.
func (l *linting) hostMeaning(in *containerfiles.Instruction) {
	switch in.Keyword {
	case "ONBUILD":
		l.report(in, containerfiles.ReasonOnbuild, "ONBUILD has no meaning here")
	case "STOPSIGNAL", "USER", "VOLUME", "EXPOSE":
		for _, word := range in.Args {
			l.expandable(in, word)
		}
	}
	switch in.Keyword {
	case "STOPSIGNAL":
		l.signal(in)
		fallthrough
	case "VOLUME", "EXPOSE", "HEALTHCHECK":
		if l.g.Stages[in.Stage].Result {
			l.report(in, containerfiles.ReasonNoEffect, "%s has no effect on a node", in.Keyword)
		}
	case "CMD", "ENTRYPOINT":
		if l.g.Stages[in.Stage].Result && !isInit(in) {
			l.report(in, containerfiles.ReasonNotInit, "%s is not what a node starts", in.Keyword)
		}
	case "SHELL":
		l.report(in, containerfiles.ReasonShell, "SHELL changes what later lines mean")
	}
}

// signalName is what Buildah takes for STOPSIGNAL.
var signalName = regexp.MustCompile(`^(?:[1-9][0-9]?|(?i:(?:SIG)?(?:ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|` +
	`PWR|QUIT|SEGV|STKFLT|STOP|SYS|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|XFSZ|RTMIN(?:\+[0-9]+)?|RTMAX(?:-[0-9]+)?)))$`)

func (l *linting) signal(in *containerfiles.Instruction) {
	if signal, err := l.g.Views[in].Expand(in.Args[0]); err == nil && !signalName.MatchString(signal.Text) {
		l.report(in, containerfiles.ReasonSyntax, "STOPSIGNAL names no signal")
	}
}

// isInit reports whether CMD says what bootable images say.
func isInit(in *containerfiles.Instruction) bool {
	return in.Keyword == "CMD" && len(in.Args) == 1 && (in.Args[0] == "/sbin/init" || in.Args[0] == "/usr/sbin/init")
}

// isOctal reports whether Buildah takes a word for --chmod.
func isOctal(mode string) bool {
	_, err := strconv.ParseUint(mode, 8, 32)
	return err == nil
}
