package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// TestFIPS has hosts of both kinds told to run in FIPS mode, which no reboot changes.
func TestFIPS(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ mode, state, reason string }{
		"not in FIPS mode": {
			mode: "0\n", state: mcfgv1.NodeStateDegraded,
			reason: `MachineConfig "rendered-4" sets fips, and this host is not in FIPS mode, which is chosen when a machine is installed: ` +
				"leave spec.fips out, or install the machine anew with the kernel argument fips=1",
		},
		"a kernel without FIPS": {
			state: mcfgv1.NodeStateDegraded,
			reason: `MachineConfig "rendered-4" sets fips, and this host is not in FIPS mode, which is chosen when a machine is installed: ` +
				"leave spec.fips out, or install the machine anew with the kernel argument fips=1",
		},
		"in FIPS mode": {mode: "1\n", state: mcfgv1.NodeStateDone},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mc := rendered("rendered-4", "1")
			mc.Spec.FIPS = true
			w := newWorld(t, mc)
			w.target("rendered-1", "1")
			w.settle()
			if tt.mode != "" {
				dir := filepath.Join(w.root, "proc/sys/crypto")
				require.NoError(t, os.MkdirAll(dir, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "fips_enabled"), []byte(tt.mode), 0o644))
			}
			w.target("rendered-4", "1")
			w.settle()
			assert.Equal(t, tt.state, w.node().Annotations[mcfgv1.AnnotationState])
			assert.Equal(t, tt.reason, w.node().Annotations[mcfgv1.AnnotationReason])
			assert.Zero(t, w.machine.boots, "no reboot changes it")
			w.target("rendered-1", "1")
			w.settle()
			assert.Equal(t, mcfgv1.NodeStateDone, w.node().Annotations[mcfgv1.AnnotationState], "the way back needs none either")
			assert.Zero(t, w.machine.boots)
		})
	}
}
