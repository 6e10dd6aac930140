// Command crds generates CustomResourceDefinitions from Go types, as controller-gen does and with
// its packages.
//
// It exists for one difference. Our kinds embed types of github.com/openshift/api packages that
// declare the same API groups and kinds of the same names. controller-gen takes those for more
// versions of ours; here the types are used and the kinds are not.
//
//	crds -C <root of the module> -o <folder> <package pattern>...
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/tools/go/packages"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-tools/pkg/crd"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
	"sigs.k8s.io/yaml"
)

// published are packages whose types may be used in ours and whose kinds are not ours.
var published = []string{
	"github.com/openshift/api/machineconfiguration/v1",
	"github.com/openshift/api/operator/v1",
	"github.com/openshift/api/config/v1",
}

func main() {
	root := flag.String("C", ".", "root of the module")
	out := flag.String("o", "", "folder to write to")
	flag.Parse()
	if err := run(*root, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}

func run(root, out string, patterns []string) error {
	roots, err := loader.LoadRootsWithConfig(&packages.Config{Dir: root}, patterns...)
	if err != nil {
		return fmt.Errorf("loading packages: %w", err)
	}
	registry := &markers.Registry{}
	if err := crdmarkers.Register(registry); err != nil {
		return fmt.Errorf("registering markers: %w", err)
	}
	parser := &crd.Parser{
		Collector:              &markers.Collector{Registry: registry},
		Checker:                &loader.TypeChecker{NodeFilters: []loader.NodeFilter{crd.Generator{}.CheckFilter()}},
		IgnoreUnexportedFields: true,
	}
	crd.AddKnownTypes(parser)
	for _, path := range published {
		parser.PackageOverrides[path] = func(p *crd.Parser, pkg *loader.Package) {
			p.AddPackage(pkg)
			delete(p.GroupVersions, pkg)
		}
	}
	for _, pkg := range roots {
		parser.NeedPackage(pkg)
	}
	for _, kind := range crd.FindKubeKinds(parser, crd.FindMetav1(roots)) {
		if err := write(parser, kind, out); err != nil {
			return err
		}
	}
	if loader.PrintErrors(roots, packages.TypeError) {
		return fmt.Errorf("the packages have errors")
	}
	return nil
}

func write(parser *crd.Parser, kind schema.GroupKind, out string) error {
	parser.NeedCRDFor(kind, nil)
	definition := parser.CustomResourceDefinitions[kind]
	crd.FixTopLevelMetadata(definition)
	for i, version := range definition.Spec.Versions {
		if version.Subresources != nil && version.Subresources.Status == nil && version.Subresources.Scale == nil {
			definition.Spec.Versions[i].Subresources = nil
		}
		// The text about metadata is the same in every kind, and Kubernetes adds its own.
		root := version.Schema.OpenAPIV3Schema
		root.Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
	}
	raw, err := yaml.Marshal(definition)
	if err != nil {
		return fmt.Errorf("writing %s: %w", kind, err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(raw, &object); err != nil {
		return fmt.Errorf("reading %s back: %w", kind, err)
	}
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	if raw, err = yaml.Marshal(object); err != nil {
		return fmt.Errorf("writing %s: %w", kind, err)
	}
	var file bytes.Buffer
	file.WriteString("# Generated from the Go types in api/ by hack/tools/codegen/crds; `make generate` writes it.\n")
	file.Write(raw)
	name := fmt.Sprintf("%s_%s.yaml", definition.Spec.Group, definition.Spec.Names.Plural)
	return os.WriteFile(filepath.Join(out, name), file.Bytes(), 0o644)
}
