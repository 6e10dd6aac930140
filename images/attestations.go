package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/trust/sign"
)

// BuildDetails is what only the process knows that made an image.
type BuildDetails struct {
	// Version is that of this program, BuilderImage what built the content, and Content the result
	// of that; empty where it is not known.
	Version, BuilderImage, Content string
	// Pulled are the images that the content was built with. The MachineOSBuild has them when the
	// reconcile that makes the image is over.
	Pulled provenance.Pulled
	// Rebuild is the build, as predicates name it, that someone has asked for to make the image
	// anew; else empty. It may well be the same image again, and then a policy that asks for young
	// images still has to find that it was made again.
	Rebuild string
}

// says reports whether a predicate is the provenance that the image has to have; nil takes any.
func (m *BuildDetails) says() func(json.RawMessage) bool {
	if m.Rebuild == "" {
		return nil
	}
	return func(predicate json.RawMessage) bool { return provenance.Invocation(predicate) == m.Rebuild }
}

// Attest attests an image and writes down in its object how that ended.
func (k *Keeper) Attest(ctx context.Context, config *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage, made BuildDetails) error {
	unlock, err := k.signings.lock(ctx, image.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := k.checkKept(ctx, image); err != nil {
		return err
	}
	begin := k.clock.Now()
	var found Stated
	err = k.noted(ctx, "statements", image, func() (err error) {
		found, err = k.attestWith(ctx, config, image, made)
		return err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	before, written := k.writeImage(ctx, image, mcfgv1alpha1.ImageAttested, func() { setAttested(image, &found, begin, err) })
	if written != nil {
		return fault.Join(err, written)
	}
	if image.ResourceVersion != before.ResourceVersion {
		k.options.Metrics.Attested(image.Spec.MachineConfigPool, resultLabel(err), k.clock.Since(begin))
		k.reportAttested(ctx, before, image, &found)
	}
	return err
}

// attestWith makes the statements that an image lacks, and attaches them.
func (k *Keeper) attestWith(
	ctx context.Context, config *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage, made BuildDetails,
) (Stated, error) {
	credentials, err := k.credentials.Credentials(ctx, config)
	if credentials.Push == nil {
		return Stated{}, err
	}
	return State(ctx, k.options.Attester, credentials.Push, string(image.Spec.PullSpec),
		Making{
			Name: "provenance", PredicateType: sign.PredicateProvenance, Says: made.says(),
			Make: func(ctx context.Context) ([]byte, error) { return k.provenanceOf(ctx, config, image, made) },
		},
		Making{
			Name: "SBOM", PredicateType: sign.PredicateSPDX, Keep: k.options.SBOMs == nil,
			Make: func(ctx context.Context) ([]byte, error) { return k.sbomOf(ctx, credentials, image) },
		})
}

// provenanceOf says how an image was made, from its MachineOSBuild.
func (k *Keeper) provenanceOf(
	ctx context.Context, config *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage, made BuildDetails,
) ([]byte, error) {
	build, err := k.buildOf(ctx, config, image)
	if err != nil {
		return nil, err
	}
	if build == nil {
		return nil, &permanentError{errors.New("its MachineOSBuild was deleted, and it has no attestation by a trusted key")}
	}
	inputs, err := k.options.Inputs(build)
	if err != nil {
		return nil, &permanentError{err}
	}
	facts := &provenance.Facts{
		Origin: provenance.OriginOf(build), Inputs: inputs, Pool: image.Spec.MachineConfigPool, BuilderID: k.options.BuilderID,
		Version: made.Version, BuilderImage: made.BuilderImage, Content: made.Content, Pulled: made.Pulled,
	}
	if len(facts.Pulled.Images) == 0 && facts.Pulled.Missing == 0 {
		facts.Pulled = provenance.PulledBy(build)
	}
	if image.Labels[mcfgv1.LabelMachineOSBuild] == build.Name { // else it is of an earlier build, and was there already
		facts.Finished = image.CreationTimestamp.Time
	}
	if facts.ConfigHash, err = k.configHash(ctx, build.Spec.MachineConfig.Name); err != nil {
		return nil, err
	}
	return json.Marshal(provenance.OfImage(facts))
}

// buildOf is the build that made an image, the first where there are several; nil where it is gone.
func (k *Keeper) buildOf(
	ctx context.Context, config *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage,
) (*mcfgv1.MachineOSBuild, error) {
	builds, err := owner.Builds(ctx, k.client, config.Name)
	if err != nil {
		return nil, err
	}
	builds = slices.DeleteFunc(builds, func(o *mcfgv1.MachineOSBuild) bool {
		return o.Status.DigestedImagePushSpec != image.Spec.PullSpec && o.Name != image.Labels[mcfgv1.LabelMachineOSBuild]
	})
	if len(builds) == 0 {
		return nil, nil
	}
	return slices.MinFunc(builds, func(x, y *mcfgv1.MachineOSBuild) int {
		if byX, byY := x.Name == image.Labels[mcfgv1.LabelMachineOSBuild], y.Name == image.Labels[mcfgv1.LabelMachineOSBuild]; byX != byY {
			if byX {
				return -1
			}
			return 1
		}
		return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
	}), nil
}

// configHash identifies the content of a rendered MachineConfig; empty where it is gone.
func (k *Keeper) configHash(ctx context.Context, name string) (string, error) {
	mc := &mcfgv1.MachineConfig{}
	err := k.reader.Get(ctx, client.ObjectKey{Name: name}, mc)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading MachineConfig %q: %w", name, err)
	}
	return provenance.HashConfig(mc)
}

// sbomOf has the SBOM made. That it can never be made is remembered: finding it out
// takes reading all of the image.
func (k *Keeper) sbomOf(ctx context.Context, credentials credentials.Credentials, image *mcfgv1alpha1.MachineOSImage) ([]byte, error) {
	pinned := string(image.Spec.PullSpec)
	if why, known := k.withoutSBOM.Get(pinned); known {
		if err, is := why.(error); is {
			return nil, &permanentError{err}
		}
	}
	about, err := subjectOf(ctx, credentials, pinned, string(image.Spec.BaseOSImagePullSpec), image.CreationTimestamp.Time)
	if err != nil {
		return nil, err
	}
	document, err := makeSBOM(ctx, k.options.SBOMs, about)
	var never *permanentError
	if errors.As(err, &never) {
		k.withoutSBOM.Add(pinned, never.err)
	}
	return document, err
}

// setAttested writes down how attesting ended. An image that was attested stays so while that can't
// be looked after.
func setAttested(image *mcfgv1alpha1.MachineOSImage, found *Stated, now time.Time, err error) {
	c := metav1.Condition{
		Type: mcfgv1alpha1.ImageAttested, Status: metav1.ConditionTrue, Reason: mcfgv1alpha1.ReasonAttested, ObservedGeneration: image.Generation,
		Message: strings.Join(found.Missing, "; "),
	}
	switch reason := fault.Reason(err); {
	case err != nil && status.IsTrue(image.Status.Conditions, mcfgv1alpha1.ImageAttested):
		return
	case err != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, mcfgv1alpha1.ReasonAttestationFailed, fault.Message(err)
		if isAboutKey(reason) || reason == mcfgv1.ReasonControllerKilled {
			c.Reason = reason
		}
	default:
		image.Status.Attestations = found.Made
		if len(found.Made) == 0 {
			c.Status, c.Reason = metav1.ConditionFalse, mcfgv1alpha1.ReasonAttestationFailed
		}
	}
	conditions := image.GetConditions()
	status.Set(&conditions, status.NotBefore(now, conditions), c)
	image.SetConditions(conditions)
}

// LacksKey reports whether an image is not attested for want of the key.
func LacksKey(image *mcfgv1alpha1.MachineOSImage) bool {
	c := status.Find(image.Status.Conditions, mcfgv1alpha1.ImageAttested)
	return c != nil && isAboutKey(c.Reason)
}

func isAboutKey(reason string) bool {
	return reason == mcfgv1alpha1.ReasonWaitingForKey || reason == mcfgv1alpha1.ReasonInvalidKey
}

// reportAttested tells about what has been written.
func (k *Keeper) reportAttested(ctx context.Context, before, after *mcfgv1alpha1.MachineOSImage, found *Stated) {
	is, was := status.Find(after.Status.Conditions, mcfgv1alpha1.ImageAttested), status.Find(before.Status.Conditions, mcfgv1alpha1.ImageAttested)
	log := log.FromContext(ctx)
	if is.Status != metav1.ConditionTrue {
		if was == nil || was.Reason != is.Reason {
			log.Info("Image not attested", "image", after.Spec.PullSpec, "reason", is.Reason, "message", is.Message)
			k.events.Publish(after, events.ImageNotAttested(is.Reason, is.Message))
		}
		return
	}
	log.Info("Attested", "image", after.Spec.PullSpec, "attestations", found.Added, "message", is.Message)
	var types []string
	for _, a := range after.Status.Attestations {
		types = append(types, a.PredicateType)
	}
	k.events.Publish(after, events.ImageAttested(string(after.Spec.PullSpec), types, is.Message))
}

// notAttested says of an image that the installer had built why nothing is stated about it.
func (r *Reconciler) notAttested(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) error {
	if r.options.Attester == nil || !owner.IsPreBuilt(image) {
		return nil
	}
	_, err := r.writeImage(ctx, image, mcfgv1alpha1.ImageAttested, func() {
		conditions := image.GetConditions()
		status.Set(&conditions, status.NotBefore(r.clock.Now(), conditions), metav1.Condition{
			Type: mcfgv1alpha1.ImageAttested, Status: metav1.ConditionFalse, Reason: mcfgv1alpha1.ReasonBuiltElsewhere, ObservedGeneration: image.Generation,
			Message: "the installer built this image, and Layerwright attests only images that it built itself",
		})
		image.SetConditions(conditions)
	})
	return err
}
