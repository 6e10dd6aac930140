package lint

import (
	"slices"
	"strings"

	"github.com/layerwright/layerwright/containerfiles"
)

// from checks a FROM instruction by itself; what it names is checked with all other names.
func (l *linting) from(in *containerfiles.Instruction) {
	l.stageName(in, l.stages[in.Stage].Name)
	l.platform(in)
}

func (l *linting) stageName(in *containerfiles.Instruction, name string) {
	_, offered := containerfiles.OfferedStage(name)
	switch same := l.g.ByName[strings.ToLower(name)]; {
	case name == "" || offered && l.opts.Rendered:
	case offered || strings.EqualFold(name, "scratch"):
		l.report(in, containerfiles.ReasonReservedStageName, "the stage is named %q", containerfiles.Clip(name))
	case same[0] != in.Stage:
		first := l.stages[same[0]]
		l.report(in, containerfiles.ReasonDuplicateStageName, "there is a stage %q already, on line %d", containerfiles.Clip(first.Name), first.Line)
	}
}

// platform compares FROM --platform with the node's.
func (l *linting) platform(in *containerfiles.Instruction) {
	machine := containerfiles.GoArch(l.opts.Architecture)
	platform := l.g.Stages[in.Stage].Platform
	if _, ok := in.Value("platform"); !ok || machine == "" {
		return
	}
	if platform != machine && platform != "linux/"+machine && !strings.HasPrefix(platform, "linux/"+machine+"/") {
		l.report(in, containerfiles.ReasonPlatform, "the platform is %q, and the nodes are linux/%s", containerfiles.Clip(platform), machine)
	}
}

// file runs the checks that are about the file as a whole.
func (l *linting) file() {
	if l.c.Empty() {
		return
	}
	for _, u := range l.g.Uses {
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
func (l *linting) use(u containerfiles.Use) {
	switch u.Kind {
	case containerfiles.KindWrong:
		if u.Reason == containerfiles.ReasonMissingArguments || u.In.Err != nil {
			return // reported with the instruction
		}
		l.report(u.In, u.Reason, "%s: %v", u.In.Keyword, u.Err)
	case containerfiles.KindImage:
		l.image(u)
	case containerfiles.KindStage, containerfiles.KindOffered, containerfiles.KindScratch:
	}
}

func (l *linting) image(u containerfiles.Use) {
	img, err := containerfiles.ParseImage(u.Text)
	if err != nil {
		return // a name of kind isImage was parsed before
	}
	if img.Short {
		l.report(u.In, containerfiles.ReasonShortImage, "%q has no registry", containerfiles.Clip(u.Text))
	}
	if img.Digest == "" && (img.Tag == "" || img.Tag == "latest") {
		l.report(u.In, containerfiles.ReasonUnpinnedImage, "%q is whatever is newest", containerfiles.Clip(u.Text))
	}
}

// result reports a file whose last stage starts from none of the offered ones.
func (l *linting) result() {
	last := l.stages[len(l.stages)-1]
	if l.opts.Rendered {
		for i, s := range l.stages {
			if _, ok := containerfiles.OfferedStage(s.Name); ok && l.g.Stages[i].Result {
				return
			}
		}
	}
	if l.g.Origin().Kind == containerfiles.KindWrong {
		return // reported with the instruction
	}
	if stage, reason := l.g.Strategy(); stage == "" {
		l.reportLines(nil, [2]int{last.Line, last.EndLine}, containerfiles.ReasonNotOffered, reason+", and not from "+containerfiles.OfferedNames)
	}
}

// unusedStages reports stages that Buildah skips.
func (l *linting) unusedStages() {
	if l.opts.Rendered {
		return
	}
	needed := l.g.Needed()
	for i, s := range slices.Backward(l.stages) {
		if !needed[i] {
			l.reportLines(nil, [2]int{s.Line, s.EndLine}, containerfiles.ReasonUnusedStage, "the image needs nothing of this stage")
		}
	}
}

// user reports a result whose last USER is not root.
func (l *linting) user() {
	var last *containerfiles.Instruction
	for _, in := range l.c.Instructions {
		if in.Keyword == "USER" && in.Stage >= 0 && l.g.Stages[in.Stage].Result && in.Err == nil && len(in.Args) == 1 {
			last = in
		}
	}
	if last == nil {
		return
	}
	user, err := l.g.Views[last].Expand(last.Args[0])
	name, _, _ := strings.Cut(user.Text, ":")
	if err == nil && !slices.Contains([]string{"root", "0"}, name) {
		l.report(last, containerfiles.ReasonUser, "the image ends with USER %s", containerfiles.Clip(user.Text))
	}
}
