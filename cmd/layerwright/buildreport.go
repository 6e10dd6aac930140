package main

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/standalone"
	"github.com/layerwright/layerwright/trust/sign"
)

// buildReport is an image that was made, for people and programs.
type buildReport struct {
	// Image is it by digest.
	Image string `json:"image"`
	Pool  string `json:"pool"`
	// Action is Reuse, Append or Build, and Message how the image came to be.
	Action  plan.Action `json:"action"`
	Message string      `json:"message"`
	Keys    plan.Keys   `json:"keys"`
	Base    string      `json:"base"`
	// MachineConfig is the name of the rendered one.
	MachineConfig string   `json:"machineConfig"`
	Tags          []string `json:"tags"`
	// ImmutableTags are those that stand for another image, which the registry lets no one change.
	ImmutableTags []string        `json:"immutableTags,omitempty"`
	Platforms     []builtPlatform `json:"platforms"`
	// Previous is the image that pulls are counted from.
	Previous string `json:"previous,omitempty"`
	// KeyID identifies the key that has signed it, and Attestations are what was stated with it.
	KeyID        string                          `json:"keyID,omitempty"`
	Attestations []mcfgv1alpha1.ImageAttestation `json:"attestations,omitempty"`
	// NotAttested says which statements can't be made.
	NotAttested []string `json:"notAttested,omitempty"`
}

// builtPlatform is the image of one architecture. Sizes are in bytes, as they are in the registry.
type builtPlatform struct {
	Architecture string `json:"architecture"`
	Digest       string `json:"digest"`
	Size         int64  `json:"size"`
	// Layers are the sizes of the layers, the lowest first.
	Layers []int64 `json:"layers"`
	// Pull is what a node pulls that has Previous.
	Pull *int64 `json:"pull,omitempty"`
}

func newBuildReport(request *standalone.Request, r *standalone.Result) *buildReport {
	report := &buildReport{
		Image: r.Pinned, Pool: request.Pool, Action: r.Action, Message: r.Message, Keys: r.Keys, Base: r.Base, MachineConfig: request.Rendered.Name,
		Tags: r.Tags, ImmutableTags: r.Immutable, Previous: r.Previous, KeyID: r.KeyID, Attestations: r.Stated.Made, NotAttested: r.Stated.Missing,
	}
	for i, p := range r.Platforms {
		built := builtPlatform{Architecture: p.Platform.Architecture, Digest: p.Digest.String(), Size: p.Size, Layers: p.Layers}
		if i < len(r.Pulls) {
			built.Pull = &r.Pulls[i]
		}
		report.Platforms = append(report.Platforms, built)
	}
	return report
}

// text is for people.
func (r *buildReport) text() string {
	var t strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&t, format+"\n", args...) } // a builder takes everything
	line("Image of pool %s", r.Pool)
	line("  image          %s", r.Image)
	line("  tags           %s", strings.Join(r.Tags, ", "))
	if len(r.ImmutableTags) > 0 {
		line("  not moved      %s: the registry's tags are immutable", strings.Join(r.ImmutableTags, ", "))
	}
	line("  how            %s", r.Message)
	line("  build key      %s", r.Keys.Build)
	line("  base image     %s", r.Base)
	line("  configuration  %s", r.MachineConfig)
	for _, p := range r.Platforms {
		line("  %-13s  %d layers of %s bytes", p.Architecture, len(p.Layers), strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Layers), " ", " + "), "[]"))
		if p.Pull != nil {
			line("                 a node that has the image %s pulls %d bytes", mcfgv1.ImageDigestFormat(r.Previous).Short(), *p.Pull)
		}
	}
	if r.KeyID == "" {
		line("  signed         no: nodes that insist on signatures refuse it; sign it with --sign-key")
		return t.String()
	}
	line("  signed         by the key %s, and verified", r.KeyID)
	names := map[string]string{sign.PredicateProvenance: "provenance", sign.PredicateSPDX: "SBOM"}
	var attested []string
	for _, a := range r.Attestations {
		attested = append(attested, names[a.PredicateType])
	}
	line("  attested       %s", strings.Join(attested, ", "))
	for _, why := range r.NotAttested {
		line("                 %s", why)
	}
	return t.String()
}
