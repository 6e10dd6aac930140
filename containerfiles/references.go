package containerfiles

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
)

// Kind is what a name in FROM, COPY --from and RUN --mount=from= stands for.
type Kind int

// What names stand for.
const (
	KindImage   Kind = iota
	KindStage        // an earlier stage of the file
	KindOffered      // a stage that is rendered in front of the file
	KindScratch
	KindWrong
)

// Named is a name with what it stands for.
type Named struct {
	Kind    Kind
	Text    string // variables expanded
	offered string // StageBase or StageBaseWithConfigs
	Stage   int
	Reason  string // of isWrong
	Err     error
}

func wrong(reason, format string, args ...any) Named {
	return Named{Kind: KindWrong, Reason: reason, Err: fmt.Errorf(format, args...)}
}

// OfferedStage is StageBase or StageBaseWithConfigs for each way to write them.
func OfferedStage(name string) (string, bool) {
	switch strings.ToLower(name) {
	case StageBase:
		return StageBase, true
	case StageBaseWithConfigs, StageConfigs:
		return StageBaseWithConfigs, true
	default:
		return "", false
	}
}

// OfferedNames are the stages that may be started from, for messages.
const OfferedNames = StageBase + ", " + StageBaseWithConfigs + " or " + StageConfigs

// resolver says what names stand for.
type resolver struct {
	stages []Stage
	ByName map[string][]int // by name in lower case
}

func newResolver(stages []Stage) resolver {
	r := resolver{stages: stages, ByName: map[string][]int{}}
	for i, s := range stages {
		if s.Name != "" {
			key := strings.ToLower(s.Name)
			r.ByName[key] = append(r.ByName[key], i)
		}
	}
	return r
}

// from resolves the expanded name in the FROM instruction of a stage.
func (r resolver) from(name string, at int) Named {
	switch {
	case name == "":
		return wrong(ReasonEmptyBase, "the name of the image is empty")
	case name == "scratch":
		return Named{Kind: KindScratch, Text: name}
	case IsNumber(name):
		return wrong(ReasonStageByNumber, "a stage cannot start from another one by its number")
	}
	return r.stageOrImage(name, at)
}

// copied resolves the expanded name of a COPY --from.
func (r resolver) copied(name string, at int) Named {
	if !IsNumber(name) {
		return r.stageOrSource(name, at)
	}
	n, err := strconv.Atoi(name)
	if err != nil || n >= at {
		return wrong(ReasonUnknownStage, "there is no stage %s before this one: they are counted from 0", Clip(name))
	}
	return Named{Kind: KindStage, Text: name, Stage: n}
}

// mounted resolves the expanded name in a RUN --mount=from=.
func (r resolver) mounted(name string, at int) Named {
	if IsNumber(name) {
		return wrong(ReasonStageByNumber, "a mount cannot name a stage by its number")
	}
	return r.stageOrSource(name, at)
}

func (r resolver) stageOrSource(name string, at int) Named {
	switch name {
	case "":
		return wrong(ReasonUnknownStage, "the name of the stage or image is empty")
	case "scratch":
		return wrong(ReasonUnknownStage, "there is nothing in scratch to take")
	}
	found := r.stageOrImage(name, at)
	if found.Kind == KindImage && !strings.ContainsAny(name, "/:@") {
		return wrong(ReasonUnknownStage, "no stage before this one is named %q, and it is no image with a registry or a tag", Clip(name))
	}
	return found
}

func (r resolver) stageOrImage(name string, at int) Named {
	if same := r.ByName[strings.ToLower(name)]; len(same) > 0 {
		return r.stageOf(name, at, same)
	}
	if offered, ok := OfferedStage(name); ok {
		return Named{Kind: KindOffered, Text: name, offered: offered}
	}
	if _, err := ParseImage(name); err != nil {
		return wrong(ReasonInvalidImage, "%q is no name of an image: %w", Clip(name), err)
	}
	return Named{Kind: KindImage, Text: name}
}

// stageOf picks the last stage before this one among those of a name, which may be written in
// different cases.
func (r resolver) stageOf(name string, at int, same []int) Named {
	n, _ := slices.BinarySearch(same, at)
	if n == 0 {
		s := r.stages[same[0]]
		return wrong(ReasonLaterStage, "the stage %q is not there yet: it is on line %d", Clip(s.Name), s.Line)
	}
	for i := n - 1; i >= 0; i-- {
		if r.stages[same[i]].Name == name {
			return Named{Kind: KindStage, Text: name, Stage: same[i]}
		}
	}
	s := r.stages[same[n-1]]
	return wrong(ReasonStageNameCase, "the stage on line %d is named %q: Buildah tells upper and lower case apart", s.Line, Clip(s.Name))
}

// IsNumber reports whether a name is a stage's number.
func IsNumber(name string) bool {
	return name != "" && strings.Trim(name, "0123456789") == ""
}

// ImageName is a name of an image.
type ImageName struct {
	normalized string
	Short      bool // no registry
	Tag        string
	Digest     string
}

var errTransport = errors.New("images are pulled from registries only; write it without a transport such as docker://")

// ParseImage reads a name of an image by the rules of distribution/reference, but adds no registry
// to a short name: which one it stands for depends on the registries.conf of the place that pulls
// it. Beside a digest, a tag is a comment.
func ParseImage(name string) (ImageName, error) {
	if i := strings.Index(name, ":"); i > 0 && strings.HasPrefix(name[i+1:], "/") {
		return ImageName{}, errTransport
	}
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return ImageName{}, err
	}
	img := ImageName{Short: !hasRegistry(name), normalized: ref.Name()}
	if img.Short {
		img.normalized, _, _ = strings.Cut(name, "@")
		if i := strings.LastIndexByte(img.normalized, ':'); i > strings.LastIndexByte(img.normalized, '/') {
			img.normalized = img.normalized[:i]
		}
	}
	if tagged, ok := ref.(reference.Tagged); ok {
		img.Tag = tagged.Tag()
	}
	if digested, ok := ref.(reference.Digested); ok {
		img.Digest = digested.Digest().String()
	}
	switch {
	case img.Digest != "":
		img.normalized += "@" + img.Digest
	case img.Tag != "":
		img.normalized += ":" + img.Tag
	default:
		img.normalized += ":latest"
	}
	return img, nil
}

func hasRegistry(name string) bool {
	host, _, found := strings.Cut(name, "/")
	return found && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// Clip shortens what an administrator wrote for a message.
func Clip(text string) string {
	const most = 100
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}
