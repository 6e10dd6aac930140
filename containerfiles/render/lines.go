package render

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/layerwright/layerwright/containerfiles"
)

// What lines of a rendered file are for.
const (
	originHead   = "the head of the file"
	originStage  = "the offered stages"
	originLabels = "the labels"
)

// writeHead writes what has to stand before the first FROM: directives and the ARGs that FROM lines
// use. It returns the first line of the administrator's that is left.
func (r *rendering) writeHead() (rest int) {
	const ours = "# Rendered by Layerwright: directives, ARGs of FROM lines, offered stages, the Containerfile, labels."
	if r.c == nil {
		r.add(originHead, ours)
		return 0
	}
	directives := map[int]bool{}
	for _, name := range []string{"escape", "check", "syntax"} { // Buildah reads escape on the first line only
		for _, d := range r.c.Directives {
			if d.Name != name {
				continue
			}
			directives[d.Line] = true
			if name == "syntax" {
				r.notices = append(r.notices, fmt.Sprintf("line %d: the syntax directive is left out, because Buildah reads the file", d.Line))
				continue
			}
			r.addAdmin(d.Line, "# "+d.Name+"="+d.Value)
		}
	}
	r.add(originHead, ours) // ends the directives, whatever comment follows
	rest = 1
	for _, in := range r.c.Instructions {
		if in.Stage < 0 {
			rest = in.End + 1
		}
	}
	for line := 1; line < rest; line++ {
		if !directives[line] {
			r.addAdmin(line, r.c.Lines[line-1])
		}
	}
	for directives[rest] {
		rest++
	}
	return rest
}

// writeOffered writes the stages of one offered image, one for each spelling. Content goes into the
// first; the others are names of it.
func (r *rendering) writeOffered(stage, image string) {
	names := r.offered[stage]
	if len(names) == 0 {
		return
	}
	first := names[0]
	for _, preferred := range []string{containerfiles.StageConfigs, stage} {
		if slices.Contains(names, preferred) {
			first = preferred
		}
	}
	r.add(originStage, "FROM "+image+" AS "+first)
	if r.started[stage] && r.addsPackages() {
		r.writeExtensions()
		r.writeKernel()
		if r.in.PackageManager == RPMOSTree {
			r.add("the commit after extensions and kernel", "RUN ostree container commit")
		}
	}
	for _, name := range names {
		if name != first {
			r.add(originStage, "FROM "+first+" AS "+name)
		}
	}
}

// writeRest writes the administrator's lines from the first FROM to the end.
func (r *rendering) writeRest(first int) error {
	if r.c == nil {
		return nil
	}
	changed, err := r.shiftNumbers()
	if err != nil {
		return err
	}
	maps.Copy(changed, danglingEnd(r.c))
	if r.c.LacksFrom() {
		r.add(originStage, "FROM "+containerfiles.StageConfigs)
	}
	for line := first; line <= len(r.c.Lines); line++ {
		text, ok := changed[line]
		if !ok {
			text = r.c.Lines[line-1]
		}
		r.addAdmin(line, text)
	}
	return nil
}

var errNumber = errors.New("the number in --from is not written plainly")

// shiftNumbers rewrites COPY --from=0, because stages stand before the administrator's.
func (r *rendering) shiftNumbers() (map[int]string, error) {
	changed := map[int]string{}
	for _, u := range r.g.Uses {
		if u.Kind != containerfiles.KindStage || u.Flag != "from" || !containerfiles.IsNumber(u.Text) {
			continue
		}
		flag := regexp.MustCompile(`(\s--from=["']?)` + u.Text + `(["']?(?:\s|$))`)
		shifted := strconv.Itoa(u.Stage + r.stages)
		done := false
		for line := u.In.Line; line <= u.In.Header && !done; line++ {
			text := r.c.Lines[line-1]
			if at := flag.FindStringSubmatchIndex(text); at != nil {
				changed[line] = text[:at[3]] + shifted + text[at[4]:]
				done = true
			}
		}
		if !done {
			return nil, &containerfiles.Error{File: r.c.Name(), Line: u.In.Line, EndLine: u.In.End, Instruction: u.In.Keyword, Reason: containerfiles.ReasonStageByNumber, Err: errNumber}
		}
		r.notices = append(r.notices, fmt.Sprintf("line %d: --from=%s is --from=%s in the rendered file", u.In.Line, u.Text, shifted))
	}
	return changed, nil
}

// danglingEnd finds the continuation characters at the end of the file, which would join the labels
// to the last instruction, and gives the lines without them.
func danglingEnd(c *containerfiles.Containerfile) map[int]string {
	cut := map[int]string{}
	last := c.Instructions[len(c.Instructions)-1]
	for line := last.Header; line >= last.Line; line-- {
		text := strings.TrimRight(c.Lines[line-1], " \t")
		bare := strings.TrimSpace(text)
		if bare == "" || bare[0] == '#' {
			continue
		}
		rest, dangling := strings.CutSuffix(text, string(c.Escape))
		if dangling {
			cut[line] = rest
		}
		if !dangling || strings.TrimSpace(rest) != "" {
			break
		}
	}
	return cut
}

var labelKey = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?$`)

// checkLabels refuses labels that a LABEL instruction cannot say.
func checkLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !labelKey.MatchString(key) {
			return fmt.Errorf("the label %q is not of letters, digits and . _ - /", containerfiles.Clip(key))
		}
		if strings.ContainsFunc(labels[key], isUnprintable) || strings.ToValidUTF8(labels[key], "") != labels[key] {
			return fmt.Errorf("the value of the label %q has a line break, a control character or bytes that are no UTF-8", key)
		}
		if len(labels[key]) > maxLabel {
			return fmt.Errorf("the value of the label %q is longer than %d bytes", key, maxLabel)
		}
	}
	return nil
}

// maxLabel keeps a LABEL instruction, with its quotes, below what parsers read as one line.
const maxLabel = 8192

func isUnprintable(r rune) bool {
	return unicode.IsControl(r) && r != '\t' || r == '\u2028' || r == '\u2029' || r == unicode.ReplacementChar
}

// writeLabels writes the labels at the end, where they cost no cached step, and where no line of
// the administrator's comes after them.
func (r *rendering) writeLabels() {
	for _, key := range slices.Sorted(maps.Keys(r.in.Labels)) {
		r.add(originLabels, "LABEL "+key+"="+quoteLabel(r.in.Labels[key]))
	}
}

// quoteLabel quotes a value so that neither the parser nor the expansion of variables changes it,
// whatever the escape character is: nothing has a meaning in single quotes, and a single quote
// itself stands in double ones.
func quoteLabel(value string) string {
	return "'" + strings.ReplaceAll(value, "'", `'"'"'`) + "'"
}
