package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/osimage/packages"
	"github.com/layerwright/layerwright/trust/sign"
)

// Attester attaches signed statements to images; *sign.Signer is one.
type Attester interface {
	// Attest attaches statements. What the key has stated already, of the same type, stays as it
	// is, and is enough unless Statement.Says wants more.
	Attest(ctx context.Context, images sign.Registry, pinned string, statements ...sign.Statement) ([]sign.Attestation, error)
	// Attested are the types of the statements that an image has by the key of now. Their referrers
	// that are gone are attached again.
	Attested(ctx context.Context, images sign.Registry, pinned string) (map[string]bool, error)
	// Statements are what was stated about an image, with the key of now or another trusted
	// one. Where there is nothing, the error is Terminal.
	Statements(ctx context.Context, images sign.Registry, pinned, predicateType string) ([]json.RawMessage, error)
}

// SBOM lists what an image has beyond its base image.
type SBOM interface {
	// Make makes the list, as SPDX in JSON. It can be repeated. Errors that are no registry's and
	// none of package databases may pass.
	Make(ctx context.Context, about sbom.Subject) ([]byte, error)
}

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

// isStated reports whether a predicate is the one that the provenance of the image has to have.
func (m *BuildDetails) isStated(predicate json.RawMessage) bool {
	return m.Rebuild == "" || provenance.Invocation(predicate) == m.Rebuild
}

// attestations are what an image has, and what it could not get.
type attestations struct {
	made    []mcfgv1alpha1.ImageAttestation
	missing []string
	added   int
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
	var found attestations
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

// attestWith makes the statements that an image lacks, and attaches them. One that can't be made
// keeps no other from being attached.
func (k *Keeper) attestWith(
	ctx context.Context, config *mcfgv1.MachineOSConfig, image *mcfgv1alpha1.MachineOSImage, made BuildDetails,
) (attestations, error) {
	var out attestations
	credentials, err := k.credentials.Credentials(ctx, config)
	if credentials.Push == nil {
		return out, err
	}
	pinned := string(image.Spec.PullSpec)
	there, err := k.options.Attester.Attested(ctx, credentials.Push, pinned)
	if err != nil {
		return out, err
	}
	tag, err := credentials.Push.AttachmentTag(pinned, sign.Attestations)
	if err != nil {
		return out, err
	}
	if made.Rebuild != "" { // what is there may be of the build before; Says tells
		delete(there, sign.PredicateProvenance)
	}
	makers := []struct {
		predicateType, name string
		make                func(context.Context) ([]byte, error)
		says                func(json.RawMessage) bool
	}{
		{sign.PredicateProvenance, "provenance", func(ctx context.Context) ([]byte, error) { return k.provenanceOf(ctx, config, image, made) }, made.isStated},
		{sign.PredicateSPDX, "SBOM", func(ctx context.Context) ([]byte, error) { return k.sbomOf(ctx, credentials, image) }, nil},
	}
	var statements []sign.Statement
	var failures []error
	for _, m := range makers {
		if m.predicateType == sign.PredicateSPDX && k.options.SBOMs == nil && !there[m.predicateType] {
			continue
		}
		if !there[m.predicateType] {
			s, err := k.statement(ctx, credentials.Push, pinned, sign.Statement{PredicateType: m.predicateType, Says: m.says}, m.make)
			var never *permanentError
			switch {
			case errors.As(err, &never):
				out.missing = append(out.missing, fmt.Sprintf("it has no %s: %s", m.name, fault.Message(never.err)))
				continue
			case err != nil:
				failures = append(failures, err)
				continue
			}
			statements = append(statements, s)
		}
		out.made = append(out.made, mcfgv1alpha1.ImageAttestation{PredicateType: m.predicateType, Reference: tag})
	}
	if len(statements) > 0 {
		attached, err := k.options.Attester.Attest(ctx, credentials.Push, pinned, statements...)
		failures = append(failures, err)
		for _, a := range attached {
			out.added += a.Added
		}
	}
	return out, fault.Join(failures...)
}

// permanentError means that a statement can never be made.
type permanentError struct{ err error }

// Error is why.
func (e *permanentError) Error() string { return e.err.Error() }

// Unwrap is why.
func (e *permanentError) Unwrap() error { return e.err }

// statement completes one with what a trusted key has stated before, such as the one before the
// key was rotated; else with what is made.
func (k *Keeper) statement(
	ctx context.Context, push *registry.Client, pinned string, s sign.Statement, makeIt func(context.Context) ([]byte, error),
) (sign.Statement, error) {
	before, err := k.options.Attester.Statements(ctx, push, pinned, s.PredicateType)
	if err != nil && fault.Reason(err) != mcfgv1alpha1.ReasonNotAttested {
		return s, err
	}
	for _, s.Predicate = range before {
		if s.Says == nil || s.Says(s.Predicate) {
			return s, nil
		}
	}
	if s.Predicate, err = makeIt(ctx); err != nil {
		return s, err
	}
	if err := s.Check(); err != nil {
		return s, &permanentError{err}
	}
	return s, nil
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
	about, err := subjectOf(ctx, credentials, image)
	if err != nil {
		return nil, err
	}
	document, err := k.options.SBOMs.Make(ctx, about)
	var broken *packages.BrokenError
	var large *packages.TooLargeError
	var tooMany *sbom.TooLargeError
	never := errors.As(err, &broken) || errors.As(err, &large) || errors.As(err, &tooMany)
	if err == nil {
		s := sign.Statement{PredicateType: sign.PredicateSPDX, Predicate: document}
		err = s.Check()
		never = err != nil
	}
	if never {
		k.withoutSBOM.Add(pinned, err)
		return nil, &permanentError{err}
	}
	return document, err
}

// subjectOf is an image with the one that it was made from, of each platform.
func subjectOf(ctx context.Context, credentials credentials.Credentials, image *mcfgv1alpha1.MachineOSImage) (sbom.Subject, error) {
	pinned := string(image.Spec.PullSpec)
	about := sbom.Subject{Image: pinned, Created: image.CreationTimestamp.Time}
	if credentials.Pull == nil {
		return about, fmt.Errorf("reading the base image of %q: the pull secret of its MachineOSConfig, or the pool's mirrors, can't be used", pinned)
	}
	resolved, err := credentials.Push.Resolve(ctx, pinned)
	if err != nil {
		return about, err
	}
	for _, platform := range resolved.EachPlatform() {
		one := sbom.Platform{Platform: platform}
		if one.Image, err = credentials.Push.Image(ctx, pinned, platform); err != nil {
			return about, err
		}
		if one.Digest, err = one.Image.Digest(); err != nil {
			return about, fmt.Errorf("reading image %q: %w", pinned, err)
		}
		if platform.OS == "" {
			config, err := one.Image.ConfigFile()
			if err != nil {
				return about, fmt.Errorf("reading image %q: %w", pinned, err)
			}
			one.Platform = v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
		}
		one.Base, err = credentials.Pull.Image(ctx, string(image.Spec.BaseOSImagePullSpec), one.Platform)
		if registry.IsNotFound(err) {
			return about, &permanentError{fmt.Errorf("reading its base image: %w", err)}
		}
		if err != nil {
			return about, err
		}
		about.Platforms = append(about.Platforms, one)
	}
	return about, nil
}

// setAttested writes down how attesting ended. An image that was attested stays so while that can't
// be looked after.
func setAttested(image *mcfgv1alpha1.MachineOSImage, found *attestations, now time.Time, err error) {
	c := metav1.Condition{
		Type: mcfgv1alpha1.ImageAttested, Status: metav1.ConditionTrue, Reason: mcfgv1alpha1.ReasonAttested, ObservedGeneration: image.Generation,
		Message: strings.Join(found.missing, "; "),
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
		image.Status.Attestations = found.made
		if len(found.made) == 0 {
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
func (k *Keeper) reportAttested(ctx context.Context, before, after *mcfgv1alpha1.MachineOSImage, found *attestations) {
	is, was := status.Find(after.Status.Conditions, mcfgv1alpha1.ImageAttested), status.Find(before.Status.Conditions, mcfgv1alpha1.ImageAttested)
	log := ctrl.LoggerFrom(ctx)
	if is.Status != metav1.ConditionTrue {
		if was == nil || was.Reason != is.Reason {
			log.Info("Image not attested", "image", after.Spec.PullSpec, "reason", is.Reason, "message", is.Message)
			k.events.Publish(after, events.ImageNotAttested(is.Reason, is.Message))
		}
		return
	}
	log.Info("Attested", "image", after.Spec.PullSpec, "attestations", found.added, "message", is.Message)
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
