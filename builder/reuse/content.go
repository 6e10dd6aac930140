package reuse

import (
	"context"
	"encoding/json"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/trust/sign"
)

// State states how content was built, so that it is known again when it is found under its tag. It
// is not signed: no node is to get it.
func (r *Registry) State(ctx context.Context, o *order.Order, content string) error {
	if r.options.Attester == nil || content == "" {
		return nil
	}
	predicate, err := json.Marshal(provenance.OfContent(&provenance.Facts{
		Origin: o.Origin, Inputs: order.InputsIn(o.Record), Pool: o.Pool, BuilderID: r.options.BuilderID, Version: version.Current().Version,
		BuilderImage: o.BuilderImage, Pulled: o.Pulled,
	}, o.Content().Key))
	s := sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: predicate}
	if o.Rebuild { // which may give the same content again
		s.Says = func(predicate json.RawMessage) bool { return provenance.Invocation(predicate) == o.Origin.Invocation }
	}
	if err == nil {
		_, err = r.options.Attester.Attest(ctx, o.Credentials.Push, content, s)
	}
	return sign.AsWaiting(err, "the content was built and is not attested yet")
}

// FindContent finds content that was built before, under its tag, by digest; empty where there is
// none that may be taken. Where content is attested, labels say nothing: whoever may push can write
// them. The statement says which images it was built with. Beside an error, content is there, and
// it can't be found out now whether it may be taken.
func (r *Registry) FindContent(
	ctx context.Context, with credentials.Credentials, content order.Content, repository string, isStale func(context.Context, string) (bool, error),
) (image string, stated json.RawMessage, err error) {
	image, err = find(ctx, with.Push, content.In(repository), identity{mcfgv1.ImageLabelContentKey, content.Key}, content.Platforms)
	if err != nil || image == "" || r.options.Attester == nil {
		return image, nil, err
	}
	log := log.FromContext(ctx)
	statements, err := r.options.Attester.Statements(ctx, with.Push, image, sign.PredicateProvenance)
	if fault.Reason(err) == mcfgv1alpha1.ReasonNotAttested {
		log.Info("Content is not taken from its tag", "image", image, "message", fault.Message(err))
		return "", nil, nil
	}
	if err != nil {
		return image, nil, sign.AsWaiting(err, "the content is there, and cannot be verified yet")
	}
	i := slices.IndexFunc(statements, func(predicate json.RawMessage) bool { return provenance.ContentKey(predicate) == content.Key })
	if i < 0 {
		return "", nil, nil
	}
	if isStale != nil {
		old, err := isStale(ctx, provenance.Invocation(statements[i]))
		if err != nil {
			return "", nil, err
		}
		if old {
			log.Info("Content is not taken from its tag", "image", image, "message", "someone has asked for a rebuild since it was built")
			return "", nil, nil
		}
	}
	return image, statements[i], nil
}

// TakeContent finds the content of an order, and notes which images it was built with.
func (r *Registry) TakeContent(ctx context.Context, o *order.Order) (string, error) {
	image, stated, err := r.FindContent(ctx, o.Credentials, o.Content(), o.Target.Repository, o.IsStale)
	if err != nil || image == "" {
		return "", err
	}
	before := provenance.ReadPulled(stated)
	o.SetPulled(before.Images, before.Missing)
	return image, nil
}
