package containerfiles

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
)

// kind is what a name in FROM, COPY --from and RUN --mount=from= stands for.
type kind int

const (
	isImage   kind = iota
	isStage        // an earlier stage of the file
	isOffered      // a stage that is rendered in front of the file
	isScratch
	isWrong
)

// named is a name with what it stands for.
type named struct {
	kind    kind
	text    string // variables expanded
	offered string // StageBase or StageBaseWithConfigs
	stage   int
	reason  string // of isWrong
	err     error
}

func wrong(reason, format string, args ...any) named {
	return named{kind: isWrong, reason: reason, err: fmt.Errorf(format, args...)}
}

// offeredStage is StageBase or StageBaseWithConfigs for each way to write them.
func offeredStage(name string) (string, bool) {
	switch strings.ToLower(name) {
	case StageBase:
		return StageBase, true
	case StageBaseWithConfigs, StageConfigs:
		return StageBaseWithConfigs, true
	default:
		return "", false
	}
}

const offeredNames = StageBase + ", " + StageBaseWithConfigs + " or " + StageConfigs

// resolver says what names stand for.
type resolver struct {
	stages []Stage
	byName map[string][]int // by name in lower case
}

func newResolver(stages []Stage) resolver {
	r := resolver{stages: stages, byName: map[string][]int{}}
	for i, s := range stages {
		if s.Name != "" {
			key := strings.ToLower(s.Name)
			r.byName[key] = append(r.byName[key], i)
		}
	}
	return r
}

// from resolves the expanded name in the FROM instruction of a stage.
func (r resolver) from(name string, at int) named {
	switch {
	case name == "":
		return wrong(ReasonEmptyBase, "the name of the image is empty")
	case name == "scratch":
		return named{kind: isScratch, text: name}
	case isNumber(name):
		return wrong(ReasonStageByNumber, "a stage cannot start from another one by its number")
	}
	return r.stageOrImage(name, at)
}

// copied resolves the expanded name of a COPY --from.
func (r resolver) copied(name string, at int) named {
	if !isNumber(name) {
		return r.stageOrSource(name, at)
	}
	n, err := strconv.Atoi(name)
	if err != nil || n >= at {
		return wrong(ReasonUnknownStage, "there is no stage %s before this one: they are counted from 0", clip(name))
	}
	return named{kind: isStage, text: name, stage: n}
}

// mounted resolves the expanded name in a RUN --mount=from=.
func (r resolver) mounted(name string, at int) named {
	if isNumber(name) {
		return wrong(ReasonStageByNumber, "a mount cannot name a stage by its number")
	}
	return r.stageOrSource(name, at)
}

func (r resolver) stageOrSource(name string, at int) named {
	switch name {
	case "":
		return wrong(ReasonUnknownStage, "the name of the stage or image is empty")
	case "scratch":
		return wrong(ReasonUnknownStage, "there is nothing in scratch to take")
	}
	found := r.stageOrImage(name, at)
	if found.kind == isImage && !strings.ContainsAny(name, "/:@") {
		return wrong(ReasonUnknownStage, "no stage before this one is named %q, and it is no image with a registry or a tag", clip(name))
	}
	return found
}

func (r resolver) stageOrImage(name string, at int) named {
	if same := r.byName[strings.ToLower(name)]; len(same) > 0 {
		return r.stageOf(name, at, same)
	}
	if offered, ok := offeredStage(name); ok {
		return named{kind: isOffered, text: name, offered: offered}
	}
	if _, err := parseImage(name); err != nil {
		return wrong(ReasonInvalidImage, "%q is no name of an image: %w", clip(name), err)
	}
	return named{kind: isImage, text: name}
}

// stageOf picks the last stage before this one among those of a name, which may be written in
// different cases.
func (r resolver) stageOf(name string, at int, same []int) named {
	n, _ := slices.BinarySearch(same, at)
	if n == 0 {
		s := r.stages[same[0]]
		return wrong(ReasonLaterStage, "the stage %q is not there yet: it is on line %d", clip(s.Name), s.Line)
	}
	for i := n - 1; i >= 0; i-- {
		if r.stages[same[i]].Name == name {
			return named{kind: isStage, text: name, stage: same[i]}
		}
	}
	s := r.stages[same[n-1]]
	return wrong(ReasonStageNameCase, "the stage on line %d is named %q: Buildah tells upper and lower case apart", s.Line, clip(s.Name))
}

func isNumber(name string) bool {
	return name != "" && strings.Trim(name, "0123456789") == ""
}

// image is a name of an image.
type image struct {
	normalized string
	short      bool // no registry
	tag        string
	digest     string
}

var (
	errTransport    = errors.New("images are pulled from registries only; write it without a transport such as docker://")
	errTagAndDigest = errors.New("it has a tag and a digest, of which Buildah takes one")
)

// parseImage reads a name of an image by the rules of distribution/reference, but adds no registry
// to a short name: which one it stands for depends on the registries.conf of the place that pulls
// it.
func parseImage(name string) (image, error) {
	if i := strings.Index(name, ":"); i > 0 && strings.HasPrefix(name[i+1:], "/") {
		return image{}, errTransport
	}
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return image{}, err
	}
	img := image{short: !hasRegistry(name), normalized: ref.Name()}
	if img.short {
		img.normalized, _, _ = strings.Cut(name, "@")
		if i := strings.LastIndexByte(img.normalized, ':'); i > strings.LastIndexByte(img.normalized, '/') {
			img.normalized = img.normalized[:i]
		}
	}
	if tagged, ok := ref.(reference.Tagged); ok {
		img.tag = tagged.Tag()
	}
	if digested, ok := ref.(reference.Digested); ok {
		img.digest = digested.Digest().String()
	}
	switch {
	case img.digest != "" && img.tag != "":
		return image{}, errTagAndDigest
	case img.digest != "":
		img.normalized += "@" + img.digest
	case img.tag != "":
		img.normalized += ":" + img.tag
	default:
		img.normalized += ":latest"
	}
	return img, nil
}

func hasRegistry(name string) bool {
	host, _, found := strings.Cut(name, "/")
	return found && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// clip shortens what an administrator wrote for a message.
func clip(text string) string {
	const most = 100
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}
