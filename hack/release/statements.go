package main

import (
	"encoding/json"
	"runtime"
	"strings"

	"github.com/layerwright/layerwright/hack/release/images"
	"github.com/layerwright/layerwright/hack/release/sbom"
	"github.com/layerwright/layerwright/trust/sign"
)

// What the provenance of a release says of itself.
const (
	buildType = "https://layerwright.io/provenance/release/v1"
	builderID = "https://layerwright.io/release"
)

// statements are what is said about an image: what is in it, and what it was made of.
func (r *release) statements(name, digest string, programs []sbom.Program) ([]sign.Statement, error) {
	used := r.usedBy(name)
	document, err := sbom.Make(sbom.Subject{
		Name: name, Version: r.Version, Digest: digest, Created: r.Created, Programs: programs, Others: used,
		PackageURL: "pkg:oci/" + name[strings.LastIndex(name, "/")+1:] + "@" + digest + "?repository_url=" + name,
	})
	if err != nil {
		return nil, err
	}
	provenance, err := json.Marshal(r.provenance(used))
	return []sign.Statement{
		{PredicateType: sign.PredicateSPDX, Predicate: document},
		{PredicateType: sign.PredicateProvenance, Predicate: provenance},
	}, err
}

// cLibraries are Debian's packages of the C library, by platforms of images.
var cLibraries = map[string]string{"linux-amd64": "libc6-dev", "linux-arm64": "libc6-dev-arm64-cross"}

// usedBy is what is in an image beside Go modules.
func (r *release) usedBy(name string) []sbom.Other {
	ca := sbom.Other{Name: "ca-certificates", Version: r.packages["ca-certificates"], Comment: "The certificate authorities in /etc/ssl/certs."}
	switch name {
	case images.Controller:
		return []sbom.Other{ca}
	case images.Builder:
		used := []sbom.Other{ca}
		for _, platform := range r.platforms {
			library := cLibraries[platform]
			used = append(used, sbom.Other{Name: library, Version: r.packages[library], Comment: "The C library, linked into the program for " + platform + "."})
		}
		return used
	}
	return nil
}

// provenance is how the image was made, as SLSA provenance of version 1. It says nothing of when or
// where, which would differ each time.
func (r *release) provenance(used []sbom.Other) map[string]any {
	dependencies := []map[string]any{
		{"name": "source", "uri": "git+" + images.Source + "@" + r.Revision, "digest": map[string]string{"gitCommit": r.Revision}},
		{"name": "go", "uri": "pkg:golang/toolchain@" + strings.TrimPrefix(runtime.Version(), "go")},
	}
	for _, other := range used {
		dependencies = append(dependencies, map[string]any{"name": other.Name, "uri": "pkg:deb/debian/" + other.Name + "@" + other.Version})
	}
	return map[string]any{
		"buildDefinition": map[string]any{
			"buildType":            buildType,
			"externalParameters":   map[string]any{"version": r.Version},
			"internalParameters":   map[string]any{"platforms": r.platforms},
			"resolvedDependencies": dependencies,
		},
		"runDetails": map[string]any{"builder": map[string]any{"id": builderID}},
	}
}
