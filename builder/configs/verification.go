package configs

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/status"
)

// verdict is why an image that was built is not rolled out: its verification has not ended, or did
// not pass.
type verdict struct {
	reason, message string
	// isFinal reports whether a person has to act.
	isFinal bool
}

// verdictOf is what the wanted image's verification says against it; nil if nothing. That the image
// is verified counts only where it passed a test: that no one asked for one may have been written
// before someone did. An image that the installer had built is not tested.
func verdictOf(s *scope) *verdict {
	if s.config.Spec.Verification == nil || s.build == nil {
		return nil
	}
	if _, preBuilt := s.build.Annotations[mcfgv1.AnnotationPreBuiltImage]; preBuilt {
		return nil
	}
	waits := &verdict{reason: mcfgv1alpha1.ReasonVerificationPending, message: "the verification of the image has not begun"}
	image := wantedImage(s)
	if image == nil {
		return waits
	}
	c := status.Find(image.Status.Conditions, mcfgv1alpha1.ImageVerified)
	switch {
	case c == nil:
		return waits
	case c.Status == metav1.ConditionTrue && c.Reason == mcfgv1alpha1.ReasonVerified:
		return nil
	case c.Status == metav1.ConditionTrue:
		return waits
	}
	out := &verdict{reason: c.Reason, message: c.Message}
	switch c.Reason {
	case mcfgv1alpha1.ReasonVerificationFailed:
		out.isFinal = true
		if result := image.Status.Verification; result != nil {
			kind := "Job"
			if s.config.Spec.Verification.Type == mcfgv1.PipelineBuilder {
				kind = "PipelineRun"
			}
			out.message += fmt.Sprintf("; fix the image's inputs or the test, or delete %s %q to run the test again", kind, result.Job)
		}
	case mcfgv1alpha1.ReasonInvalidVerification, mcfgv1alpha1.ReasonVerificationUnavailable:
		out.isFinal = true
	}
	return out
}

// wantedImage is the object of the wanted image; nil where there is none. Others may have the same
// image, or say that the same build made them: another MachineOSConfig's, which asks for another
// test, and what the build had made before it was made again.
func wantedImage(s *scope) *mcfgv1alpha1.MachineOSImage {
	named := owner.ImageNames(s.config.Spec.MachineConfigPool.Name, s.build.Status.DigestedImagePushSpec)
	for i := range s.images {
		image := &s.images[i]
		if slices.Contains(named, image.Name) && image.Spec.PullSpec == s.build.Status.DigestedImagePushSpec && metav1.IsControlledBy(image, s.config) {
			return image
		}
	}
	return nil
}

// summary is what the MachineOSConfig says: the image is there, and nodes keep the one that they
// have. That may be this one, where someone asks for another test.
func (v *verdict) summary(s *scope) status.Summary {
	out := status.Summary{State: status.StateReconciling, Reason: v.reason}
	how := "is not rolled out yet"
	if v.isFinal {
		out.State, how = status.StateStalled, "is not rolled out"
	}
	if s.config.Status.CurrentImagePullSpec == s.build.Status.DigestedImagePushSpec {
		how = "stays current, but is not rolled out to more nodes"
	}
	out.Message = fmt.Sprintf("the image of build %q %s: %s", s.build.Name, how, v.message)
	return out
}

// ofPool is what it means for a pool.
func (v *verdict) ofPool(pool string) poolImage {
	if v.isFinal {
		return poolImage{
			is: mcfgv1.PoolBuildFailed, reason: v.reason, degraded: true,
			message: fmt.Sprintf("Image built for pool %s is not verified: %s: %s", pool, v.reason, v.message),
		}
	}
	return poolImage{is: mcfgv1.PoolBuilding, reason: v.reason, message: fmt.Sprintf("Image built for pool %s waits for its verification: %s", pool, v.message)}
}

// imageJudged lets through that the verification of an image went on, and that the image became
// ready or is not any more.
func imageJudged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, // its build is watched, which ends later
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isImage := e.ObjectOld.(*mcfgv1alpha1.MachineOSImage)
			after, isImageToo := e.ObjectNew.(*mcfgv1alpha1.MachineOSImage)
			if !isImage || !isImageToo {
				return false
			}
			was, is := before.Status.Conditions, after.Status.Conditions
			return status.IsTrue(was, status.Ready) != status.IsTrue(is, status.Ready) ||
				!reflect.DeepEqual(status.Find(was, mcfgv1alpha1.ImageVerified), status.Find(is, mcfgv1alpha1.ImageVerified))
		},
	}
}
