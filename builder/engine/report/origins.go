package report

import (
	"fmt"
	"slices"

	"github.com/layerwright/layerwright/builder/backend"
)

// Origins say where the lines of a rendered Containerfile are from.
type Origins []backend.LineOrigin

// Place is a line of the rendered Containerfile in the words of whom it concerns: `Containerfile
// line 7` for one that the administrator wrote, what it is for where it was added, and the line as
// it is where no one knows.
func (o Origins) Place(line int) string {
	for _, origin := range o {
		switch {
		case line < origin.First || line > origin.Last:
		case origin.Admin > 0:
			return fmt.Sprintf("Containerfile line %d", origin.Admin+line-origin.First)
		case origin.What != "":
			return origin.What
		}
	}
	return fmt.Sprintf("rendered Containerfile line %d", line)
}

// IsAdded reports whether a line was added for something that has a name.
func (o Origins) IsAdded(line int) bool {
	return slices.ContainsFunc(o, func(origin backend.LineOrigin) bool {
		return line >= origin.First && line <= origin.Last && origin.Admin == 0 && origin.What != ""
	})
}
