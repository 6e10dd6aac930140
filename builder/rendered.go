package builder

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

// rendered reads a rendered MachineConfig. Those that builds name are kept.
func (b *Builder) rendered(ctx context.Context, name string) (*machineconfigs.Config, error) {
	mc, err := b.renderedContent(ctx, name)
	if err != nil {
		return nil, err
	}
	config, err := machineconfigs.Parse(mc)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	return config, nil
}

// renderedObject is shared with the cache, and only read. It may lack its content.
func (b *Builder) renderedObject(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	return readRendered(ctx, b.client, name)
}

// renderedContent has all of the content, which the cache does not.
func (b *Builder) renderedContent(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	return readRendered(ctx, b.reader, name)
}

func readRendered(ctx context.Context, reader client.Reader, name string) (*mcfgv1.MachineConfig, error) {
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
