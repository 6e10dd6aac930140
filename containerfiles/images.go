package containerfiles

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ImageUse is an image that a Containerfile names, with every place where it does.
type ImageUse struct {
	// Reference is the image as it is written, with variables expanded: what the build pulls. A
	// short name stays short.
	Reference string
	// Normalized is for comparing: with the tag latest where there is neither tag nor digest. A
	// short name, which has no registry, stays short, because which registry it stands for is
	// decided by the registries.conf of the place that pulls it.
	Normalized string
	// Short is whether the reference has no registry.
	Short bool
	// Places are where the image is named, in the order of the file; at least one.
	Places []Place
}

// Place is an instruction that names an image.
type Place struct {
	// Instruction is FROM, COPY or RUN.
	Instruction string
	// Line and EndLine are its lines, from 1.
	Line, EndLine int
	// Stage is the position of its stage in the file, from 0, and StageName the stage's name, empty
	// where it has none.
	Stage     int
	StageName string
}

// Images lists the images that FROM, COPY --from and RUN --mount=from= name, each once, in the
// order of the file. Variables are expanded with the defaults of their ARG and with args, which are
// what the build passes (PlatformArgs). Stages of the file, the offered stages and scratch are no
// images. Stages that the result does not need are included.
//
// The error joins one *Error for each name that stands for nothing; what else is found is returned
// beside it.
func Images(c *Containerfile, args map[string]string) ([]ImageUse, error) {
	if c.Empty() {
		return nil, nil
	}
	return c.resolve(args).images()
}

func (g *graph) images() ([]ImageUse, error) {
	var (
		images []ImageUse
		errs   []error
		index  = map[string]int{}
	)
	for _, u := range g.uses {
		switch u.kind {
		case isWrong:
			errs = append(errs, g.errorOf(u))
			continue
		case isImage:
		default:
			continue
		}
		img, err := parseImage(u.text)
		if err != nil {
			continue // a name of kind isImage was parsed before
		}
		i, known := index[u.text]
		if !known {
			i = len(images)
			index[u.text] = i
			images = append(images, ImageUse{Reference: u.text, Normalized: img.normalized, Short: img.short})
		}
		place := Place{Instruction: u.in.keyword, Line: u.in.line, EndLine: u.in.end, Stage: u.in.stage, StageName: g.c.stages[u.in.stage].Name}
		images[i].Places = append(images[i].Places, place)
	}
	return images, errors.Join(errs...)
}

func (g *graph) errorOf(u use) *Error {
	return &Error{
		File: g.c.name, Line: u.in.line, EndLine: u.in.end, Instruction: u.in.keyword, Reason: u.reason,
		Err: cmp.Or(u.err, errNameless),
	}
}

var errNameless = fmt.Errorf("it names nothing")

// offeredUses are the spellings of the offered stages that the file uses, by stage, each once; and
// the spellings that a stage of the file starts from.
func (g *graph) offeredUses() (spellings map[string][]string, started map[string]bool) {
	spellings, started = map[string][]string{}, map[string]bool{}
	for _, u := range g.uses {
		if u.kind != isOffered {
			continue
		}
		if !slices.Contains(spellings[u.offered], u.text) {
			spellings[u.offered] = append(spellings[u.offered], u.text)
		}
		if u.flag == "" {
			started[u.offered] = true
		}
	}
	for _, names := range spellings {
		slices.Sort(names)
	}
	return spellings, started
}
