package manifests

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/deploy"
	"github.com/layerwright/layerwright/hack/release/images"
)

// Options say what is released.
type Options struct {
	// Version is that of the release, as a tag: v0.1.0.
	Version string
	// Images are references by the names that deploy/ uses, such as
	// ghcr.io/layerwright/layerwright: registry.example.com/layerwright/controller@sha256:...
	Images map[string]string
}

// Write writes into a folder:
//
//   - install.yaml and install-openshift.yaml, for kubectl apply --server-side
//   - install-openshift-machine-api.yaml, for boot images on OpenShift
//   - components, those of deploy/ that install.yaml lacks, for a kustomization beside it
//   - layerwright-0.1.0.tgz, the Helm chart for Kubernetes
//   - bundle, the OLM bundle for OpenShift, and install-olm-first.yaml, what no bundle can hold
func Write(dir string, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	for file, k := range map[string]kustomization{
		"install.yaml":                       onKubernetes(),
		"install-openshift.yaml":             {Resources: []string{"overlays/openshift"}},
		"install-openshift-machine-api.yaml": {Resources: []string{"openshift-machine-api"}},
	} {
		objects, err := build(k)
		if err != nil {
			return fmt.Errorf("building %s: %w", file, err)
		}
		content, err := encode(o.setImages(objects))
		if err != nil {
			return err
		}
		if err := write(dir, file, content); err != nil {
			return err
		}
	}
	if err := writeComponents(dir); err != nil {
		return err
	}
	content, err := o.chart()
	if err != nil {
		return fmt.Errorf("making the chart: %w", err)
	}
	if err := write(dir, "layerwright-"+strings.TrimPrefix(o.Version, "v")+".tgz", content); err != nil {
		return err
	}
	if err := o.writeBundle(dir); err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}
	return nil
}

// writeComponents writes the components that onKubernetes does not have.
func writeComponents(dir string) error {
	return fs.WalkDir(deploy.Files, "components", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name == "components/agent" || name == "components/signing" {
			return fs.SkipDir
		}
		if entry.IsDir() {
			return nil
		}
		content, err := deploy.Files.ReadFile(name)
		if err != nil {
			return err
		}
		return write(dir, name, content)
	})
}

// onKubernetes is what plain Kubernetes gets. Agents take images that the host's policy covers, so
// without signing no node would ever be updated.
func onKubernetes() kustomization {
	return kustomization{Namespace: "layerwright", Resources: []string{"overlays/kubernetes"}, Components: []string{"components/signing"}}
}

func (o Options) validate() error {
	if !strings.HasPrefix(o.Version, "v") {
		return fmt.Errorf("writing manifests: version %q has to begin with v, such as v0.1.0", o.Version)
	}
	names := []string{images.Controller, images.Agent, images.Builder}
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

// setImages replaces the images of deploy/, whatever their tag, wherever they are named.
func (o Options) setImages(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, object := range objects {
		for _, v := range values {
			if !strings.HasPrefix(v.value, "images.") || v.kind != object.GetKind() {
				continue
			}
			reference, _ := v.in(object)[v.field].(string)
			name, _, _ := strings.Cut(reference, ":")
			v.in(object)[v.field] = o.Images[name]
		}
	}
	return objects
}

// pod is the template of a Deployment's or a DaemonSet's pods.
func pod(object *unstructured.Unstructured) map[string]any {
	found, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "template", "spec")
	spec, _ := found.(map[string]any)
	return spec
}

// container is the only one of a pod.
func container(object *unstructured.Unstructured) map[string]any {
	return objectsIn(pod(object)["containers"])[0]
}

// builderVariable is the one that tells the controller which image builds.
func builderVariable(object *unstructured.Unstructured) map[string]any {
	variables := objectsIn(container(object)["env"])
	return variables[slices.IndexFunc(variables, func(v map[string]any) bool { return v["name"] == "BUILDER_IMAGE" })]
}

func deploymentOf(objects []*unstructured.Unstructured) *unstructured.Unstructured {
	return objects[slices.IndexFunc(objects, func(object *unstructured.Unstructured) bool { return object.GetKind() == "Deployment" })]
}

// objectsIn are those in a list.
func objectsIn(list any) []map[string]any {
	elements, _ := list.([]any)
	var all []map[string]any
	for _, element := range elements {
		if object, isObject := element.(map[string]any); isObject {
			all = append(all, object)
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
