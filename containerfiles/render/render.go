package render

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/lint"
)

// Input is everything that a rendered Containerfile is made of.
type Input struct {
	// Containerfile is the administrator's; nil or empty where there is none.
	Containerfile *containerfiles.Containerfile
	// Context are the files that its COPY and ADD can take.
	Context map[string][]byte
	// BaseImage is the OS image, as name@sha256:digest.
	BaseImage string
	// ConfigImage is the OS image with the config layer appended, as name@sha256:digest. It may be
	// empty where nothing uses it: see UsesConfigImage.
	ConfigImage string
	// ExtensionsImage is the image that extensions and kernels are in, as name@sha256:digest; empty
	// where it is not known.
	ExtensionsImage string
	// Extensions are names of extensions, in any order.
	Extensions []string
	// Kernel is the kernel type; empty is KernelDefault, the kernel of the base image.
	Kernel KernelType
	// Architecture is that of the nodes, not that of the machine that renders. It may be empty with
	// the default kernel.
	Architecture mcfgv1.ContainerfileArch
	// PackageManager is that of the base image. It may be empty where there are no extensions and
	// the kernel is the default.
	PackageManager PackageManager
	// Labels are put onto the image. Keys have letters, digits and ". _ - /"; values have no line
	// breaks and no control characters.
	Labels map[string]string
}

// Rendered is a Containerfile that a build runs.
type Rendered struct {
	// Empty reports whether there is nothing to build: no Containerfile, no extensions, and the
	// kernel of the base image. Nothing else is set but Strategy and Reason.
	Empty bool
	// Text is the Containerfile, with LF at the end of each line.
	Text string
	// Hash is the SHA-256 of Text in hex. Labels are not in it: they say where the content is from.
	Hash string
	// Images are what the build pulls: base image, config image and extensions image where they are
	// used, then what the administrator's Containerfile names in stages that the image needs, each
	// once.
	Images []string
	// Stage is the name of the stage that is the image, or its position, where it has no name. It
	// is the last stage.
	Stage string
	// Strategy says when the configuration comes into the image, and Reason why.
	Strategy containerfiles.Strategy
	Reason   string
	// Notices are what was left out or changed, in words.
	Notices []string

	lines []renderedLine
}

// renderedLine says where a line is from.
type renderedLine struct {
	admin  int // line of the administrator's file; 0 for ours
	origin string
}

// AdminLine is the line of the administrator's Containerfile that a line of Text is from, both
// from 1. False for lines that were added, and for lines that Text has not.
func (r *Rendered) AdminLine(rendered int) (line int, ok bool) {
	if rendered < 1 || rendered > len(r.lines) {
		return 0, false
	}
	line = r.lines[rendered-1].admin
	return line, line > 0
}

// Origin says in words what a line of Text is for, such as `extensions kerberos, usbguard`, so that
// the failure of a line that no one wrote can be reported. It is empty for lines that Text has not.
func (r *Rendered) Origin(rendered int) string {
	if rendered < 1 || rendered > len(r.lines) {
		return ""
	}
	return r.lines[rendered-1].origin
}

var (
	errNoExtensionsImage = errors.New("extensions or another kernel are asked for, and no extensions image is known; " +
		"name one in baseOSExtensionsImagePullSpec, or use a stream that has one")
	errNoConfigImage = errors.New("the Containerfile uses " + containerfiles.StageBaseWithConfigs + ", and there is no image with the configuration")
)

// Render writes the Containerfile that a build runs: the offered stages that are used, with
// extensions and kernel in them, then the administrator's lines as they are, then labels
// (docs/adr/0006). The same input gives the same text.
//
// Errors are a *LintError for findings of SeverityError, an *Error for one place in the file, and
// others for inputs that contradict each other: an unknown extension, a kernel that the
// architecture has not, no extensions image for them, a reference without digest.
func Render(in Input) (*Rendered, error) {
	r, err := newRendering(in)
	if err != nil {
		return nil, err
	}
	if r.isEmpty() {
		return &Rendered{Empty: true, Strategy: containerfiles.AppendAfter, Reason: "there is nothing to build"}, nil
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := r.write(); err != nil {
		return nil, err
	}
	return r.result(), nil
}

// UsesConfigImage reports whether rendering the Containerfile needs RenderInput.ConfigImage: one of
// its instructions names os-base-image-with-configs or configs.
func UsesConfigImage(c *containerfiles.Containerfile, arch mcfgv1.ContainerfileArch) bool {
	if c.Empty() {
		return false
	}
	spellings, _ := c.Resolve(containerfiles.SomeArgs(arch)).OfferedUses()
	return len(spellings[containerfiles.StageBaseWithConfigs]) > 0
}

// rendering is one run of Render.
type rendering struct {
	in        Input
	c         *containerfiles.Containerfile // nil where there is none
	g         *containerfiles.Graph
	offered   map[string][]string // spellings by offered stage
	started   map[string]bool     // offered stages that content is put onto
	strategy  containerfiles.Strategy
	reason    string
	lines     []string
	from      []renderedLine
	stages    int // that were added
	notices   []string
	extension []string
}

func newRendering(in Input) (*rendering, error) {
	r := &rendering{in: in}
	r.in.Kernel = cmp.Or(in.Kernel, KernelDefault)
	extensions, err := checkExtensions(in.Extensions)
	if err != nil {
		return nil, err
	}
	r.extension = extensions
	if err := checkKernel(r.in.Kernel, in.Architecture, extensions); err != nil {
		return nil, err
	}
	if in.Containerfile.Empty() {
		r.offered = map[string][]string{containerfiles.StageBase: {containerfiles.StageBase}}
		r.started = map[string]bool{containerfiles.StageBase: true}
		r.strategy, r.reason = containerfiles.AppendAfter, "there is no Containerfile"
		return r, nil
	}
	r.c = in.Containerfile
	return r, nil
}

func (r *rendering) addsPackages() bool { return len(r.extension) > 0 || r.in.Kernel != KernelDefault }

func (r *rendering) isEmpty() bool { return r.c == nil && !r.addsPackages() }

// check refuses what cannot be built.
func (r *rendering) check() error {
	if r.c != nil {
		findings := lint.Lint(r.c, lint.Options{Architecture: r.in.Architecture, Context: r.in.Context})
		bad := slices.DeleteFunc(findings, func(f lint.Finding) bool { return f.Severity != lint.SeverityError })
		if len(bad) > 0 {
			return &lint.Error{File: r.c.Name(), Findings: bad}
		}
		r.g = r.c.Resolve(containerfiles.SomeArgs(r.in.Architecture))
		r.offered, r.started = r.g.OfferedUses()
		r.strategy, r.reason = r.g.Chosen()
	}
	if r.addsPackages() {
		if r.in.ExtensionsImage == "" {
			return errNoExtensionsImage
		}
		if r.in.PackageManager != RPMOSTree && r.in.PackageManager != DNF {
			return fmt.Errorf("unknown package manager %q; known are %s and %s", r.in.PackageManager, RPMOSTree, DNF)
		}
	}
	return cmp.Or(r.checkImages(), checkLabels(r.in.Labels))
}

// pinned is a reference by digest, of characters that mean nothing to a shell.
var pinned = regexp.MustCompile(`^[a-z0-9]+(?:[._-][a-z0-9]+)*(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)+@sha256:[0-9a-f]{64}$`)

// checkImages refuses references that are not by digest, and those that are missing.
func (r *rendering) checkImages() error {
	if len(r.offered[containerfiles.StageBaseWithConfigs]) > 0 && r.in.ConfigImage == "" {
		return errNoConfigImage
	}
	for _, image := range []struct {
		name, reference string
		used            bool
	}{
		{"base", r.in.BaseImage, len(r.offered[containerfiles.StageBase]) > 0},
		{"config", r.in.ConfigImage, len(r.offered[containerfiles.StageBaseWithConfigs]) > 0},
		{"extensions", r.in.ExtensionsImage, r.addsPackages()},
	} {
		if image.used && !pinned.MatchString(image.reference) {
			return fmt.Errorf("the %s image %q is no reference of the form registry/name@sha256:digest", image.name, containerfiles.Clip(image.reference))
		}
	}
	return nil
}

// write writes all lines.
func (r *rendering) write() error {
	r.stages = len(r.offered[containerfiles.StageBase]) + len(r.offered[containerfiles.StageBaseWithConfigs])
	rest := r.writeHead()
	r.writeOffered(containerfiles.StageBase, r.in.BaseImage)
	r.writeOffered(containerfiles.StageBaseWithConfigs, r.in.ConfigImage)
	if err := r.writeRest(rest); err != nil {
		return err
	}
	r.writeLabels()
	return nil
}

// add adds a line of ours.
func (r *rendering) add(origin, line string) {
	r.lines = append(r.lines, line)
	r.from = append(r.from, renderedLine{origin: origin})
}

// addAdmin adds a line of the administrator's.
func (r *rendering) addAdmin(number int, line string) {
	r.lines = append(r.lines, line)
	r.from = append(r.from, renderedLine{admin: number, origin: "the Containerfile"})
}

func (r *rendering) result() *Rendered {
	out := &Rendered{Strategy: r.strategy, Reason: r.reason, Notices: r.notices, Images: r.images(), Stage: r.stage(), lines: r.from}
	text, content := &strings.Builder{}, sha256.New()
	for i, line := range r.lines {
		text.WriteString(line + "\n")
		if r.from[i].origin != originLabels {
			content.Write([]byte(line + "\n"))
		}
	}
	out.Text, out.Hash = text.String(), hex.EncodeToString(content.Sum(nil))
	return out
}

func (r *rendering) stage() string {
	if r.c == nil {
		return containerfiles.StageBase
	}
	stages := r.c.Stages()
	last := len(stages) - 1
	return cmp.Or(stages[last].Name, strconv.Itoa(r.stages+last))
}

func (r *rendering) images() []string {
	var images []string
	add := func(image string, used bool) {
		if used && !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	add(r.in.BaseImage, len(r.offered[containerfiles.StageBase]) > 0)
	add(r.in.ConfigImage, len(r.offered[containerfiles.StageBaseWithConfigs]) > 0)
	add(r.in.ExtensionsImage, r.addsPackages())
	if r.g != nil {
		uses, _ := r.g.Images() // what is wrong was refused by check
		needed := r.g.Needed()
		for _, use := range uses {
			add(use.Reference, slices.ContainsFunc(use.Places, func(p containerfiles.Place) bool { return needed[p.Stage] }))
		}
	}
	return images
}
