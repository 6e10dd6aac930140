package builder

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/provenance"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/sign"
	"github.com/layerwright/layerwright/internal/version"
)

// attestContent states how content was built, so that it is known again when it is found under its tag. It is not signed: no node is to get it.
func (b *Builder) attestContent(ctx context.Context, building *building, content, builderImage string) error {
	if b.options.Attester == nil || content == "" {
		return nil
	}
	facts := &provenance.Facts{
		Record: building.record, Pool: building.pool(), BuilderID: b.options.BuilderID, Version: version.Current().Version, BuilderImage: builderImage,
		Pulled: provenance.PulledBy(building.build),
	}
	if building.build.UID != "" { // else it is a trial's, which has none
		facts.Build = building.build
	}
	predicate, err := json.Marshal(provenance.OfContent(facts, building.contentKey()))
	s := sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: predicate}
	if building.isRebuild() { // which may give the same content again
		s.Says = (&making{rebuild: provenance.InvocationOf(building.build)}).isStated
	}
	if err == nil {
		_, err = b.options.Attester.Attest(ctx, building.credentials.Push, content, s)
	}
	return untilSigned(err, "the content was built and is not attested yet")
}

// isOurContent tells whether content that was found under its tag is what this cluster built for the key. Labels say nothing about that: whoever may
// push can write them. It is what was stated of it; empty where nothing is attested.
func (b *Builder) isOurContent(ctx context.Context, building *building, content string) (json.RawMessage, bool, error) {
	if b.options.Attester == nil {
		return nil, true, nil
	}
	stated, err := b.options.Attester.Statements(ctx, building.credentials.Push, content, sign.PredicateProvenance)
	if fault.Reason(err) == mcfgv1alpha1.ReasonNotAttested {
		ctrl.LoggerFrom(ctx).Info("Content is not taken from its tag", "image", content, "message", fault.Message(err))
		return nil, false, nil
	}
	if err != nil {
		return nil, false, untilSigned(err, "the content is there, and cannot be verified yet")
	}
	i := slices.IndexFunc(stated, func(predicate json.RawMessage) bool { return provenance.ContentKey(predicate) == building.contentKey() })
	if i < 0 {
		return nil, false, nil
	}
	old, err := b.isRebuilt(ctx, building, provenance.Invocation(stated[i]))
	if err != nil {
		return nil, false, err
	}
	if old {
		ctrl.LoggerFrom(ctx).Info("Content is not taken from its tag", "image", content, "message", "somebody has asked for a rebuild since it was built")
		return nil, false, nil
	}
	return stated[i], true, nil
}

// isRebuilt tells whether the content that one build has made was rebuilt later, or is to be by the build of now. It has the same key and our statement, and
// whoever may push can give it the tag again.
func (b *Builder) isRebuilt(ctx context.Context, building *building, invocation string) (bool, error) {
	var list mcfgv1.MachineOSBuildList
	if err := b.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing MachineOSBuilds: %w", err)
	}
	var made, rebuilt metav1.Time
	for i := range list.Items {
		o := &list.Items[i]
		if provenance.InvocationOf(o) == invocation {
			made = o.CreationTimestamp
		}
		if isRebuild(o) && (o.UID == building.build.UID || hasMadeContent(o, building)) && rebuilt.Before(&o.CreationTimestamp) {
			rebuilt = o.CreationTimestamp
		}
	}
	return made.Before(&rebuilt), nil
}

// hasMadeContent tells whether an image of a build is on content of the same key, under the same tag.
func hasMadeContent(o *mcfgv1.MachineOSBuild, building *building) bool {
	t, err := targetOf(o.Spec.RenderedImagePushSpec)
	return err == nil && t.repository == building.target.repository && o.Status.DigestedImagePushSpec != "" &&
		slices.Contains([]string{o.Status.ContentKey, o.Status.BuildKey}, building.contentKey())
}

// findContent finds content that was built before, under its tag; empty where there is none that counts. Which images it was built with is what was
// stated of it then.
func (b *Builder) findContent(ctx context.Context, building *building) (string, error) {
	image, err := findImage(ctx, building.credentials.Push, building.contentTarget(),
		identity{mcfgv1.ImageLabelContentKey, building.contentKey()}, builtPlatforms(building.base, building.described))
	if err != nil || image == "" {
		return "", err
	}
	stated, ours, err := b.isOurContent(ctx, building, image)
	if err != nil || !ours {
		return "", err
	}
	before := provenance.ReadPulled(stated)
	building.setPulled(before.Images, before.Missing)
	return image, nil
}
