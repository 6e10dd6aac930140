package objects

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
)

// CountAttempt notes on the build that an attempt failed, and ends the build with the last one that
// the limit allows. The count is in the object, so that a process that dies starts no new one.
func CountAttempt(ctx context.Context, c client.Client, build *mcfgv1.MachineOSBuild, limit int, failure error) error {
	count := AttemptsOf(build, limit)
	if count.AndOne().IsSpent() {
		return fault.NewTerminal(mcfgv1.ReasonRetryLimitReached, fmt.Errorf("%s (spec.buildRetryLimit) failed: %w", count, failure))
	}
	return errors.Join(failure, Annotate(ctx, c, build, mcfgv1.AnnotationFailedAttempts, strconv.Itoa(count.AndOne().Failed)))
}

// Annotate notes something on the build.
func Annotate(ctx context.Context, c client.Client, build *mcfgv1.MachineOSBuild, key, value string) error {
	return status.ChangeMetadata(ctx, c, build, func(b *mcfgv1.MachineOSBuild) { metav1.SetMetaDataAnnotation(&b.ObjectMeta, key, value) })
}
