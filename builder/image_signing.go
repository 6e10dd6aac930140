package builder

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/sign"
	"github.com/layerwright/layerwright/internal/status"
)

// Signer signs images; *sign.Signer is one.
type Signer interface {
	// Sign signs an image by its digest, in the registry that the client is for. It can be repeated: what is signed is not signed again.
	Sign(ctx context.Context, images sign.Registry, pinned string) (sign.Signature, error)
}

// Waits of signatures.
const (
	// signAgain is when a build tries again to have its image signed, where nobody says a time.
	signAgain = 5 * time.Second
	// deniedAgain is when it does so where the registry refused: a person has to act.
	deniedAgain = time.Minute
	// recheckSignature and recheckSpread are when it is made sure that an image still has its signature, by the cluster's key of then.
	recheckSignature = 10 * time.Minute
	recheckSpread    = 2 * time.Minute
)

// isSigned tells whether an image has been signed, by whatever key the cluster had.
func isSigned(image *mcfgv1alpha1.MachineOSImage) bool {
	return image.Status.Signature != nil && status.IsTrue(image.Status.Conditions, mcfgv1alpha1.ImageSigned)
}

// signBuilt has the image of a build signed before the build succeeds. Whatever keeps it from that, the image stays: the build waits, and nothing
// is built again.
func (r *buildReconciler) signBuilt(ctx context.Context, s *buildScope, image *mcfgv1alpha1.MachineOSImage) error {
	if r.options.Signer == nil || isSigned(image) || isPreBuilt(image) {
		return nil
	}
	err := r.signImage(ctx, s.config, image)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if registry.IsNotFound(err) { // somebody removed it: it is made again
		s.build.Status.DigestedImagePushSpec = ""
		return fault.NewWaiting(mcfgv1.ReasonWaitingForSignature, signAgain, err)
	}
	return untilSigned(err, "the image was pushed and is not signed yet")
}

// signImage signs an image and writes down in its object how that ended. An image has one signing at a time in this process.
func (b *Builder) signImage(ctx context.Context, config *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage) error {
	unlock := b.signings.lock(image.Name)
	defer unlock()
	before, begin := image.DeepCopy(), b.clock.Now()
	signed, err := b.signWith(ctx, config, image)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	setSigned(image, signed, begin, err)
	patch := status.NewPatcher(b.client, before, status.Owning(mcfgv1alpha1.ImageSigned), status.KeepGeneration())
	lost, written := patch.Finish(ctx, image, ctrl.Result{}, nil)
	if written == nil && lost.RequeueAfter > 0 {
		written = fmt.Errorf("writing the status of MachineOSImage %q: it has changed meanwhile", image.Name)
	}
	if written != nil {
		return fault.Join(err, written)
	}
	if image.ResourceVersion != before.ResourceVersion {
		b.options.Metrics.Signed(image.Spec.MachineConfigPool, ended(err), b.clock.Since(begin))
		b.reportSigned(ctx, before, image, signed, err)
	}
	return err
}

func (b *Builder) signWith(ctx context.Context, config *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage) (sign.Signature, error) {
	credentials, err := b.checker.Credentials(ctx, config)
	if credentials.Push == nil {
		return sign.Signature{}, err
	}
	return b.options.Signer.Sign(ctx, credentials.Push, string(image.Spec.PullSpec))
}

// setSigned writes down how signing ended. An image that was signed stays signed, whatever happens to the key afterwards: its signature is there.
func setSigned(image *mcfgv1alpha1.MachineOSImage, signed sign.Signature, now time.Time, err error) {
	c := metav1.Condition{
		Type: mcfgv1alpha1.ImageSigned, Status: metav1.ConditionTrue, Reason: mcfgv1alpha1.ReasonSigned, ObservedGeneration: image.Generation,
	}
	if err != nil {
		if isSigned(image) {
			return
		}
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, mcfgv1alpha1.ReasonSigningFailed, fault.Message(err)
		if reason := fault.Reason(err); reason == mcfgv1alpha1.ReasonWaitingForKey || reason == mcfgv1alpha1.ReasonInvalidKey {
			c.Reason = reason
		}
	} else if s := image.Status.Signature; s == nil || s.KeyID != signed.KeyID || s.Reference != signed.Reference || signed.Added > 0 {
		at := status.Second(now)
		image.Status.Signature = &mcfgv1alpha1.ImageSignature{Reference: signed.Reference, KeyID: signed.KeyID, SignedTime: &at}
	}
	conditions := image.GetConditions()
	status.Set(&conditions, notBefore(now, conditions), c)
	image.SetConditions(conditions)
}

// ended is how signing ended, as metrics say it.
func ended(err error) string {
	if err != nil {
		return "failed"
	}
	return "succeeded"
}

// reportSigned tells about what has been written.
func (b *Builder) reportSigned(ctx context.Context, before, after *mcfgv1alpha1.MachineOSImage, signed sign.Signature, err error) {
	log := ctrl.LoggerFrom(ctx)
	if err != nil {
		reason := status.Find(after.Status.Conditions, mcfgv1alpha1.ImageSigned).Reason
		if was := status.Find(before.Status.Conditions, mcfgv1alpha1.ImageSigned); was == nil || was.Reason != reason {
			log.Info("Image not signed", "image", after.Spec.PullSpec, "reason", reason, "message", fault.Message(err))
			b.events.Publish(after, events.ImageNotSigned(reason, fault.Message(err)))
		}
		return
	}
	log.Info("Signed", "image", after.Spec.PullSpec, "keyID", signed.KeyID, "signatures", signed.Added)
	b.events.Publish(after, events.ImageSigned(string(after.Spec.PullSpec), signed.KeyID))
}

// isPreBuilt tells whether the installer had the image built. Nobody here knows what is in it, so it is not signed.
func isPreBuilt(image *mcfgv1alpha1.MachineOSImage) bool {
	_, is := image.Annotations[mcfgv1.AnnotationPreBuiltImage]
	return is
}

// imageReconciler keeps the images that this cluster has made signed: with the key of today, also after it was exchanged, and after somebody
// deleted a signature.
type imageReconciler struct{ *Builder }

// Reconcile makes one pass over one image.
func (r *imageReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	image := &mcfgv1alpha1.MachineOSImage{}
	if err := r.client.Get(ctx, req.NamespacedName, image); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	owner := metav1.GetControllerOf(image)
	if !image.DeletionTimestamp.IsZero() || owner == nil || owner.Kind != configKind {
		return ctrl.Result{}, nil // an administrator's: it was built, and is signed, elsewhere
	}
	config := &mcfgv1.MachineOSConfig{}
	err := r.client.Get(ctx, client.ObjectKey{Name: owner.Name}, config)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading MachineOSConfig %q: %w", owner.Name, err)
	}
	if config.UID != owner.UID || !config.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if isPreBuilt(image) {
		return status.Result(ctrl.Result{}, fault.Join(r.notOurs(ctx, image), r.notAttested(ctx, image)))
	}
	waiting, err := r.isBeingBuilt(ctx, config, image)
	if err != nil {
		return ctrl.Result{}, err
	}
	again := ctrl.Result{RequeueAfter: recheckSignature + rand.N(recheckSpread)} //nolint:gosec // spreads load
	if waiting {
		return ctrl.Result{RequeueAfter: deniedAgain}, nil // its build signs it
	}
	if r.options.Attester != nil {
		err = r.attestImage(ctx, config, image, making{})
	}
	err = fault.Join(err, r.signImage(ctx, config, image))
	if fault.IsTerminal(err) {
		return again, nil
	}
	return status.Result(again, err)
}

// isBeingBuilt tells whether the build of an image has not ended: it has the image checked and signed.
func (r *imageReconciler) isBeingBuilt(ctx context.Context, config *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage) (bool, error) {
	builds, err := r.buildsOf(ctx, config.Name)
	if err != nil {
		return false, err
	}
	for _, build := range builds {
		if build.Status.DigestedImagePushSpec == image.Spec.PullSpec && !status.BuildStageOf(build.Status.Conditions).IsFinal() {
			return true, nil
		}
	}
	return false, nil
}

// notOurs says of an image that the installer had built why it is not signed.
func (r *imageReconciler) notOurs(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) error {
	patch := status.NewPatcher(r.client, image, status.Owning(mcfgv1alpha1.ImageSigned), status.KeepGeneration())
	conditions := image.GetConditions()
	status.Set(&conditions, notBefore(r.clock.Now(), conditions), metav1.Condition{
		Type: mcfgv1alpha1.ImageSigned, Status: metav1.ConditionFalse, Reason: mcfgv1alpha1.ReasonBuiltElsewhere, ObservedGeneration: image.Generation,
		Message: "the installer had this image built; Layerwright signs what it has made itself",
	})
	image.SetConditions(conditions)
	_, err := patch.Finish(ctx, image, ctrl.Result{}, nil)
	return err
}

// deleteSignatures removes what signs an image that is removed, and what was stated about it.
func deleteSignatures(ctx context.Context, push *registry.Client, image string) error {
	for _, kind := range []registry.AttachmentKind{sign.Signatures, sign.Attestations} {
		if err := deleteAttached(ctx, push, image, kind); err != nil {
			return err
		}
	}
	return nil
}

func deleteAttached(ctx context.Context, push *registry.Client, image string, kind registry.AttachmentKind) error {
	name, err := push.AttachmentTag(image, kind)
	if err != nil {
		return err
	}
	repository, _, _ := strings.Cut(image, "@")
	digest, found, err := push.Exists(ctx, repository, strings.TrimPrefix(name, repository+":"))
	if err != nil || !found {
		return err
	}
	_, err = push.DeleteManifest(ctx, repository+"@"+digest.String())
	return err
}
