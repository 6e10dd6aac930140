package report

import (
	"encoding/json"
	"fmt"

	"github.com/layerwright/layerwright/builder/backend"
)

// Expected are the Fingerprints by folder that a step has to find: expected is
// backend.ExpectedVariable, and of backend.ExpectedOfVariable.
func Expected(expected, of string) (folders map[string]string, err error) {
	if of == "" {
		err = json.Unmarshal([]byte(expected), &folders)
	} else {
		var all map[string]map[string]string
		if err = json.Unmarshal([]byte(expected), &all); err == nil && all[of] == nil {
			err = fmt.Errorf("it has no entry %q", of)
		}
		folders = all[of]
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", backend.ExpectedVariable, err)
	}
	return folders, nil
}
