//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package process

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
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
	stat, err := os.ReadFile("/proc/1/stat")
	if err != nil {
		return nil
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return nil
	}
	age, err := ageOf(string(stat), string(uptime))
	if err != nil {
		return nil
	}
	return options.Clock.After(max(time.Duration(instructions.TimeoutSeconds)*time.Second-age, 0))
}

// ageOf is how long a process runs, of its /proc/<pid>/stat and of /proc/uptime.
func ageOf(stat, uptime string) (time.Duration, error) {
	const (
		started = 19 // after the name, which may have any characters in it
		ticks   = 100
	)
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	now, _, _ := strings.Cut(uptime, " ")
	if len(fields) <= started {
		return 0, fmt.Errorf("it has %d fields", len(fields))
	}
	start, err := strconv.ParseInt(fields[started], 10, 64)
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.ParseFloat(now, 64)
	if err != nil {
		return 0, err
	}
	return time.Duration(seconds*float64(time.Second)) - time.Duration(start)*time.Second/ticks, nil
}
