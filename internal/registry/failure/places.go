package failure

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// OfPlaces is the error of an image that none of its places gave, with what each of them said, and
// why others were not asked. If one may give it later, so may the whole; it does not exist only if
// each that was asked says so.
func OfPlaces(doing, subject string, errs []error, refused []string) error {
	if len(errs) == 1 && len(refused) == 0 {
		return errs[0]
	}
	whole := &Error{Doing: doing, Subject: subject}
	whole.Class, whole.Reason, whole.Kind = fault.Terminal, mcfgv1.ReasonImageNotFound, Denied
	said := refused
	if len(errs) > 0 {
		decisive := errs[0]
		for _, err := range errs[1:] {
			if rank(err) < rank(decisive) {
				decisive = err
			}
		}
		whole.Class, whole.Reason, whole.Kind = fault.ClassOf(decisive), fault.Reason(decisive), kindOf(decisive)
		// What is wrapped has no class of its own: the whole says it.
		whole.err = errors.New(fault.Message(decisive))
		var known *Error
		if errors.As(decisive, &known) {
			whole.err, whole.Status = known.err, known.Status
		}
		said = nil
		for _, err := range errs {
			said = append(said, fault.Message(err))
		}
		said = append(said, refused...)
	}
	whole.Problem = cmp.Or(strings.Join(said, "; "), "it has no place")
	if len(said) > 1 {
		whole.Problem = fmt.Sprintf("no place of %d has it: %s", len(said), whole.Problem)
	}
	return whole.marked()
}

// rank orders errors: what may pass comes first, and that something does not exist last.
func rank(err error) int {
	rank := 2 * int(fault.ClassOf(err)) //nolint:mnd // each class has two
	if IsNotFound(err) {
		rank++
	}
	return rank
}
