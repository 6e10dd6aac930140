package stack

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	// fleetNodes show that a rollout goes from one node to the next.
	fleetNodes = 3
	// fleetMemory is what a cluster of that many nodes needs, with builds on it.
	fleetMemory = 3 << 30
)

// Fleet is how many nodes with hosts this machine has the memory for, and why these are fewer than
// show a rollout; empty where they are enough.
func Fleet() (nodes int, why string, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, "", fmt.Errorf("reading how much memory there is: %w", err)
	}
	available, err := availableMemory(string(text))
	if err != nil {
		return 0, "", err
	}
	nodes, why = fleetIn(available)
	return nodes, why, nil
}

func fleetIn(available int64) (nodes int, why string) {
	if available >= fleetMemory {
		return fleetNodes, ""
	}
	return 1, fmt.Sprintf("One node instead of %d: %d MiB of memory are available, and %d MiB are needed (`--nodes` says otherwise).",
		fleetNodes, available>>20, fleetMemory>>20)
}

// availableMemory is what Linux says can be used without swapping, in bytes.
func availableMemory(meminfo string) (int64, error) {
	for line := range strings.Lines(meminfo) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemAvailable:" && fields[2] == "kB" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo says nothing of MemAvailable")
}
