package status

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/layerwright/layerwright/internal/fault"
)

// ConflictDelay is the time after which a reconcile is repeated that lost a race: as a rule the
// informer has the newer object long before, and its event comes first. The delay is for the case
// that a predicate drops that event.
const ConflictDelay = time.Second

// Result turns the error of a reconcile into what controller-runtime does next:
//   - Waiting comes back after its time (or that of res, if sooner) and is no error;
//   - Terminal is reconcile.TerminalError: counted and logged once, not repeated until a watch
//     event reports a change;
//   - a conflict is retried after ConflictDelay and is no error, since a lost race is not worth a
//     log line;
//   - everything else is returned, for controller-runtime to log and to repeat with backoff.
func Result(res reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case err == nil:
		return res, nil
	case fault.IsWaiting(err):
		return within(res, fault.After(err)), nil
	case fault.IsTerminal(err):
		return reconcile.Result{}, reconcile.TerminalError(err)
	case apierrors.IsConflict(err):
		return within(res, ConflictDelay), nil
	default:
		return reconcile.Result{}, err
	}
}

// within is res, coming back after the given time at the latest; zero sets no limit.
func within(res reconcile.Result, after time.Duration) reconcile.Result {
	if after > 0 && (res.RequeueAfter <= 0 || after < res.RequeueAfter) {
		res.RequeueAfter = after
	}
	return res
}
