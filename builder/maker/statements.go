package maker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/trust/sign"
)

// attest states how content was built, so that it is known again when it is found under its tag. It
// is not signed: no node is to get it.
func (m *Maker) attest(ctx context.Context, o *Order, content string) error {
	if m.options.Attester == nil || content == "" {
		return nil
	}
	predicate, err := json.Marshal(provenance.OfContent(&provenance.Facts{
		Origin: o.Origin, Inputs: InputsIn(o.Record), Pool: o.Pool, BuilderID: m.options.BuilderID, Version: version.Current().Version,
		BuilderImage: o.BuilderImage, Pulled: o.Pulled,
	}, o.content().Key))
	s := sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: predicate}
	if o.Rebuild { // which may give the same content again
		s.Says = func(predicate json.RawMessage) bool { return provenance.Invocation(predicate) == o.Origin.Invocation }
	}
	if err == nil {
		_, err = m.options.Attester.Attest(ctx, o.Credentials.Push, content, s)
	}
	return sign.AsWaiting(err, "the content was built and is not attested yet")
}

// InputsOf are what a build has recorded of its inputs.
func InputsOf(build *mcfgv1.MachineOSBuild) (*provenance.Inputs, error) {
	record, err := plan.RecordOf(build)
	if err == nil && record == nil {
		err = fmt.Errorf("MachineOSBuild %q was not requested by Layerwright: spec.decision is missing", build.Name)
	}
	if err != nil {
		return nil, err
	}
	return InputsIn(record), nil
}

// InputsIn are those of a record.
func InputsIn(r *plan.Record) *provenance.Inputs {
	in := &provenance.Inputs{
		ContentKey: r.Keys.Content, BuildKey: r.Keys.Build, Architectures: r.Inputs.Architectures, ExtensionNames: r.Inputs.ExtensionNames,
		UsesExtensions: r.Inputs.UsesExtensions(), KernelType: r.Inputs.KernelType, WithoutText: r.Level >= plan.WithoutText,
	}
	for _, file := range r.Inputs.Containerfiles {
		in.Containerfiles = append(in.Containerfiles, provenance.Containerfile{Arch: file.Arch, Text: file.Text})
	}
	return in
}

// FindContent finds content that was built before, under its tag, by digest; empty where there is
// none that may be taken. Where content is attested, labels say nothing: whoever may push can write
// them. The statement says which images it was built with. Beside an error, content is there, and
// it can't be found out now whether it may be taken.
func (m *Maker) FindContent(
	ctx context.Context, push *registry.Client, content Content, repository string, isStale func(context.Context, string) (bool, error),
) (image string, stated json.RawMessage, err error) {
	image, err = find(ctx, push, content.In(repository), identity{mcfgv1.ImageLabelContentKey, content.Key}, content.Platforms)
	if err != nil || image == "" || m.options.Attester == nil {
		return image, nil, err
	}
	log := ctrl.LoggerFrom(ctx)
	statements, err := m.options.Attester.Statements(ctx, push, image, sign.PredicateProvenance)
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
func (m *Maker) TakeContent(ctx context.Context, o *Order) (string, error) {
	image, stated, err := m.FindContent(ctx, o.Credentials.Push, o.content(), o.Target.Repository, o.IsStale)
	if err != nil || image == "" {
		return "", err
	}
	before := provenance.ReadPulled(stated)
	o.setPulled(before.Images, before.Missing)
	return image, nil
}
