package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	out := flag.String("o", "", "file to write")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "apidocs:", err)
		os.Exit(1)
	}
}

func run(out string, files []string) error {
	var kinds []apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		content, err := os.ReadFile(file) //nolint:gosec // the files that the caller names
		if err != nil {
			return err
		}
		var kind apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &kind); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b apiextensionsv1.CustomResourceDefinition) int {
		return cmp.Or(cmp.Compare(a.Spec.Group, b.Spec.Group), cmp.Compare(a.Spec.Names.Kind, b.Spec.Names.Kind))
	})
	return os.WriteFile(out, []byte(reference(kinds)), 0o644) //nolint:gosec // a document is for everyone
}
