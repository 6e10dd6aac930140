package plan

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Record is what a build keeps of its inputs, so that the next build can say what changed. Keys
// decide; a record only explains, so it may be coarser than the inputs.
type Record struct {
	// Level is how much was left out to make it small.
	Level Level `json:"level,omitempty"`
	// Keys are those of the inputs before anything was left out.
	Keys Keys `json:"keys"`
	// Inputs are the rest.
	Inputs Inputs `json:"inputs"`
}

// Level is how coarse a record is.
type Level int

// The levels, from fine to coarse. Each leaves out what those before it do.
const (
	// Full has everything, with shorter hashes.
	Full Level = iota
	// WithoutText has a hash in place of each Containerfile: which lines differ is not told.
	WithoutText
	// WithoutItems has one hash for all of the configuration, and one for what RUN lines see: which
	// file differs is not told.
	WithoutItems
	coarsest = WithoutItems
)

// recordedHash is how much of a hash is recorded, in characters: enough to tell two versions of one
// file apart.
const recordedHash = 16

// maxRecord bounds what is read of an annotation, in bytes.
const maxRecord = 4 << 20

// at are the inputs as a record of a level that is as coarse, or coarser, has them.
func (r *Record) at(level Level) Inputs {
	out := r.Inputs.canonical()
	if r.Level < WithoutText && level >= WithoutText {
		for i, file := range out.Containerfiles {
			out.Containerfiles[i].Text = hashOf(file.Text)
		}
	}
	if r.Level < WithoutItems && level >= WithoutItems && len(out.Config) > 0 {
		out.Config = together("configuration", out.Config)
	}
	if r.Level < WithoutItems && level >= WithoutItems && len(out.BuildInputs) > 0 {
		out.BuildInputs = together("build inputs", out.BuildInputs)
	}
	return out
}

// together is one item in place of many.
func together(name string, items []Item) []Item {
	k := newKey("record.v1")
	k.items(items)
	return []Item{{Name: name, Hash: k.sum()[:recordedHash]}}
}

func hashOf(text string) string {
	k := newKey("record.v1")
	k.field(text)
	return k.sum()[:recordedHash]
}

func shortened(items []Item) []Item {
	items = slices.Clone(items)
	for i := range items {
		items[i].Hash = items[i].Hash[:min(len(items[i].Hash), recordedHash)]
	}
	return items
}

// Record keeps the inputs.
func (in *Inputs) Record() *Record {
	r := &Record{Keys: in.Keys(), Inputs: in.canonical()}
	r.Inputs.Config, r.Inputs.BuildInputs = shortened(r.Inputs.Config), shortened(r.Inputs.BuildInputs)
	return r
}

// Fit is the record as finely as its inputs fit into limit bytes of JSON, and very coarsely where
// nothing does.
func (r *Record) Fit(limit int) (*Record, error) {
	for level := r.Level; ; level++ {
		out := &Record{Level: level, Keys: r.Keys, Inputs: r.at(level)}
		text, err := json.Marshal(out.Inputs)
		if err != nil {
			return nil, fmt.Errorf("recording the inputs of a build: %w", err)
		}
		if len(text) <= limit || level >= coarsest {
			return out, nil
		}
	}
}

// RecordOf is what a build keeps of its inputs; nil where someone else has requested it. Builds of
// earlier versions keep it in an annotation.
func RecordOf(build *mcfgv1.MachineOSBuild) (*Record, error) {
	if d := build.Spec.Decision; d != nil {
		return &Record{Level: Level(d.InputsLevel), Keys: Keys{Content: d.ContentKey, Build: d.BuildKey}, Inputs: Inputs(d.Inputs)}, nil
	}
	text, has := build.Annotations[mcfgv1.AnnotationBuildInputs]
	if !has {
		return nil, nil
	}
	zip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil {
		return nil, fmt.Errorf("reading the recorded inputs of a build: %w", err)
	}
	r := &Record{}
	if err := json.NewDecoder(io.LimitReader(zip, maxRecord)).Decode(r); err != nil {
		return nil, fmt.Errorf("reading the recorded inputs of a build: %w", err)
	}
	return r, nil
}

// Changes says which inputs differ between two recorded builds, as finely as both records allow.
func (r *Record) Changes(newer *Record) []Change {
	level := max(r.Level, newer.Level)
	before, after := r.at(level), newer.at(level)
	return Explain(&before, &after)
}

// whyLength is the length of MachineOSBuild.status.why in characters.
const whyLength = 128

// Why says what a build is for: the kinds of input that differ from the build before, and a few
// words. Before is nil where there is none; cause is why it is made though nothing differs, or
// empty. Where nothing differs for no cause, as after a change of repository, only the image is
// missing there.
func Why(before, newer *Record, cause mcfgv1.BuildInput) ([]mcfgv1.BuildInput, string) {
	var changed []mcfgv1.BuildInput
	var phrases []string
	if phrase, known := causes[cause]; known {
		changed, phrases = append(changed, cause), append(phrases, phrase)
	}
	if before == nil {
		if len(changed) == 0 {
			return []mcfgv1.BuildInput{mcfgv1.BuildInputFirstBuild}, "first build of the pool"
		}
		return changed, phrases[0]
	}
	changes := before.Changes(newer)
	for _, change := range changes {
		phrases = append(phrases, change.String())
	}
	if len(phrases) == 0 {
		return changed, "the repository has no image of these inputs"
	}
	return append(changed, ChangedInputs(changes)...), fit(phrases, whyLength)
}

// causes are those of builds that are made though no input differs.
var causes = map[mcfgv1.BuildInput]string{
	mcfgv1.BuildInputRebuildRequested: "a rebuild was asked for",
	mcfgv1.BuildInputImageMissing:     "the registry had lost the image",
}

// fit joins as many phrases as fit into limit characters, and says how many more there are. The
// first is there in any case, cut if need be.
func fit(phrases []string, limit int) string {
	for n := len(phrases); n > 0; n-- {
		text := strings.Join(phrases[:n], "; ")
		if more := len(phrases) - n; more > 0 {
			text += fmt.Sprintf("; and %d more changes", more)
		}
		if runes := []rune(text); len(runes) <= limit {
			return text
		} else if n == 1 {
			const dots = "..."
			return string(runes[:limit-len(dots)]) + dots
		}
	}
	return ""
}
