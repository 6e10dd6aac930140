package lint

import (
	"path"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/layerwright/layerwright/containerfiles"
)

// notInImage are the directories that a node does not take from an image, with what happens
// instead. On ostree systems the second half of them are links into /var (docs/config-layer.md).
var notInImage = []struct{ dir, why string }{
	{"/var", "is the node's own; an image's /var only seeds a first boot"},
	{"/run", "is empty on each boot"},
	{"/tmp", "is empty on each boot"},
	{"/boot", "is written by the boot loader's tools"},
	{"/proc", "is the kernel's"},
	{"/sys", "is the kernel's"},
	{"/dev", "is the kernel's"},
	{"/home", "is a link into /var"},
	{"/root", "is a link into /var"},
	{"/opt", "is a link into /var on most systems"},
	{"/srv", "is a link into /var"},
	{"/mnt", "is a link into /var"},
	{"/media", "is a link into /run"},
	{"/usr/local", "is a link into /var on most systems"},
}

// lostPath is the directory that keeps a path out of the node, if there is one.
func lostPath(name string) (dir, why string, lost bool) {
	name = path.Clean("/" + name)
	for _, n := range notInImage {
		if name == n.dir || strings.HasPrefix(name, n.dir+"/") {
			return n.dir, n.why, true
		}
	}
	return "", "", false
}

// destination checks where COPY and ADD write to.
func (l *linting) destination(in *containerfiles.Instruction) {
	if len(in.Args) < 2 || !l.g.Stages[in.Stage].Result {
		return
	}
	dest, err := l.g.Views[in].Expand(in.Args[len(in.Args)-1])
	if err != nil {
		l.report(in, containerfiles.ReasonSubstitution, "%s: %v", in.Keyword, err)
		return
	}
	name := dest.Text
	if !path.IsAbs(name) {
		name = path.Join(l.workdirAt(in), name)
	}
	if dir, why, lost := lostPath(name); lost && len(dest.Unknown) == 0 {
		l.report(in, containerfiles.ReasonNotInImage, "%s writes below %s, which %s", in.Keyword, dir, why)
	}
}

// workdir checks WORKDIR, which makes the directory.
func (l *linting) workdir(in *containerfiles.Instruction) {
	dir, err := l.g.Views[in].Expand(in.Args[0])
	if err != nil {
		l.report(in, containerfiles.ReasonSubstitution, "WORKDIR: %v", err)
		return
	}
	if !path.IsAbs(dir.Text) && l.workdirAt(in) == "" && len(dir.Unknown) == 0 {
		l.report(in, containerfiles.ReasonRelativeWorkdir, "WORKDIR %q does not begin with /", containerfiles.Clip(dir.Text))
	}
	scratch := slices.Contains([]string{"/tmp", "/var/tmp"}, path.Clean(dir.Text)) // there already, and meant for this
	if below, why, lost := lostPath(dir.Text); lost && path.IsAbs(dir.Text) && !scratch && l.g.Stages[in.Stage].Result {
		l.report(in, containerfiles.ReasonNotInImage, "WORKDIR is below %s, which %s", below, why)
	}
}

// workdirAt is the directory that a stage of the file has set before an instruction; empty where
// only the base image knows.
func (l *linting) workdirAt(at *containerfiles.Instruction) string {
	if l.workdirs == nil {
		l.findWorkdirs()
	}
	return l.workdirs[at]
}

func (l *linting) findWorkdirs() {
	l.workdirs = map[*containerfiles.Instruction]string{}
	ends := make([]string, len(l.g.Stages))
	for _, in := range l.c.Instructions {
		if in.Stage < 0 {
			continue
		}
		if base := l.g.Stages[in.Stage].Base; in.Keyword == "FROM" && base.Kind == containerfiles.KindStage {
			ends[in.Stage] = ends[base.Stage]
		}
		l.workdirs[in] = ends[in.Stage]
		if in.Keyword != "WORKDIR" || len(in.Args) != 1 {
			continue
		}
		dir, err := l.g.Views[in].Expand(in.Args[0])
		switch {
		case err != nil:
		case path.IsAbs(dir.Text):
			ends[in.Stage] = path.Clean(dir.Text)
		case ends[in.Stage] != "":
			ends[in.Stage] = path.Join(ends[in.Stage], dir.Text)
		}
	}
}

// sources checks what COPY and ADD take.
func (l *linting) sources(in *containerfiles.Instruction) {
	var paths []string
	switch cmd := in.Command.(type) {
	case *instructions.CopyCommand:
		paths = cmd.SourcePaths
	case *instructions.AddCommand:
		paths = cmd.SourcePaths
	}
	_, elsewhere := in.Value("from")
	for _, word := range paths {
		source, err := l.g.Views[in].Expand(word)
		switch {
		case err != nil:
			l.report(in, containerfiles.ReasonSubstitution, "%s: %v", in.Keyword, err)
		case containerfiles.IsURL(source.Text) && in.Keyword == "COPY":
			l.report(in, containerfiles.ReasonMissingFile, "COPY cannot take a URL; ADD can")
		case in.Keyword == "ADD" && containerfiles.IsRemote(source.Text):
			l.download(in, source.Text)
		case !elsewhere && len(source.Unknown) == 0 && !containerfiles.InContext(l.opts.Context, source.Text):
			l.report(in, containerfiles.ReasonMissingFile, "%s: %s", in.Keyword, notInContext(l.opts.Context, source.Text))
		}
	}
}

// download reports an ADD whose content no one compares with anything.
func (l *linting) download(in *containerfiles.Instruction, source string) {
	if _, ok := in.Value("checksum"); ok {
		return
	}
	address, fragment, _ := strings.Cut(source, "#")
	if strings.HasSuffix(address, ".git") || !containerfiles.IsURL(source) {
		ref, _, _ := strings.Cut(fragment, ":")
		if len(ref) < 40 || strings.Trim(ref, "0123456789abcdef") != "" {
			l.report(in, containerfiles.ReasonUnverified, "ADD of a git repository does not name a commit")
		}
		return
	}
	l.report(in, containerfiles.ReasonUnverified, "ADD of a URL has no checksum")
}

func notInContext(files map[string][]byte, source string) string {
	if len(files) == 0 {
		return "there are no files to take; " + quoted(source) + " would have to be a key of a ConfigMap"
	}
	return "the ConfigMap has no key " + quoted(source)
}

func quoted(text string) string { return `"` + containerfiles.Clip(text) + `"` }
