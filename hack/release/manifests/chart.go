package manifests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// chartFiles are those that are not made of deploy/. They hold no object.
//
//go:embed chart
var chartFiles embed.FS

// components are those of deploy/ that a value of the chart adds, by that value, in the order in
// which they are added.
var components = []struct{ folder, value string }{
	{"components/agent", "agent"},
	{"components/signing", "signing"},
	{"components/trust-policy", "trustPolicy"},
	{"components/registry-ca", "registryCA"},
	{"components/tekton", "tekton"},
	{"components/alerts", "alerts"},
	{"components/monitor", "monitor"},
	{"components/dashboards", "dashboards"},
}

// values are fields of objects that a value of the chart sets. What they are in deploy/ is the
// default.
var values = []struct {
	kind  string
	in    func(*unstructured.Unstructured) map[string]any
	field string
	value string
}{
	{"Deployment", container, "image", "images.controller"},
	{"Deployment", builderVariable, "value", "images.builder"},
	{"Deployment", container, "resources", "controller.resources"},
	{"DaemonSet", container, "image", "images.agent"},
	{"DaemonSet", container, "resources", "agent.resources"},
	{"DaemonSet", pod, "nodeSelector", "agent.nodeSelector"},
	{"DaemonSet", pod, "tolerations", "agent.tolerations"},
}

// chart is a Helm chart on its way: the objects of deploy/ with holes where values go.
type chart struct {
	holes
	namespace string
	defaults  map[string]string
	files     map[string][]byte
}

// chart makes the Helm chart of the overlay for Kubernetes, as an archive.
func (o Options) chart() ([]byte, error) {
	c := chart{files: map[string][]byte{}, defaults: map[string]string{"version": strings.TrimPrefix(o.Version, "v")}}
	c.namespace = c.hole("{{ .Release.Namespace }}")
	overlay, err := readKustomization("overlays/kubernetes")
	if err != nil {
		return nil, err
	}
	// Components, and the namespace, are the user's choice.
	overlay.Namespace, overlay.Components = c.namespace, nil
	objects, err := build(overlay)
	if err != nil {
		return nil, err
	}
	for _, component := range components {
		added, err := c.component(component.folder, deploymentOf(objects), ".Values."+component.value+".enabled")
		if err != nil {
			return nil, fmt.Errorf("deploy/%s: %w", component.folder, err)
		}
		if err := c.template(component.value, ".Values."+component.value+".enabled", o.setImages(added)); err != nil {
			return nil, err
		}
	}
	isKind := func(object *unstructured.Unstructured) bool { return object.GetKind() == "CustomResourceDefinition" }
	isNamespace := func(object *unstructured.Unstructured) bool { return object.GetKind() == "Namespace" }
	kinds := slices.DeleteFunc(slices.Clone(objects), func(object *unstructured.Unstructured) bool { return !isKind(object) })
	core := slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool { return isKind(object) || isNamespace(object) })
	if err := c.template("crds", ".Values.crds.install", kinds); err != nil {
		return nil, err
	}
	if err := c.template("core", "true", o.setImages(core)); err != nil {
		return nil, err
	}
	if err := c.addFiles(); err != nil {
		return nil, err
	}
	return archive("layerwright", c.files)
}

// component gives the objects that a component adds, and puts what it appends to the controller's
// Deployment there, under a condition.
func (c *chart) component(folder string, controller *unstructured.Unstructured, condition string) ([]*unstructured.Unstructured, error) {
	// The ServiceAccounts too, as kustomize gives a namespace to bindings of those that it sees.
	k := kustomization{Namespace: c.namespace, Resources: []string{"base/deployment.yaml", "base/service-account.yaml"}}
	plain, err := build(k)
	if err != nil {
		return nil, err
	}
	k.Components = []string{folder}
	objects, err := build(k)
	if err != nil {
		return nil, err
	}
	if err := c.appendWhere(condition, controller.Object, deploymentOf(plain).Object, deploymentOf(objects).Object); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return slices.ContainsFunc(plain, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == object.GetKind() && o.GetName() == object.GetName()
		})
	}), nil
}

// template makes the file of objects that are wanted under a condition.
func (c *chart) template(name, condition string, objects []*unstructured.Unstructured) error {
	if len(objects) == 0 { // a component of flags alone
		return nil
	}
	for _, object := range objects {
		for _, v := range values {
			if object.GetKind() != v.kind {
				continue
			}
			in := v.in(object)
			content, err := json.Marshal(in[v.field])
			if err != nil {
				return err
			}
			c.defaults[v.value] = string(content)
			in[v.field] = c.hole("{{ toJson .Values." + v.value + " }}")
		}
		c.adapt(object)
	}
	content, err := encode(objects)
	if err != nil {
		return err
	}
	// What looks like a template in an object is none of the chart's.
	text := strings.ReplaceAll(string(content), "{{", `{{ "{{" }}`)
	c.files["templates/"+name+".yaml"] = []byte("{{- if " + condition + " }}\n" + c.fill(text) + "{{- end }}\n")
	return nil
}

// adapt changes what is different with Helm: uninstalling must remove neither kinds, which takes
// all their objects, nor keys; and namespaces that it creates have no labels.
func (c *chart) adapt(object *unstructured.Unstructured) {
	switch object.GetKind() {
	case "CustomResourceDefinition", "Secret":
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["helm.sh/resource-policy"] = "keep"
		object.SetAnnotations(annotations)
	case "ValidatingAdmissionPolicyBinding":
		selector, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "matchResources", "namespaceSelector")
		c.selectNamespace(selector)
	case "Deployment":
		args, _ := container(object)["args"].([]any)
		container(object)["args"] = append(args,
			c.line("range .Values.controller.extraArgs"), c.hole("{{ toJson . }}"), c.line("end"))
	case "ServiceAccount":
		object.Object["imagePullSecrets"] = c.hole("{{ toJson .Values.imagePullSecrets }}")
	}
}

// selectNamespace has a selector select the namespace of the release.
func (c *chart) selectNamespace(selector any) {
	const byName = "kubernetes.io/metadata.name"
	fields, _ := selector.(map[string]any)
	if _, byLabels := fields["matchLabels"]; byLabels {
		fields["matchLabels"] = map[string]any{byName: c.namespace}
	}
	for _, expression := range objectsIn(fields["matchExpressions"]) {
		if names, _ := expression["values"].([]any); expression["key"] == byName {
			names[slices.Index(names, any("layerwright"))] = c.namespace
		}
	}
}

// addFiles adds the files that are not made of deploy/, with the defaults of values.
func (c *chart) addFiles() error {
	return fs.WalkDir(chartFiles, "chart", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		parsed, err := template.New(path.Base(name)).Delims("[[", "]]").Option("missingkey=error").ParseFS(chartFiles, name)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := parsed.Execute(&out, c.defaults); err != nil {
			return err
		}
		file := path.Base(name)
		if file == "NOTES.txt" {
			file = "templates/" + file
		}
		c.files[file] = out.Bytes()
		return nil
	})
}

// archive packs the files of a folder, the same files into the same bytes.
func archive(folder string, files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	packed := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: path.Join(folder, name), Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		if err := packed.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := packed.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := packed.Close(); err != nil {
		return nil, err
	}
	if err := zipped.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
