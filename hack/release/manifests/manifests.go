package manifests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Options say what is released.
type Options struct {
	// Version is that of the release, as a tag: v0.1.0.
	Version string
	// Images are references by the names that deploy/ uses, such as
	// ghcr.io/layerwright/layerwright: registry.example.com/layerwright/controller@sha256:...
	Images map[string]string
}

// The names that deploy/ uses for the images of a release.
const (
	ControllerImage = "ghcr.io/layerwright/layerwright"
	AgentImage      = "ghcr.io/layerwright/layerwright-agent"
	BuilderImage    = "ghcr.io/layerwright/layerwright-builder"
)

// Write writes into a folder:
//
//   - install.yaml and install-openshift.yaml, for kubectl apply --server-side
//   - install-openshift-machine-api.yaml, for boot images on OpenShift
func Write(dir string, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	for file, overlay := range map[string]string{
		"install.yaml":                       "overlays/kubernetes",
		"install-openshift.yaml":             "overlays/openshift",
		"install-openshift-machine-api.yaml": "openshift-machine-api",
	} {
		objects, err := build(kustomization{Resources: []string{overlay}})
		if err != nil {
			return fmt.Errorf("building deploy/%s: %w", overlay, err)
		}
		o.setImages(objects)
		content, err := encode(objects)
		if err != nil {
			return err
		}
		if err := write(dir, file, content); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) validate() error {
	if !strings.HasPrefix(o.Version, "v") {
		return fmt.Errorf("writing manifests: version %q has to begin with v, such as v0.1.0", o.Version)
	}
	names := []string{ControllerImage, AgentImage, BuilderImage}
	for _, name := range names {
		if o.Images[name] == "" {
			return fmt.Errorf("writing manifests: no image is given for %s", name)
		}
	}
	for name := range o.Images {
		if !slices.Contains(names, name) {
			return fmt.Errorf("writing manifests: deploy/ has no image %s", name)
		}
	}
	return nil
}

// setImages replaces the images of deploy/, whatever their tag, wherever they are named: the
// builder's is in an environment variable.
func (o Options) setImages(objects []*unstructured.Unstructured) {
	for _, object := range objects {
		for _, entry := range append(containers(object), environment(object)...) {
			for _, field := range []string{"image", "value"} {
				reference, _ := entry[field].(string)
				name, _, _ := strings.Cut(reference, ":")
				if image, ok := o.Images[name]; ok {
					entry[field] = image
				}
			}
		}
	}
}

// containers are those of a Deployment or DaemonSet.
func containers(object *unstructured.Unstructured) []map[string]any {
	found, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "template", "spec", "containers")
	return maps(found)
}

func environment(object *unstructured.Unstructured) []map[string]any {
	var all []map[string]any
	for _, container := range containers(object) {
		all = append(all, maps(container["env"])...)
	}
	return all
}

// maps are the elements of a list of objects.
func maps(list any) []map[string]any {
	elements, _ := list.([]any)
	var all []map[string]any
	for _, element := range elements {
		if m, ok := element.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

func encode(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for i, object := range objects {
		if i > 0 {
			out.WriteString("---\n")
		}
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %q: %w", object.GetKind(), object.GetName(), err)
		}
		out.Write(content)
	}
	return out.Bytes(), nil
}

func write(dir, name string, content []byte) error {
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // others read what is released
		return err
	}
	return os.WriteFile(path, content, 0o644) //nolint:gosec // as above
}
