package containerfiles

import (
	"slices"
	"strings"
)

// from checks a FROM instruction by itself; what it names is checked with all other names.
func (l *linting) from(in *instruction) {
	l.stageName(in, l.c.stages[in.stage].Name)
	l.platform(in)
}

func (l *linting) stageName(in *instruction, name string) {
	_, offered := offeredStage(name)
	switch same := l.g.byName[strings.ToLower(name)]; {
	case name == "" || offered && l.opts.Rendered:
	case offered || strings.EqualFold(name, "scratch"):
		l.report(in, ReasonReservedStageName, "the stage is named %q", clip(name))
	case same[0] != in.stage:
		first := l.c.stages[same[0]]
		l.report(in, ReasonDuplicateStageName, "there is a stage %q already, on line %d", clip(first.Name), first.Line)
	}
}

// platform compares FROM --platform with the node's.
func (l *linting) platform(in *instruction) {
	machine := GoArch(l.opts.Architecture)
	platform := l.g.stages[in.stage].platform
	if _, ok := in.value("platform"); !ok || machine == "" {
		return
	}
	if platform != machine && platform != "linux/"+machine && !strings.HasPrefix(platform, "linux/"+machine+"/") {
		l.report(in, ReasonPlatform, "the platform is %q, and the nodes are linux/%s", clip(platform), machine)
	}
}

// file runs the checks that are about the file as a whole.
func (l *linting) file() {
	if l.c.Empty() {
		return
	}
	if len(l.c.stages) == 0 {
		l.reportLines(nil, [2]int{}, ReasonNoFrom, "there is no FROM")
		return
	}
	for _, u := range l.g.uses {
		l.use(u)
	}
	l.result()
	l.unusedStages()
	l.user()
	l.packages()
	l.commits()
	l.finalCheck()
}

// use checks what a name stands for.
func (l *linting) use(u use) {
	switch u.kind {
	case isWrong:
		if u.reason == ReasonMissingArguments || u.in.err != nil {
			return // reported with the instruction
		}
		l.report(u.in, u.reason, "%s: %v", u.in.keyword, u.err)
	case isImage:
		l.image(u)
	case isStage, isOffered, isScratch:
	}
}

func (l *linting) image(u use) {
	img, err := parseImage(u.text)
	if err != nil {
		return // a name of kind isImage was parsed before
	}
	if img.short {
		l.report(u.in, ReasonShortImage, "%q has no registry", clip(u.text))
	}
	if img.digest == "" && (img.tag == "" || img.tag == "latest") {
		l.report(u.in, ReasonUnpinnedImage, "%q is whatever is newest", clip(u.text))
	}
}

// result reports a file whose last stage starts from none of the offered ones.
func (l *linting) result() {
	last := l.c.stages[len(l.c.stages)-1]
	if l.opts.Rendered {
		for i, s := range l.c.stages {
			if _, ok := offeredStage(s.Name); ok && l.g.stages[i].result {
				return
			}
		}
	}
	if l.g.origin().kind == isWrong {
		return // reported with the instruction
	}
	if stage, reason := l.g.strategy(); stage == "" {
		l.reportLines(nil, [2]int{last.Line, last.EndLine}, ReasonNotOffered, reason+", and not from "+offeredNames)
	}
}

// unusedStages reports stages that Buildah skips.
func (l *linting) unusedStages() {
	if l.opts.Rendered {
		return
	}
	needed := l.g.needed()
	for i, s := range slices.Backward(l.c.stages) {
		if !needed[i] {
			l.reportLines(nil, [2]int{s.Line, s.EndLine}, ReasonUnusedStage, "the image needs nothing of this stage")
		}
	}
}

// user reports a result whose last USER is not root.
func (l *linting) user() {
	var last *instruction
	for _, in := range l.c.instructions {
		if in.keyword == "USER" && in.stage >= 0 && l.g.stages[in.stage].result && in.err == nil && len(in.args) == 1 {
			last = in
		}
	}
	if last == nil {
		return
	}
	user, err := l.g.views[last].expand(last.args[0])
	name, _, _ := strings.Cut(user.text, ":")
	if err == nil && !slices.Contains([]string{"root", "0"}, name) {
		l.report(last, ReasonUser, "the image ends with USER %s", clip(user.text))
	}
}
