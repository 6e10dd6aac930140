package manifests

import (
	"io/fs"
	"path"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/deploy"
)

// kustomization is what is made of the folders of deploy/.
type kustomization struct {
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Namespace  string   `json:"namespace,omitempty"`
	Resources  []string `json:"resources,omitempty"`
	Components []string `json:"components,omitempty"`
}

// readKustomization reads one of deploy/, with paths as they are from there. It may have no other
// fields.
func readKustomization(folder string) (k kustomization, err error) {
	content, err := deploy.Files.ReadFile(path.Join(folder, "kustomization.yaml"))
	if err != nil {
		return k, err
	}
	if err := yaml.UnmarshalStrict(content, &k); err != nil {
		return k, err
	}
	for _, paths := range [][]string{k.Resources, k.Components} {
		for i := range paths {
			paths[i] = path.Join(folder, paths[i])
		}
	}
	return k, nil
}

// clusterScoped are kinds that have no namespace, which kustomize does not know.
var clusterScoped = []string{"SecurityContextConstraints", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

// kustomizing is held by the only run: kustomize reads its schemas into a variable of the process
// when it first needs them, and others read it meanwhile.
var kustomizing sync.Mutex

// build gives the objects of a kustomization that lies in deploy/, in the order in which they can
// be applied.
func build(k kustomization) ([]*unstructured.Unstructured, error) {
	files := filesys.MakeFsInMemory()
	err := fs.WalkDir(deploy.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := deploy.Files.ReadFile(path)
		if err != nil {
			return err
		}
		return files.WriteFile(path, content)
	})
	if err != nil {
		return nil, err
	}
	root, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	if err := files.WriteFile("kustomization.yaml", root); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	kustomizing.Lock()
	defer kustomizing.Unlock()
	built, err := krusty.MakeKustomizer(options).Run(files, ".")
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		content, err := resource.Map()
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{Object: content}
		if slices.Contains(clusterScoped, object.GetKind()) {
			object.SetNamespace("")
		}
		objects = append(objects, object)
	}
	return objects, nil
}
