package order

import (
	"fmt"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/images/provenance"
)

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
