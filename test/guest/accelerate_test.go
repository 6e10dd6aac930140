package guest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
