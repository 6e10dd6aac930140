package backend

import (
	"encoding/json"
	"fmt"
	"strings"
)

// ProgressPrefix begins each line of a step's standard output that is a Progress in JSON. All other
// lines are for people.
const ProgressPrefix = "##layerwright "

// Progress is how far a step is.
type Progress struct {
	Step Step `json:"step"`
	// Done and Total count bytes in Fetch and Push, instructions in Build, and layers in Export.
	// Total is 0 while it is not known.
	Done  int64 `json:"done"`
	Total int64 `json:"total,omitempty"`
	// Now is what it does: the image, or the instruction with its line.
	Now string `json:"now,omitempty"`
}

// ReadProgress takes progress from a line of a log, if it is that.
func ReadProgress(line string) (p Progress, found bool) {
	text, is := strings.CutPrefix(line, ProgressPrefix)
	return p, is && json.Unmarshal([]byte(text), &p) == nil
}

// String is how far the step is, for people.
func (p Progress) String() string {
	text := ""
	switch unit := int64(1e6); {
	case p.Step == Build && p.Total > 0:
		text = fmt.Sprintf("instruction %d of %d", p.Done, p.Total)
	case p.Step == Build:
		text = fmt.Sprintf("instruction %d", p.Done)
	case p.Step == Export:
		text = fmt.Sprintf("layer %d of %d", p.Done, p.Total)
	case p.Total > 0:
		text = fmt.Sprintf("%d of %d MB", p.Done/unit, p.Total/unit)
	default:
		text = fmt.Sprintf("%d MB", p.Done/unit)
	}
	if p.Now != "" {
		text += ": " + cutLine(p.Now)
	}
	return text
}

// cutLine keeps what is shown of an instruction or an image to a line.
func cutLine(text string) string {
	const width = 120
	text, _, _ = strings.Cut(text, "\n")
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width]) + "..."
	}
	return text
}
