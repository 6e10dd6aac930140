package power_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/host/power"
)

func TestFaults(t *testing.T) {
	t.Parallel()
	l := power.Line{Dir: filepath.Join(t.TempDir(), "line")}
	require.False(t, l.Has(power.DiskFull), "there is no file")
	require.NoError(t, l.Make())
	require.NoError(t, l.Make(), "it can be repeated")
	require.NoError(t, l.Set(power.DiskFull, power.NoBoot))
	require.True(t, l.Has(power.DiskFull))
	require.True(t, l.Has(power.NoBoot))
	require.False(t, l.Has(power.OldImage))
	require.NoError(t, l.Set())
	require.False(t, l.Has(power.DiskFull))
}

func TestAReboot(t *testing.T) {
	t.Parallel()
	l := power.Line{Dir: t.TempDir()}
	require.NoError(t, l.Make())
	require.ErrorContains(t, l.Ask(power.Reboot), `asking for "reboot": no one watches over this host`)

	errEnough := errors.New("enough")
	var asked []string
	listening, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		close(listening)
		ended <- l.Wait(func(what string) error {
			asked = append(asked, what)
			if len(asked) == 2 {
				return errEnough
			}
			return nil
		})
	}()
	<-listening
	for _, what := range []string{power.Reboot, power.SwitchOn} {
		for l.Ask(what) != nil { // the reader opens the pipe a moment later
		}
	}
	require.ErrorIs(t, <-ended, errEnough)
	require.Equal(t, []string{power.Reboot, power.SwitchOn}, asked)
}
