package containerfiles

import (
	"path"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// notInImage are the directories that a node does not take from an image, with what happens
// instead. On ostree systems the second half of them are links into /var (DESIGN.md "The image").
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
func (l *linting) destination(in *instruction) {
	if len(in.args) < 2 || !l.g.stages[in.stage].result {
		return
	}
	dest, err := l.g.views[in].expand(in.args[len(in.args)-1])
	if err != nil {
		l.report(in, ReasonSubstitution, "%s: %v", in.keyword, err)
		return
	}
	name := dest.text
	if !path.IsAbs(name) {
		name = path.Join(l.workdirAt(in), name)
	}
	if dir, why, lost := lostPath(name); lost && len(dest.unknown) == 0 {
		l.report(in, ReasonNotInImage, "%s writes below %s, which %s", in.keyword, dir, why)
	}
}

// workdir checks WORKDIR, which makes the directory.
func (l *linting) workdir(in *instruction) {
	dir, err := l.g.views[in].expand(in.args[0])
	if err != nil {
		l.report(in, ReasonSubstitution, "WORKDIR: %v", err)
		return
	}
	if !path.IsAbs(dir.text) && l.workdirAt(in) == "" && len(dir.unknown) == 0 {
		l.report(in, ReasonRelativeWorkdir, "WORKDIR %q does not begin with /", clip(dir.text))
	}
	scratch := slices.Contains([]string{"/tmp", "/var/tmp"}, path.Clean(dir.text)) // there already, and meant for this
	if below, why, lost := lostPath(dir.text); lost && path.IsAbs(dir.text) && !scratch && l.g.stages[in.stage].result {
		l.report(in, ReasonNotInImage, "WORKDIR is below %s, which %s", below, why)
	}
}

// workdirAt is the directory that a stage of the file has set before an instruction; empty where
// only the base image knows.
func (l *linting) workdirAt(at *instruction) string {
	if l.workdirs == nil {
		l.findWorkdirs()
	}
	return l.workdirs[at]
}

func (l *linting) findWorkdirs() {
	l.workdirs = map[*instruction]string{}
	ends := make([]string, len(l.g.stages))
	for _, in := range l.c.instructions {
		if in.stage < 0 {
			continue
		}
		if base := l.g.stages[in.stage].base; in.keyword == "FROM" && base.kind == isStage {
			ends[in.stage] = ends[base.stage]
		}
		l.workdirs[in] = ends[in.stage]
		if in.keyword != "WORKDIR" || len(in.args) != 1 {
			continue
		}
		dir, err := l.g.views[in].expand(in.args[0])
		switch {
		case err != nil:
		case path.IsAbs(dir.text):
			ends[in.stage] = path.Clean(dir.text)
		case ends[in.stage] != "":
			ends[in.stage] = path.Join(ends[in.stage], dir.text)
		}
	}
}

// sources checks what COPY and ADD take.
func (l *linting) sources(in *instruction) {
	var paths []string
	switch cmd := in.command.(type) {
	case *instructions.CopyCommand:
		paths = cmd.SourcePaths
	case *instructions.AddCommand:
		paths = cmd.SourcePaths
	}
	_, elsewhere := in.value("from")
	for _, word := range paths {
		source, err := l.g.views[in].expand(word)
		switch {
		case err != nil:
			l.report(in, ReasonSubstitution, "%s: %v", in.keyword, err)
		case isURL(source.text) && in.keyword == "COPY":
			l.report(in, ReasonMissingFile, "COPY cannot take a URL; ADD can")
		case in.keyword == "ADD" && isRemote(source.text):
			l.download(in, source.text)
		case !elsewhere && len(source.unknown) == 0 && !inContext(l.opts.Context, source.text):
			l.report(in, ReasonMissingFile, "%s: %s", in.keyword, notInContext(l.opts.Context, source.text))
		}
	}
}

func isURL(source string) bool {
	return strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
}

func isRemote(source string) bool {
	return isURL(source) || strings.HasPrefix(source, "git@") || strings.HasPrefix(source, "git://") || strings.HasPrefix(source, "ssh://")
}

// download reports an ADD whose content no one compares with anything.
func (l *linting) download(in *instruction, source string) {
	if _, ok := in.value("checksum"); ok {
		return
	}
	address, fragment, _ := strings.Cut(source, "#")
	if strings.HasSuffix(address, ".git") || !isURL(source) {
		ref, _, _ := strings.Cut(fragment, ":")
		if len(ref) < 40 || strings.Trim(ref, "0123456789abcdef") != "" {
			l.report(in, ReasonUnverified, "ADD of a git repository does not name a commit")
		}
		return
	}
	l.report(in, ReasonUnverified, "ADD of a URL has no checksum")
}

// inContext is whether a path or pattern finds a file of the build context, whose files are all in
// one directory.
func inContext(files map[string][]byte, source string) bool {
	name := strings.TrimPrefix(path.Clean("/"+source), "/")
	if name == "" {
		return len(files) > 0
	}
	if _, ok := files[name]; ok {
		return true
	}
	for file := range files {
		if ok, err := path.Match(name, file); ok && err == nil {
			return true
		}
	}
	return false
}

func notInContext(files map[string][]byte, source string) string {
	if len(files) == 0 {
		return "there are no files to take; " + quoted(source) + " would have to be a key of a ConfigMap"
	}
	return "the ConfigMap has no key " + quoted(source)
}

func quoted(text string) string { return `"` + clip(text) + `"` }
