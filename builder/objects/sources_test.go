package objects_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs/layer"
)

func TestNothingIsReadForOneWhoWaits(t *testing.T) {
	t.Parallel()
	about := &layer.Error{MachineConfig: "rendered-a", Path: layer.FieldOSImageURL, Err: errors.New("it waits")}
	for name, c := range map[string]struct {
		err   error
		reads int
	}{
		"waiting for others":      {fault.NewWaiting(mcfgv1.ReasonWaitingForTurn, 1, about), 0},
		"an error about no field": {errors.New("gone"), 0},
		"a refusal":               {fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, about), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reads := 0
			from := interceptor.NewClient(fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).Build(), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					reads++
					return c.Get(ctx, key, o, options...)
				},
			})
			require.Equal(t, c.err, objects.NameSources(t.Context(), from, "worker", c.err))
			require.Equal(t, c.reads, reads)
		})
	}
}
