package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

const timeout = 5 * time.Minute

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	policies    = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	bindings    = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}
)

// Kinds installs every CustomResourceDefinition of deploy/crds and returns when all are
// established.
func Kinds(tb testing.TB, config *rest.Config) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	objects := Objects(tb, Path(tb, "deploy/crds"))
	client := client(tb, config)
	group, ctx := errgroup.WithContext(ctx)
	for _, object := range objects {
		group.Go(func() error { return establish(ctx, client, object) })
	}
	if err := group.Wait(); err != nil {
		tb.Fatalf("installing kinds: %v", err)
	}
	discover(tb, config, objects...)
}

// Definition installs one CustomResourceDefinition that is not Layerwright's, and returns when it
// is established.
func Definition(tb testing.TB, config *rest.Config, definition *apiextensionsv1.CustomResourceDefinition) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err != nil {
		tb.Fatalf("converting %s: %v", definition.Name, err)
	}
	object := &unstructured.Unstructured{Object: content}
	if err := establish(ctx, client(tb, config), object); err != nil {
		tb.Fatalf("installing %s: %v", definition.Name, err)
	}
	discover(tb, config, object)
}

// Policies installs every admission policy and binding of deploy/policies, and returns when the API
// server enforces them.
func Policies(tb testing.TB, config *rest.Config) {
	tb.Helper()
	client := client(tb, config)
	for _, object := range Objects(tb, Path(tb, "deploy/policies")) {
		resource := policies
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			resource = bindings
		}
		if _, err := client.Resource(resource).Create(tb.Context(), object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			tb.Fatalf("installing %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	if err := await.Policies(ctx, kubernetes.NewForConfigOrDie(config)); err != nil {
		tb.Fatal(err)
	}
}

// ControllerRights gives a user the rights that deploy/base gives the controller's ServiceAccount,
// with those of more files of deploy/, and no others. The roles have the namespace in their names,
// so that several tests can have them.
func ControllerRights(tb testing.TB, config *rest.Config, namespace, user string, more ...string) {
	tb.Helper()
	const name = "layerwright-controller"
	objects := slices.DeleteFunc(Objects(tb, Path(tb, "deploy/base/rbac.yaml")), func(o *unstructured.Unstructured) bool { return o.GetName() != name })
	for _, path := range more {
		objects = append(objects, Objects(tb, Path(tb, path))...)
	}
	c := client(tb, config)
	for _, object := range objects {
		kind := object.GetKind()
		object.SetName(object.GetName() + "-" + namespace)
		if kind == "RoleBinding" || kind == "ClusterRoleBinding" {
			object.Object["subjects"] = []any{map[string]any{"kind": rbacv1.UserKind, "apiGroup": rbacv1.GroupName, "name": user}}
			role, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
			_ = unstructured.SetNestedField(object.Object, role+"-"+namespace, "roleRef", "name")
		}
		resource := rbacv1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")
		var to dynamic.ResourceInterface = c.Resource(resource)
		if !strings.HasPrefix(kind, "Cluster") {
			object.SetNamespace(namespace)
			to = c.Resource(resource).Namespace(namespace)
		}
		if _, err := to.Create(tb.Context(), object, metav1.CreateOptions{}); err != nil {
			tb.Fatalf("granting rights: %s %s: %v", kind, object.GetName(), err)
		}
	}
}

// Path returns the path of a file or folder of the repository.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	root, err := toolchain.RepositoryRoot(".")
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(root, name)
}

// Objects reads the objects of a file, or of every file in a folder. Kustomizations are no objects.
func Objects(tb testing.TB, path string) []*unstructured.Unstructured {
	tb.Helper()
	files := []string{path}
	if info, err := os.Stat(path); err != nil {
		tb.Fatal(err)
	} else if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil {
			tb.Fatal(err)
		}
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		read, err := Decode(content)
		if err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, read...)
	}
	return objects
}

// Decode reads the objects of a YAML text.
func Decode(content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

func client(tb testing.TB, config *rest.Config) dynamic.Interface {
	tb.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// discover waits until discovery has what definitions define. The API server publishes that a
// moment after it has established them, and tells nothing; whoever maps kinds before then finds
// none.
func discover(tb testing.TB, config *rest.Config, definitions ...*unstructured.Unstructured) {
	tb.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	var missing error
	if wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		missing = lacks(client, definitions)
		return missing == nil, nil
	}) != nil {
		tb.Fatalf("looking for installed kinds: %v", missing)
	}
}

// lacks says which kind discovery does not have.
func lacks(client discovery.DiscoveryInterface, definitions []*unstructured.Unstructured) error {
	resources, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(resources)
	for _, object := range definitions {
		var definition apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &definition); err != nil {
			return err
		}
		kind := schema.GroupKind{Group: definition.Spec.Group, Kind: definition.Spec.Names.Kind}
		for _, version := range definition.Spec.Versions {
			if _, err := mapper.RESTMapping(kind, version.Name); version.Served && err != nil {
				return err
			}
		}
	}
	return nil
}

// establish creates a definition and watches it until it is established.
func establish(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) error {
	resource := client.Resource(definitions)
	if _, err := resource.Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Without a resource version the watch starts with the object as it is.
	changes, err := resource.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + object.GetName()})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		seen, ok := change.Object.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("watching %s: %v", object.GetName(), change.Object)
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(seen.Object, &definition); err != nil {
			return err
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
	}
	return fmt.Errorf("%s was not established: %w", object.GetName(), ctx.Err())
}
