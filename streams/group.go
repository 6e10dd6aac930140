package streams

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Contribution are the streams of one source, by name, with what is wrong with them.
type Contribution struct {
	Source Source
	// Pairs are sorted by name; some are not usable.
	Pairs    []Pair
	Problems []Problem
	// failed and unsure say which streams the source may have without saying so here: any, or those
	// of the names.
	failed bool
	unsure map[string]bool
}

// mayHave reports whether the source may have other images for a stream than it gives here.
func (c *Contribution) mayHave(name string) bool { return c.failed || c.unsure[name] }

func (c *Contribution) find(name string) *Pair {
	if i := slices.IndexFunc(c.Pairs, func(p Pair) bool { return p.Name == name }); i >= 0 {
		return &c.Pairs[i]
	}
	return nil
}

// Group joins the images of a source to streams. An image belongs to the stream that the source
// gives it to, or its label says, and is what the source and its labels agree on. An image of which
// they don't agree, or don't say enough, is not used.
func Group(g Gathered) Contribution {
	c := Contribution{Source: g.Source, Problems: slices.Clone(g.Problems), failed: g.Failed, unsure: map[string]bool{}}
	pairs := map[string]*Pair{}
	for i := range g.Images {
		c.add(&g.Images[i], pairs)
	}
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		p := pairs[name]
		c.judge(p, g.OSOnly)
		c.Pairs = append(c.Pairs, *p)
	}
	return c
}

// problem notes what is wrong.
func (c *Contribution) problem(conditionType, reason, format string, args ...any) Problem {
	p := Problem{Type: conditionType, Reason: reason, Message: fmt.Sprintf(format, args...)}
	c.Problems = append(c.Problems, p)
	return p
}

// add puts an image into the pair that it belongs to.
func (c *Contribution) add(f *Found, pairs map[string]*Pair) {
	at := fmt.Sprintf("%s of %s", f.Where, c.Source)
	name := f.Stream
	pairOf := func(name string) *Pair {
		if pairs[name] == nil {
			pairs[name] = &Pair{Name: name}
		}
		return pairs[name]
	}
	if f.Problem != nil {
		c.Problems = append(c.Problems, *f.Problem)
		if name == "" {
			c.failed = true
			return
		}
		c.unsure[name] = true
		p := pairOf(name)
		p.place(f.Role, f.Image)
		p.markUnusable(reasonOf(f.Problem), f.Problem.Message)
		return
	}
	role, fault := judgeLabels(f)
	if name == "" {
		name = f.Labels[mcfgv1.ImageLabelStream]
	}
	if fault != nil {
		noted := c.problem(fault.Type, fault.Reason, "%s: %s", at, fault.Message)
		if name == "" {
			c.failed = c.failed || c.Source != SourceRelease // a release has images that are of no stream, others have not
			return
		}
		c.unsure[name] = true
		p := pairOf(name)
		p.place(roleOfFault(f, role), f.Pinned)
		p.markUnusable(noted.Reason, noted.Message)
		return
	}
	p := pairOf(name)
	if before := p.of(role); before != "" && before != f.Pinned {
		c.unsure[name] = true
		c.problem(mcfgv1.StreamDuplicates, mcfgv1.ReasonDuplicateImages,
			"%s: stream %q has two different images, %q and %q; the one in use before is kept, otherwise the last one is used", describeRole(c.Source, role), name, before, f.Pinned)
	}
	p.place(role, f.Pinned)
}

func describeRole(s Source, r Role) string { return fmt.Sprintf("%s of %s", r, s) }

// reasonOf is the reason that an unusable stream has for a problem of its image.
func reasonOf(p *Problem) string {
	if p.Type == mcfgv1.StreamImagesUnreadable {
		return mcfgv1.ReasonImageUnreadable
	}
	return p.Reason
}

func (p *Pair) of(role Role) string {
	if role == RoleExtensions {
		return p.ExtensionsImage
	}
	return p.OSImage
}

func (p *Pair) place(role Role, image string) {
	if role == RoleExtensions {
		p.ExtensionsImage = image
	} else {
		p.OSImage = image
	}
}

// roleOfFault is where an image that can't be used is shown.
func roleOfFault(f *Found, labelled Role) Role {
	if f.Role != RoleUnknown {
		return f.Role
	}
	return labelled
}

// judgeLabels finds out what an image is. The problem's message is without the image's place.
func judgeLabels(f *Found) (Role, *Problem) {
	bootc := f.Labels[mcfgv1.ImageLabelBootc] == "true" || f.Labels[mcfgv1.ImageLabelBootc] == "1"
	extensions := f.Labels[mcfgv1.ImageLabelExtensions] == "true"
	stream := f.Labels[mcfgv1.ImageLabelStream]
	labelled := RoleUnknown
	switch {
	case bootc && !extensions:
		labelled = RoleOS
	case extensions && !bootc:
		labelled = RoleExtensions
	}
	contradiction := func(format string, args ...any) (Role, *Problem) {
		return labelled, &Problem{mcfgv1.StreamImageLabelsContradictory, mcfgv1.ReasonLabelsContradictory, fmt.Sprintf("image %q ", f.Image) + fmt.Sprintf(format, args...)}
	}
	missing := func(label string) (Role, *Problem) {
		return labelled, &Problem{mcfgv1.StreamImageLabelsMissing, mcfgv1.ReasonLabelMissing, fmt.Sprintf("image %q has no label %s, and is not used", f.Image, label)}
	}
	switch {
	case bootc && extensions:
		return contradiction("has both labels %s and %s: it cannot be an OS image and an extensions image", mcfgv1.ImageLabelBootc, mcfgv1.ImageLabelExtensions)
	case f.Role != RoleUnknown && labelled != RoleUnknown && f.Role != labelled:
		return contradiction("is labelled as %s, and named as %s", labelled, f.Role)
	case f.Stream != "" && stream != "" && f.Stream != stream:
		return contradiction("is of stream %q by its label %s, and named as one of %q", stream, mcfgv1.ImageLabelStream, f.Stream)
	case f.Stream == "" && stream == "":
		return missing(mcfgv1.ImageLabelStream)
	case f.Role == RoleUnknown && labelled == RoleUnknown:
		return missing(mcfgv1.ImageLabelBootc + " or " + mcfgv1.ImageLabelExtensions)
	case f.Role == RoleUnknown:
		return labelled, nil
	}
	return f.Role, nil
}

// judge finds out whether pools can follow a stream with these images.
func (c *Contribution) judge(p *Pair, osOnly bool) {
	if problems := validation.IsDNS1123Subdomain(p.Name); len(problems) > 0 {
		noted := c.problem(mcfgv1.StreamNamesInvalid, mcfgv1.ReasonInvalidName, "stream %q of %s: %s", cut(p.Name, maxShown), c.Source, problems[0])
		p.markUnusable(noted.Reason, noted.Message)
	}
	if c.Source != SourceRelease && p.IsUsable() && (p.OSImage == "" || p.ExtensionsImage == "" && !osOnly) {
		c.unsure[p.Name] = true // people edit it by hand
	}
	switch {
	case !p.IsUsable():
	case p.OSImage == "":
		noted := c.problem(mcfgv1.StreamIncomplete, mcfgv1.ReasonOSImageMissing, "stream %q of %s has an extensions image and no OS image", p.Name, c.Source)
		p.markUnusable(noted.Reason, noted.Message)
	case p.ExtensionsImage == "" && !osOnly:
		noted := c.problem(mcfgv1.StreamIncomplete, mcfgv1.ReasonExtensionsImageMissing,
			"stream %q of %s has an OS image and no extensions image; to use it without extensions, name its OS image in %s", p.Name, c.Source, SourceSpec)
		p.markUnusable(noted.Reason, noted.Message)
	}
}

// maxShown is how much of a name that makes no sense is shown.
const maxShown = 64

var reference = regexp.MustCompile(`^(([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?|[a-zA-Z0-9-]+:[0-9]{2,5}|\[[a-fA-F0-9:.]+\](:[0-9]{2,5})?)(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}(@sha256:[a-f0-9]{64})?|@sha256:[a-f0-9]{64})$`)

// CheckReference tells what is wrong with the name of an image as the API wants it: by tag or by
// digest, with a registry. The text is empty where it is right.
func CheckReference(image string) string {
	if reference.MatchString(image) {
		return ""
	}
	repository, digest, pinned := strings.Cut(image, "@")
	algorithm, hex, _ := strings.Cut(digest, ":")
	const sha256Length = 64
	switch {
	case pinned && algorithm != "sha256":
		return fmt.Sprintf("its digest is of the kind %q, and has to be sha256", cut(algorithm, maxShown))
	case pinned && len(hex) != sha256Length:
		return fmt.Sprintf("its digest has %d characters, and has to have %d", len(hex), sha256Length)
	case pinned && strings.Trim(hex, "0123456789abcdef") != "":
		return "its digest has characters other than 0-9 and a-f"
	case !pinned && !strings.Contains(repository[strings.LastIndex(repository, "/")+1:], ":"):
		return "it has neither a tag nor a digest"
	default:
		return "it has to be host[:port]/path/name, followed by :<tag> or by @sha256:<digest>; a host without a dot needs a port"
	}
}

// IsPinned reports whether the name of an image has a digest, so that it never stands for another
// image.
func IsPinned(image string) bool { return strings.Contains(image, "@") }
