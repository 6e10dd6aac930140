package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// objectFiles are what is applied at first in objects, and what is applied for the content in
// content.
//
//go:embed objects/*.yaml content/*.yaml
var objectFiles embed.FS

// motdFile is the file with the MachineConfig that changes, imageFile the ConfigMap with the
// Containerfile, and configFile the MachineOSConfig that then names it.
const (
	motdFile   = "10-motd.yaml"
	imageFile  = "35-worker-image.yaml"
	configFile = "40-machineosconfig.yaml"
)

// facts are what the objects' templates ask for.
type facts struct {
	// Base is the OS image by tag, Repository where images go.
	Base, Repository       string
	PullSecret, PushSecret string
	// Builder is Job or Pipeline.
	Builder string
	// Motd is the content of /etc/motd as a data URL.
	Motd string
	// Package is a package of Debian's in base64, which content is made of; empty before there is
	// any. Namespace is where the ConfigMap with it goes.
	Package, Namespace string
	// BuildOnly reports whether images are not rolled out.
	BuildOnly bool
}

func newFacts(base, repository string) facts {
	return facts{Base: base, Repository: repository, PullSecret: stack.PullSecret, PushSecret: stack.PushSecret, Builder: Job, Namespace: stack.Namespace}
}

// dataURL is how Ignition has a file's content inline.
func dataURL(content string) string { return "data:," + url.PathEscape(content) }

// write writes one file of objects into a folder, filled in.
func write(dir, name string, f facts) (text string, err error) {
	parsed, err := template.New(name).ParseFS(objectFiles, "*/"+name)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if err := parsed.Execute(&out, f); err != nil {
		return "", err
	}
	return out.String(), files.Write(filepath.Join(dir, name), []byte(out.String()), 0o600)
}

// writeAll writes all files of objects into a folder, which is made if need be, and nothing else:
// what else is there stays.
func writeAll(dir string, f facts) (texts []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := objectFiles.ReadDir("objects")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		text, err := write(dir, entry.Name(), f)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", entry.Name(), err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// resources are the kinds' places in the API.
var resources = map[string]schema.GroupVersionResource{
	"MachineConfig":     {Group: mcfgv1.GroupVersion.Group, Version: mcfgv1.GroupVersion.Version, Resource: "machineconfigs"},
	"MachineConfigPool": {Group: mcfgv1.GroupVersion.Group, Version: mcfgv1.GroupVersion.Version, Resource: "machineconfigpools"},
	"MachineOSConfig":   {Group: mcfgv1.GroupVersion.Group, Version: mcfgv1.GroupVersion.Version, Resource: "machineosconfigs"},
	"ConfigMap":         {Version: "v1", Resource: "configmaps"},
}

// applied is an object that was applied, and what that did.
type applied struct {
	object *unstructured.Unstructured
	// did is "created", "changed" or "found as it is".
	did string
}

// apply does with an object what `kubectl apply --server-side --force-conflicts` does, under the
// same name, so that a person can go on with kubectl where this ends.
func apply(ctx context.Context, client dynamic.Interface, text string) (*applied, error) {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		return nil, err
	}
	kind := object.GetKind()
	resource, ok := resources[kind]
	if !ok {
		return nil, fmt.Errorf("the kind %q is not known here", kind)
	}
	var objects dynamic.ResourceInterface = client.Resource(resource)
	if namespace := object.GetNamespace(); namespace != "" {
		objects = client.Resource(resource).Namespace(namespace)
	}
	before, err := objects.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading %s %q: %w", kind, object.GetName(), err)
	}
	did := "created"
	if err == nil {
		if before.GetDeletionTimestamp() != nil {
			return nil, fmt.Errorf("%s %q is being deleted: run again when it is gone (`kubectl get %s %s` says so)",
				kind, object.GetName(), strings.ToLower(kind), object.GetName())
		}
		did = "changed"
	}
	after, err := objects.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
	if err != nil {
		return nil, explainApply(kind, object.GetName(), err)
	}
	if before != nil && isSame(before, after) {
		did = "found as it is"
	}
	return &applied{object: after, did: did}, nil
}

// isSame reports whether nothing that counts has changed: the generation where there is one, since
// others write status, and anything elsewhere.
func isSame(before, after *unstructured.Unstructured) bool {
	if before.GetUID() != after.GetUID() {
		return false
	}
	if after.GetGeneration() == 0 {
		return before.GetResourceVersion() == after.GetResourceVersion()
	}
	return before.GetGeneration() == after.GetGeneration()
}

func explainApply(kind, name string, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && apierrors.IsNotFound(err) {
		return fmt.Errorf("applying %s %q: the cluster doesn't know this kind; `cluster deploy` installs it: %w", kind, name, err)
	}
	return fmt.Errorf("applying %s %q: %w", kind, name, err)
}
