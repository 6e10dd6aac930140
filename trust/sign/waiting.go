package sign

import (
	"context"
	"errors"
	"fmt"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

// Waits of signatures.
const (
	// Again is when signing is tried again, where the caller gives no time.
	Again = 5 * time.Second
	// DeniedAgain is when it is where the registry refused: a person has to act.
	DeniedAgain = time.Minute
)

// AsWaiting makes an error of attesting or signing one that a build waits for.
func AsWaiting(err error, what string) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	after := Again
	switch {
	case fault.Reason(err) == mcfgv1alpha1.ReasonNotSigned: // a user removed the signature again
	case fault.IsTerminal(err) && !registry.IsNotFound(err):
		after = DeniedAgain
	case fault.After(err) > 0:
		after = fault.After(err)
	}
	return fault.NewWaiting(mcfgv1.ReasonWaitingForSignature, after, fmt.Errorf("%s: %w", what, err))
}
