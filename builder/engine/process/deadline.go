//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package process

import (
	"encoding/json"
	"os"
	"time"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine"
)

// deadline tells when the time of the steps is over; nil where something else sees to that. It is
// counted from the start of the container: Tekton starts those of all steps side by side.
func deadline(options *engine.Options) <-chan time.Time {
	text, err := os.ReadFile(options.Paths.Instructions)
	var instructions backend.Instructions
	if err != nil || json.Unmarshal(text, &instructions) != nil || instructions.TimeoutSeconds <= 0 {
		return nil // the worker says what is wrong with them
	}
	age, isKnown := engine.ContainerAge()
	if !isKnown {
		return nil
	}
	return options.Clock.After(max(time.Duration(instructions.TimeoutSeconds)*time.Second-age, 0))
}
