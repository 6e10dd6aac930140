//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ContainerAge is how long the container of this process runs, if that is known. Tekton starts the
// containers of all steps side by side, so that it is the age of the build.
func ContainerAge() (age time.Duration, isKnown bool) {
	stat, err := os.ReadFile("/proc/1/stat")
	if err != nil {
		return 0, false
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, false
	}
	age, err = ageOf(string(stat), string(uptime))
	return age, err == nil
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
