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
	// Short reports whether the reference has no registry.
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
	return c.Resolve(args).Images()
}

// Images are those that the file names, as Images lists them.
func (g *Graph) Images() ([]ImageUse, error) {
	var (
		images []ImageUse
		errs   []error
		index  = map[string]int{}
	)
	for _, u := range g.Uses {
		switch u.Kind {
		case KindWrong:
			errs = append(errs, g.errorOf(u))
			continue
		case KindImage:
		default:
			continue
		}
		img, err := ParseImage(u.Text)
		if err != nil {
			continue // a name of kind isImage was parsed before
		}
		i, known := index[u.Text]
		if !known {
			i = len(images)
			index[u.Text] = i
			images = append(images, ImageUse{Reference: u.Text, Normalized: img.normalized, Short: img.Short})
		}
		place := Place{Instruction: u.In.Keyword, Line: u.In.Line, EndLine: u.In.End, Stage: u.In.Stage, StageName: g.c.stages[u.In.Stage].Name}
		images[i].Places = append(images[i].Places, place)
	}
	return images, errors.Join(errs...)
}

func (g *Graph) errorOf(u Use) *Error {
	return &Error{
		File: g.c.name, Line: u.In.Line, EndLine: u.In.End, Instruction: u.In.Keyword, Reason: u.Reason,
		Err: cmp.Or(u.Err, errNameless),
	}
}

var errNameless = fmt.Errorf("it names nothing")

// OfferedUses are the spellings of the offered stages that the file uses, by stage, each once; and
// the spellings that a stage of the file starts from.
func (g *Graph) OfferedUses() (spellings map[string][]string, started map[string]bool) {
	spellings, started = map[string][]string{}, map[string]bool{}
	for _, u := range g.Uses {
		if u.Kind != KindOffered {
			continue
		}
		if !slices.Contains(spellings[u.offered], u.Text) {
			spellings[u.offered] = append(spellings[u.offered], u.Text)
		}
		if u.Flag == "" {
			started[u.offered] = true
		}
	}
	for _, names := range spellings {
		slices.Sort(names)
	}
	return spellings, started
}
