package manifests

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// object is part of a manifest.
type object = map[string]any

// bundle is an OLM bundle (registry+v1) on its way.
type bundle struct {
	// account is the ServiceAccount of the controller, which OLM makes.
	account string
	// rules are those of the roles that bindings give to the account, by the kind of role.
	rules map[string][]any
	// owned and required are kinds that the bundle brings, and that it needs.
	owned, required []any
	// deployment is the one that OLM makes, manifests what it makes beside that, and others what no
	// bundle can hold.
	deployment        *unstructured.Unstructured
	manifests, others []*unstructured.Unstructured
}

// writeBundle writes the bundle of the overlay for OpenShift into a folder, and what it can't hold
// beside that.
func (o Options) writeBundle(dir string) error {
	objects, err := build(kustomization{Resources: []string{"overlays/openshift"}})
	if err != nil {
		return err
	}
	o.setImages(objects)
	b := bundle{deployment: deploymentOf(objects), rules: map[string][]any{}}
	b.account, _ = pod(b.deployment)["serviceAccountName"].(string)
	b.take(objects)

	files := map[string]any{
		"bundle/manifests/layerwright.clusterserviceversion.yaml": b.serviceVersion(o.Version),
		"bundle/metadata/annotations.yaml":                        annotations(),
	}
	for _, manifest := range b.manifests {
		unstructured.RemoveNestedField(manifest.Object, "metadata", "namespace") // OLM's user chooses it
		files["bundle/manifests/"+strings.ToLower(manifest.GetKind())+"-"+manifest.GetName()+".yaml"] = manifest.Object
	}
	for name, content := range files {
		text, err := yaml.Marshal(content)
		if err != nil {
			return err
		}
		if err := write(dir, name, text); err != nil {
			return err
		}
	}
	text, err := encode(b.others)
	if err != nil {
		return err
	}
	return write(dir, "install-olm-first.yaml", text)
}

// take sorts objects by how OLM gets them.
func (b *bundle) take(objects []*unstructured.Unstructured) {
	granted := map[string]bool{}
	for _, binding := range objects {
		if !strings.HasSuffix(binding.GetKind(), "RoleBinding") {
			continue
		}
		role, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name")
		granted[strings.TrimSuffix(binding.GetKind(), "Binding")+" "+role] = true
	}
	for _, o := range objects {
		switch kind := o.GetKind(); kind {
		case "Deployment", "ClusterRoleBinding", "RoleBinding": // of the controller, as there is no other account
		case "ClusterRole", "Role":
			if !granted[kind+" "+o.GetName()] {
				b.manifests = append(b.manifests, o)
				continue
			}
			rules, _, _ := unstructured.NestedFieldNoCopy(o.Object, "rules")
			b.rules[kind] = append(b.rules[kind], rules.([]any)...) //nolint:forcetypeassert // every role has rules
		case "ServiceAccount":
			if o.GetName() != b.account {
				b.manifests = append(b.manifests, o)
			}
		case "Service":
			b.manifests = append(b.manifests, o)
		case "CustomResourceDefinition":
			b.takeKind(o)
		default:
			b.others = append(b.others, o)
		}
	}
}

// takeKind brings the kinds that OpenShift does not have. The others are the
// cluster-version-operator's, which puts its own back.
func (b *bundle) takeKind(definition *unstructured.Unstructured) {
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedFieldNoCopy(definition.Object, "spec", "versions")
	version := objectsIn(versions)[0]["name"]
	entry := object{"name": definition.GetName(), "kind": kind, "version": version, "displayName": kind}
	if version != "v1alpha1" {
		b.required = append(b.required, entry)
		return
	}
	b.owned = append(b.owned, entry)
	b.manifests = append(b.manifests, definition)
}

// serviceVersion is the object that OLM installs.
func (b *bundle) serviceVersion(version string) object {
	permissions := func(kind string) []any {
		return []any{object{"serviceAccountName": b.account, "rules": b.rules[kind]}}
	}
	spec, _, _ := unstructured.NestedFieldNoCopy(b.deployment.Object, "spec")
	var modes []any
	for _, mode := range []string{"OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"} {
		modes = append(modes, object{"type": mode, "supported": mode == "AllNamespaces"})
	}
	return object{
		"apiVersion": "operators.coreos.com/v1alpha1",
		"kind":       "ClusterServiceVersion",
		"metadata": object{
			"name": "layerwright." + version,
			"annotations": object{
				"capabilities":   "Basic Install",
				"categories":     "OpenShift Optional",
				"containerImage": container(b.deployment)["image"],
				"operatorframework.io/suggested-namespace": b.deployment.GetNamespace(),
			},
		},
		"spec": object{
			"displayName":               "Layerwright",
			"description":               "Builds layered operating-system images in a cluster, and rolls them out to its nodes. Apply install-olm-first.yaml of the release first.",
			"version":                   strings.TrimPrefix(version, "v"),
			"maturity":                  "alpha",
			"minKubeVersion":            "1.30.0",
			"provider":                  object{"name": "Layerwright", "url": "https://github.com/layerwright/layerwright"},
			"installModes":              modes,
			"customresourcedefinitions": object{"owned": b.owned, "required": b.required},
			"install": object{
				"strategy": "deployment",
				"spec": object{
					"deployments":        []any{object{"name": b.deployment.GetName(), "label": b.deployment.GetLabels(), "spec": spec}},
					"clusterPermissions": permissions("ClusterRole"),
					"permissions":        permissions("Role"),
				},
			},
		},
	}
}

// annotations say what the folders of the bundle are.
func annotations() object {
	const prefix = "operators.operatorframework.io.bundle."
	return object{"annotations": object{
		prefix + "mediatype.v1":       "registry+v1",
		prefix + "manifests.v1":       "manifests/",
		prefix + "metadata.v1":        "metadata/",
		prefix + "package.v1":         "layerwright",
		prefix + "channels.v1":        "alpha",
		prefix + "channel.default.v1": "alpha",
	}}
}
