package survey

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// NoBuildError is of a name that is neither a build nor a pool with one.
type NoBuildError struct {
	Name string
	// Builds are those that there are, the newest first.
	Builds []string
}

func (e *NoBuildError) Error() string {
	if len(e.Builds) == 0 {
		return fmt.Sprintf("%q is neither a MachineOSBuild nor a pool that has one; there are no builds", e.Name)
	}
	return fmt.Sprintf("%q is neither a MachineOSBuild nor a pool that has one; the newest build is %s (kubectl get machineosbuilds)", e.Name, e.Builds[0])
}

// Build finds a build by its name, or the newest one of a pool.
func Build(ctx context.Context, from client.Reader, name string) (*mcfgv1.MachineOSBuild, error) {
	build := &mcfgv1.MachineOSBuild{}
	err := from.Get(ctx, client.ObjectKey{Name: name}, build)
	if err == nil {
		return build, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading MachineOSBuild %s: %w", name, err)
	}
	var all mcfgv1.MachineOSBuildList
	if err := from.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing machineosbuilds: %w", err)
	}
	slices.SortFunc(all.Items, func(a, b mcfgv1.MachineOSBuild) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	none := &NoBuildError{Name: name}
	for i := range all.Items {
		if all.Items[i].Spec.MachineOSConfig.Name == name {
			return &all.Items[i], nil
		}
		none.Builds = append(none.Builds, all.Items[i].Name)
	}
	return nil, none
}
