package builds

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

func TestWaitingForATurnUsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	s := &scope{config: &mcfgv1.MachineOSConfig{}}
	s.config.Spec.BuildRetryLimit = new(int32)
	waits := fault.NewWaiting(mcfgv1.ReasonWaitingForTurn, time.Second, errors.New("another one goes first"))
	require.Equal(t, waits, s.judge(t.Context(), t.Context(), waits))
}
