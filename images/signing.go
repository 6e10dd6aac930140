package images

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
)

// Signer signs images; *sign.Signer is one.
type Signer interface {
	// Sign signs an image by its digest, in the registry that the client is for. It can be
	// repeated: what is signed is not signed again.
	Sign(ctx context.Context, images sign.Registry, pinned string) (sign.Signature, error)
}

// Waits of signatures.
const (
	// RecheckSignature and recheckSpread are when it is made sure that an image still has its
	// signature, by the cluster's key of then.
	RecheckSignature = 10 * time.Minute
	recheckSpread    = 2 * time.Minute
)

// IsSigned reports whether an image has been signed, by whatever key the cluster had.
func IsSigned(image *mcfgv1alpha1.MachineOSImage) bool {
	return image.Status.Signature != nil && status.IsTrue(image.Status.Conditions, mcfgv1alpha1.ImageSigned)
}

// Sign signs an image, makes sure that it is trusted then, and writes down in its object how that
// ended. An image has one signing at a time in this process.
func (k *Keeper) Sign(ctx context.Context, config *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage) error {
	unlock, err := k.signings.lock(ctx, image.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := k.checkKept(ctx, image); err != nil {
		return err
	}
	begin := k.clock.Now()
	var signed sign.Signature
	err = k.noted(ctx, "signatures", image, func() (err error) {
		signed, err = k.signWith(ctx, config, image)
		return err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	before, written := k.writeImage(ctx, image, mcfgv1alpha1.ImageSigned, func() {
		if s := image.Status.Signature; err == nil && (s == nil || s.KeyID != signed.KeyID || s.Reference != signed.Reference || signed.Added > 0) {
			at := status.Second(begin)
			image.Status.Signature = &mcfgv1alpha1.ImageSignature{Reference: signed.Reference, KeyID: signed.KeyID, SignedTime: &at}
		}
		setSigned(image, begin, "", ownOutcome(err))
	})
	if written != nil {
		return fault.Join(err, written)
	}
	if trustChanged(before, image) {
		k.options.Metrics.Signed(image.Spec.MachineConfigPool, resultLabel(err), k.clock.Since(begin))
		k.reportSigned(ctx, image, signed.Added, err)
	}
	return err
}

func (k *Keeper) signWith(ctx context.Context, config *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage) (sign.Signature, error) {
	credentials, err := k.credentials.Credentials(ctx, config)
	if credentials.Push == nil {
		return sign.Signature{}, err
	}
	pinned := string(image.Spec.PullSpec)
	signed, err := k.options.Signer.Sign(ctx, credentials.Push, pinned)
	if err != nil || k.options.OwnKeys == nil {
		return signed, err
	}
	_, err = k.verifyImage(ctx, credentials.Push, pinned, true)
	return signed, err
}

// maxRaces is how often a write is repeated that others were faster than.
const maxRaces = 10

// writeImage writes what change makes of the status of an image, and gives the image as it was
// before that. Several reconcilers write there at the same time, each its own condition: after a
// lost race the change is made to what is there by then.
func (k *Keeper) writeImage(
	ctx context.Context, image *mcfgv1alpha1.MachineOSImage, owned string, change func(),
) (before *mcfgv1alpha1.MachineOSImage, _ error) {
	for race := 1; ; race++ {
		before = image.DeepCopy()
		change()
		patch := status.NewPatcher(k.client, before, status.Owning(owned), status.KeepGeneration())
		lost, err := patch.Finish(ctx, image, reconcile.Result{}, nil)
		if err != nil || lost.RequeueAfter == 0 {
			return before, err
		}
		now := &mcfgv1alpha1.MachineOSImage{}
		if err := k.reader.Get(ctx, client.ObjectKeyFromObject(image), now); err != nil {
			return before, fmt.Errorf("reading MachineOSImage %q: %w", image.Name, err)
		}
		if race == maxRaces || now.UID != image.UID {
			return before, fmt.Errorf("writing the status of MachineOSImage %q: it has changed meanwhile", image.Name)
		}
		*image = *now
	}
}

// outcome is what the condition Signed says of an image that is not trusted.
type outcome struct {
	status metav1.ConditionStatus
	reason string
	err    error
}

// ownOutcome is that of an image which Layerwright signs: it is not signed while that fails. Nil
// where it is trusted.
func ownOutcome(err error) *outcome {
	if err == nil {
		return nil
	}
	out := &outcome{status: metav1.ConditionFalse, reason: mcfgv1alpha1.ReasonSigningFailed, err: err}
	if word := signedReason(err); IsRejection(err) || slices.Contains(waitingReasons(), word) {
		out.reason = word
	}
	return out
}

// waitingReasons are the reasons for which an image is not trusted yet until someone else acts.
func waitingReasons() []string {
	return []string{
		mcfgv1alpha1.ReasonWaitingForKey, mcfgv1alpha1.ReasonInvalidKey, mcfgv1alpha1.ReasonWaitingForTrustPolicy, mcfgv1alpha1.ReasonInvalidTrustPolicy,
		mcfgv1.ReasonControllerKilled,
	}
}

// setSigned writes down whether an image is trusted. One that was stays so until a check finds
// that it is not, whatever happens to keys, policy and registry meanwhile; the
// message says that it could not be looked at.
func setSigned(image *mcfgv1alpha1.MachineOSImage, now time.Time, message string, not *outcome) {
	c := metav1.Condition{
		Type: mcfgv1alpha1.ImageSigned, Status: metav1.ConditionTrue, Reason: mcfgv1alpha1.ReasonSigned, ObservedGeneration: image.Generation, Message: message,
	}
	switch {
	case not == nil:
	case IsSigned(image) && !IsRejection(not.err):
		c.Message = "it was trusted at the last successful check; it can't be checked now: " + fault.Message(not.err)
	default:
		c.Status, c.Reason, c.Message = not.status, not.reason, fault.Message(not.err)
	}
	conditions := image.GetConditions()
	status.Set(&conditions, status.NotBefore(now, conditions), c)
	image.SetConditions(conditions)
}

// trustChanged reports whether the condition Signed has another status or reason.
func trustChanged(before, after *mcfgv1alpha1.MachineOSImage) bool {
	was, is := status.Find(before.Status.Conditions, mcfgv1alpha1.ImageSigned), status.Find(after.Status.Conditions, mcfgv1alpha1.ImageSigned)
	return was == nil || was.Status != is.Status || was.Reason != is.Reason || !reflect.DeepEqual(before.Status.Signature, after.Status.Signature)
}

// resultLabel is the metric label for the result of signing.
func resultLabel(err error) string {
	if err != nil {
		return "failed"
	}
	return "succeeded"
}

// reportSigned tells about what has been written.
func (k *Keeper) reportSigned(ctx context.Context, image *mcfgv1alpha1.MachineOSImage, added int, err error) {
	log := log.FromContext(ctx)
	if err != nil {
		reason := status.Find(image.Status.Conditions, mcfgv1alpha1.ImageSigned).Reason
		log.Info("Image not signed", "image", image.Spec.PullSpec, "reason", reason, "message", fault.Message(err))
		k.events.Publish(image, events.ImageNotSigned(reason, fault.Message(err)))
		return
	}
	log.Info("Signed", "image", image.Spec.PullSpec, "keyID", image.Status.Signature.KeyID, "signatures", added)
	k.events.Publish(image, events.ImageSigned(string(image.Spec.PullSpec), image.Status.Signature.KeyID))
}

// Reconciler verifies images. Those that this cluster built it keeps signed with the current key,
// also after a key rotation or when someone deleted a signature.
type Reconciler struct{ *Keeper }

// Reconcile reconciles one image.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	image := &mcfgv1alpha1.MachineOSImage{}
	if err := r.client.Get(ctx, req.NamespacedName, image); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !image.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	if waiting, err := r.isBeingBuilt(ctx, image); err != nil || waiting {
		return reconcile.Result{RequeueAfter: sign.DeniedAgain}, err // its build signs it
	}
	if err := r.refreshIfUndescribed(ctx, image); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if r.options.Signer == nil || !isMade(image) || owner.IsPreBuilt(image) {
		return r.requeue(fault.Join(r.notAttested(ctx, image), r.checkImage(ctx, image)))
	}
	config, err := owner.Config(ctx, r.client, image)
	if err != nil || config == nil || !config.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, err // the image goes with it
	}
	if r.options.Attester != nil {
		err = r.Attest(ctx, config, image, BuildDetails{})
	}
	return r.requeue(fault.Join(err, r.Sign(ctx, config, image)))
}

// refreshIfUndescribed reads an image again that names a MachineOSConfig but has no status yet. The
// cache may know that the build has ended before it knows what the build wrote into the image,
// which would then look like an image that someone else created.
func (r *Reconciler) refreshIfUndescribed(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) error {
	if owner.Of(image) == nil || image.Status.ShortDigest != "" {
		return nil
	}
	if err := r.Keeper.reader.Get(ctx, client.ObjectKeyFromObject(image), image); err != nil {
		return fmt.Errorf("reading MachineOSImage %q: %w", image.Name, err)
	}
	return nil
}

// requeue is when an image is looked at again after a reconcile that ended with err: soon if
// someone may mend the cause.
func (*Reconciler) requeue(err error) (reconcile.Result, error) {
	if err != nil && (IsRejection(err) || fault.IsTerminal(err)) {
		return reconcile.Result{RequeueAfter: sign.DeniedAgain}, nil
	}
	return status.Result(reconcile.Result{RequeueAfter: RecheckSignature + rand.N(recheckSpread)}, err) //nolint:gosec // spreads load
}

// isMade reports whether this cluster built the image. It relies on status, which only Layerwright
// writes; an owner reference can be forged. Earlier versions set no origin.
func isMade(image *mcfgv1alpha1.MachineOSImage) bool {
	return owner.Of(image) != nil && image.Status.ShortDigest != "" && image.Status.Origin != mcfgv1alpha1.ImageImported
}

// checkImage verifies an image that is not signed here, and writes down in its object how that
// ended.
func (r *Reconciler) checkImage(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) error {
	var verdict trust.Verdict
	var signatures string
	err := r.noted(ctx, "signatures", image, func() (err error) {
		verdict, signatures, err = r.checkWith(ctx, image)
		return err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	before, written := r.writeImage(ctx, image, mcfgv1alpha1.ImageSigned, func() {
		message := ""
		switch {
		case err == nil:
			image.Status.Signature = &mcfgv1alpha1.ImageSignature{Reference: signatures, KeyID: verdict.KeyID}
			message = fmt.Sprintf("it is signed with the key %s, which is trusted for %s", verdict.KeyID, verdict.Whose)
		case IsRejection(err):
			image.Status.Signature = nil
		}
		setSigned(image, r.clock.Now(), message, r.othersOutcome(image, err))
	})
	if written != nil {
		return fault.Join(err, written)
	}
	if trustChanged(before, image) {
		r.reportSigned(ctx, image, 0, err)
		if err == nil && allowsOlder(image) {
			r.events.Publish(image, events.OlderImageAllowed(string(image.Spec.PullSpec), image.Spec.MachineConfigPool))
		}
	}
	return err
}

// checkWith verifies an image, and names the tag that has its signatures.
func (r *Reconciler) checkWith(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) (trust.Verdict, string, error) {
	images, isOwn, err := r.reader(ctx, image)
	if err != nil {
		return trust.Verdict{}, "", err
	}
	pinned := string(image.Spec.PullSpec)
	verdict, err := r.verifyImage(ctx, images, pinned, isOwn)
	if err == nil && verdict.Whose == thisCluster {
		err = r.checkOwn(ctx, images, image)
	}
	if err != nil {
		return trust.Verdict{}, "", err
	}
	signatures, err := images.AttachmentTag(pinned, sign.Signatures)
	return verdict, signatures, err
}

// othersOutcome returns what Signed says of an image that someone else signs, nil if it is trusted.
// While the image can't be verified, that is Unknown.
func (r *Reconciler) othersOutcome(image *mcfgv1alpha1.MachineOSImage, err error) *outcome {
	if err == nil {
		return nil
	}
	out := &outcome{status: metav1.ConditionUnknown, reason: signedReason(err), err: err}
	if IsRejection(err) || out.reason == mcfgv1.ReasonControllerKilled {
		out.status = metav1.ConditionFalse
	}
	if owner.IsPreBuilt(image) && out.reason == mcfgv1alpha1.ReasonNotTrusted {
		out.reason = mcfgv1alpha1.ReasonBuiltElsewhere
		out.err = fmt.Errorf("the installer built this image, and Layerwright signs only images that it built itself: %w", err)
	}
	if out.reason == mcfgv1alpha1.ReasonNotSigned && r.options.Signer != nil && image.Labels[mcfgv1.LabelMachineOSBuild] != "" &&
		owner.Of(image) != nil && !owner.IsPreBuilt(image) {
		out.err = fmt.Errorf("the registry had this image before this cluster signed anything, and its builder is unknown; request a rebuild with the annotation %s: %w",
			mcfgv1.AnnotationRebuild, err)
	}
	return out
}

// isBeingBuilt reports whether the build of an image has not ended: it has the image checked,
// attested and signed. The image is there before its build says so.
func (r *Reconciler) isBeingBuilt(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) (bool, error) {
	config := owner.Of(image)
	if r.options.Signer == nil || config == nil {
		return false, nil
	}
	builds, err := owner.Builds(ctx, r.client, config.Name)
	if err != nil {
		return false, err
	}
	for _, build := range builds {
		isOf := build.Status.DigestedImagePushSpec == image.Spec.PullSpec || build.Name == image.Labels[mcfgv1.LabelMachineOSBuild]
		if isOf && !status.BuildStageOf(build.Status.Conditions).IsFinal() {
			return true, nil
		}
	}
	return false, nil
}

// DeleteSignatures removes what signs an image that is removed, and what was stated about it.
func DeleteSignatures(ctx context.Context, push *registry.Client, image string) error {
	if err := deleteAttached(ctx, push, image, sign.Signatures); err != nil {
		return err
	}
	return DeleteAttestations(ctx, push, image)
}

// DeleteAttestations removes what was stated about an image that is removed.
func DeleteAttestations(ctx context.Context, push *registry.Client, image string) error {
	return deleteAttached(ctx, push, image, sign.Attestations)
}

func deleteAttached(ctx context.Context, push *registry.Client, image string, kind registry.AttachmentKind) error {
	tags, err := push.AttachmentTags(image, kind)
	if err != nil {
		return err
	}
	repository, _, _ := strings.Cut(image, "@")
	for _, tag := range tags {
		digest, found, err := push.Exists(ctx, repository, tag)
		if err != nil || !found {
			return err
		}
		if _, err = push.DeleteManifest(ctx, repository+"@"+digest.String()); err != nil {
			return err
		}
	}
	return nil
}
