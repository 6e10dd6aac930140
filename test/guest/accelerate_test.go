package guest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVirtualizes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cpuinfo string
		want    bool
	}{
		"Intel's":                         {"processor\t: 0\nflags\t\t: fpu vmx sse\nbugs\t\t: x\n", true},
		"AMD's":                           {"flags\t\t: fpu svm", true},
		"a virtual machine without":       {"vendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor vmx_like\n", false},
		"a processor that says no flags":  {"Features\t: fp asimd\n", false},
		"a flag of something else's list": {"vmx flags\t: vmx\nflags\t: fpu\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, virtualizes(tt.cpuinfo))
		})
	}
}

func TestTry(t *testing.T) {
	t.Parallel()
	if _, err := look(emulator); err != nil {
		t.Skip((&MissingError{emulator, emulatorPackage}).Error())
	}
	for name, tt := range map[string]struct {
		accelerator []string
		want        bool
	}{
		"a machine that starts":           {byEmulation, true},
		"one that QEMU refuses to start":  {[]string{"-accel", "tcg", "-cpu", "none-such"}, false},
		"an accelerator that is not here": {[]string{"-accel", "none-such"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			works, err := try(t.Context(), t.TempDir(), tt.accelerator)
			require.NoError(t, err)
			require.Equal(t, tt.want, works)
		})
	}
}
