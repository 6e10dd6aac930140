package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFleet(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		meminfo string
		nodes   int
		why     string
	}{
		"three nodes where memory allows": {
			meminfo: "MemTotal:       24684540 kB\nMemFree:        13164544 kB\nMemAvailable:   22707200 kB\n", nodes: 3,
		},
		"one node where it does not, with the reason": {
			meminfo: "MemTotal:        4028888 kB\nMemAvailable:    2097152 kB\nHugePages_Total:       0\n", nodes: 1,
			why: "One node instead of 3: 2048 MiB of memory are available, and 3072 MiB are needed (`--nodes` says otherwise).",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			available, err := availableMemory(tc.meminfo)
			require.NoError(t, err)
			nodes, why := fleetIn(available)
			require.Equal(t, tc.nodes, nodes)
			require.Equal(t, tc.why, why)
		})
	}
	t.Run("what Linux does not say is an error", func(t *testing.T) {
		t.Parallel()
		for _, meminfo := range []string{"", "MemAvailable: 1\n", "MemAvailable: many kB\n"} {
			_, err := availableMemory(meminfo)
			require.Error(t, err, meminfo)
		}
	})
	nodes, _, err := Fleet()
	require.NoError(t, err)
	require.Contains(t, []int{1, fleetNodes}, nodes)
}
