package made

import (
	"context"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/trust/sign"
)

// attestBuilt has the image of a build attested before it is signed. Whatever keeps it from that,
// the image stays, as with signBuilt.
func (s *scope) attestBuilt(ctx context.Context, image *mcfgv1alpha1.MachineOSImage, made images.BuildDetails) error {
	if objects.IsRebuild(s.build) {
		made.Rebuild = provenance.InvocationOf(s.build)
	}
	if !s.Images.Attests() || owner.IsPreBuilt(image) || made.Rebuild == "" && status.IsTrue(image.Status.Conditions, mcfgv1alpha1.ImageAttested) {
		return nil
	}
	err := s.Images.Attest(ctx, s.config, image, made)
	if registry.IsNotFound(err) {
		s.build.Status.DigestedImagePushSpec = "" // someone removed it: it is made again
	}
	return sign.AsWaiting(err, "the image was pushed and is not attested yet")
}

// signBuilt has the image of a build signed, and verified as it is in the registry then, before the
// build succeeds. Whatever keeps it from that, the image stays: the build waits, and nothing is
// built again. That goes for a trust policy which the image does not meet too: it is for a person
// to change the policy, and no new build would have another signature.
func (s *scope) signBuilt(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) error {
	if !s.Images.Signs() || owner.IsPreBuilt(image) {
		return nil
	}
	wasTrusted := images.IsSigned(image)
	err := s.Images.Sign(ctx, s.config, image)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if wasTrusted && !images.IsRejection(err) { // what was found before stays
		return nil
	}
	if registry.IsNotFound(err) { // someone removed it: it is made again
		s.build.Status.DigestedImagePushSpec = ""
		return fault.NewWaiting(mcfgv1.ReasonWaitingForSignature, sign.Again, err)
	}
	return sign.AsWaiting(err, "the image was pushed and is not trusted yet")
}
