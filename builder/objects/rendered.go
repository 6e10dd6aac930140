package objects

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs"
)

// ReadConfiguration reads the configuration of a rendered MachineConfig. Those that builds name are
// kept.
func ReadConfiguration(ctx context.Context, from client.Reader, name string) (*machineconfigs.Config, error) {
	mc, err := ReadRendered(ctx, from, name)
	if err != nil {
		return nil, err
	}
	config, err := machineconfigs.Parse(mc)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	return config, nil
}

// ReadRendered reads a rendered MachineConfig. It is shared with the cache, and only read; there it
// lacks its content.
func ReadRendered(ctx context.Context, reader client.Reader, name string) (*mcfgv1.MachineConfig, error) {
	mc := &mcfgv1.MachineConfig{}
	err := reader.Get(ctx, client.ObjectKey{Name: name}, mc, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, fault.NewWaiting(mcfgv1.ReasonWaitingForPool, time.Second, fmt.Errorf("the rendered MachineConfig %q is not there", name))
	}
	if err != nil {
		return nil, fmt.Errorf("reading MachineConfig %q: %w", name, err)
	}
	return mc, nil
}
