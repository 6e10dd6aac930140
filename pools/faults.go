package pools

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams"
)

// renderFault gives an error of joining MachineConfigs its class. Joining is a function of objects,
// so the same ones always fail alike: someone has to change one.
func renderFault(err error) error {
	reason := mcfgv1.ReasonInvalidMachineConfig
	var mistake *machineconfigs.Error
	if errors.As(err, &mistake) {
		reason = cmp.Or(mistake.Reason, reason)
	}
	return fault.NewTerminal(reason, err)
}

// streamFault gives an error of choosing a stream its class. An OSImageStream of another release is
// rewritten by its own controller in the course of an upgrade, and its watch tells.
func streamFault(err error) error {
	var outdated *streams.OutdatedError
	if errors.As(err, &outdated) {
		return fault.NewWaiting(mcfgv1.ReasonWaitingForOSImageStream, 0, err)
	}
	var refused *streams.Error
	if errors.As(err, &refused) {
		return fault.NewTerminal(refused.Reason, err)
	}
	return err
}

// tooLarge is how refusals read that the API server passes on without a reason of its own: etcd's,
// and those of its client, which does not even send what is larger still.
var tooLarge = []string{"request is too large", "message larger than max"}

// storeFault gives an error of storing a rendered MachineConfig its class. One that is too large
// stays so; everything else may pass.
func storeFault(name string, err error) error {
	err = fmt.Errorf("storing rendered MachineConfig %q: %w", name, err)
	isTooLarge := apierrors.IsRequestEntityTooLargeError(err) ||
		slices.ContainsFunc(tooLarge, func(text string) bool { return strings.Contains(err.Error(), text) })
	if !isTooLarge {
		return err
	}
	return fault.NewTerminal(mcfgv1.ReasonRenderedConfigTooLarge,
		fmt.Errorf("the pool's MachineConfigs together are larger than the API server stores (about 1.5 MiB): make files smaller, or put them into the image: %w", err))
}
