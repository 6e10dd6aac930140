package policies

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

const (
	runsMessage       = "in this namespace Layerwright makes PipelineRuns, and Tekton makes TaskRuns of them"
	runStatusMessage  = "only Tekton's controller may change the status of runs in this namespace"
	runOwnerMessage   = "the owners of a run, and its labels and annotations"
	runSecretsMessage = "the annotation machineconfiguration.openshift.io/build-secrets of a run must not change"
	podSecretsMessage = "may use only secrets of their build and those whose names begin with verification-; not allowed: "
	podVolumesMessage = "pods of PipelineRuns in this namespace have no token of a ServiceAccount, and no volumes of drivers or nodes"
)

// tektonPolicies installs the policies of the component, with stand-ins for Tekton's kinds.
func tektonPolicies(t *testing.T, config *rest.Config) {
	t.Helper()
	for _, kind := range []string{"PipelineRun", "TaskRun"} {
		plural := strings.ToLower(kind) + "s"
		install.Definition(t, config, &apiextensionsv1.CustomResourceDefinition{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
			ObjectMeta: metav1.ObjectMeta{Name: plural + ".tekton.dev"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "tekton.dev", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
				}},
			},
		})
	}
	client := dynamic.NewForConfigOrDie(config)
	for _, o := range install.Objects(t, install.Path(t, "deploy/components/tekton/policies.yaml")) {
		resource := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: strings.Replace(strings.ToLower(o.GetKind())+"s", "policys", "policies", 1)}
		_, err := client.Resource(resource).Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "layerwright"}}, metav1.CreateOptions{})
	require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
}

func TestTektonWrites(t *testing.T) {
	config := clustertest.ControlPlane(t)
	tektonPolicies(t, config)
	t.Run("runs", func(t *testing.T) { testWhoMakesRuns(t, config) })
	t.Run("pods", func(t *testing.T) { testSecretsOfRuns(t, config) })
}

func testWhoMakesRuns(t *testing.T, config *rest.Config) {
	t.Helper()
	as := func(user string) dynamic.Interface {
		impersonating := rest.CopyConfig(config) // with all rights, so that only the policy can refuse
		impersonating.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		return dynamic.NewForConfigOrDie(impersonating)
	}
	const own = "system:serviceaccount:layerwright:layerwright-controller"
	controller, tekton, person := as(own), as("system:serviceaccount:tekton-pipelines:tekton-pipelines-controller"), as("person")
	resource := func(kind string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "tekton.dev", Version: "v1", Resource: strings.ToLower(kind) + "s"}
	}
	create := func(ctx context.Context, by dynamic.Interface, namespace, kind, name string, annotations map[string]any, options ...string) error {
		_, err := by.Resource(resource(kind)).Namespace(namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tekton.dev/v1", "kind": kind, "metadata": map[string]any{"name": name, "annotations": annotations, "labels": map[string]any{"tekton.dev/pipelineRun": "run"}},
		}}, metav1.CreateOptions{DryRun: options})
		return err
	}
	secrets := map[string]any{mcfgv1.AnnotationBuildSecrets: "pull,push"}
	eventuallyRefused(t, runsMessage, func(ctx context.Context) error {
		return create(ctx, person, "layerwright", "PipelineRun", "run", secrets, dryRunOptions...)
	})
	for name, test := range map[string]struct {
		by              dynamic.Interface
		namespace, kind string
		annotations     map[string]any
		message         string
	}{
		"the controller makes a run":                {controller, "layerwright", "PipelineRun", secrets, ""},
		"it says which secrets it is for":           {controller, "layerwright", "PipelineRun", nil, runsMessage},
		"Tekton makes a task of it":                 {tekton, "layerwright", "TaskRun", secrets, ""},
		"Tekton makes no run of its own":            {tekton, "layerwright", "PipelineRun", secrets, runsMessage},
		"a person makes no task":                    {person, "layerwright", "TaskRun", secrets, runsMessage},
		"a controller of another namespace no run":  {as("system:serviceaccount:other:layerwright-controller"), "layerwright", "PipelineRun", secrets, runsMessage},
		"an account that is called like Tekton's":   {as("system:serviceaccount:other:tekton-pipelines-controller"), "layerwright", "TaskRun", secrets, runsMessage},
		"other namespaces are no business of ours":  {person, "default", "PipelineRun", nil, ""},
		"and tasks there are no business of ours":   {person, "default", "TaskRun", nil, ""},
		"Tekton of OpenShift has its own namespace": {as("system:serviceaccount:openshift-pipelines:tekton-pipelines-controller"), "layerwright", "TaskRun", secrets, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := create(t.Context(), test.by, test.namespace, test.kind, "run", test.annotations, dryRunOptions...)
			if test.message == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.message)
			}
		})
	}
	require.NoError(t, create(t.Context(), controller, "layerwright", "PipelineRun", "kept", secrets))
	require.NoError(t, create(t.Context(), tekton, "layerwright", "TaskRun", "kept", secrets))
	patch := func(by dynamic.Interface, kind, text string, part ...string) error {
		_, err := by.Resource(resource(kind)).Namespace("layerwright").Patch(t.Context(), "kept", types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: dryRunOptions}, part...)
		return err
	}
	for _, kind := range []string{"PipelineRun", "TaskRun"} {
		const results = `{"status":{"results":[{"name":"IMAGE_DIGEST","value":"sha256:0"}]}}`
		require.ErrorContains(t, patch(person, kind, results, "status"), runStatusMessage)
		require.NoError(t, patch(tekton, kind, results, "status"))
		require.ErrorContains(t, patch(person, kind, `{"metadata":{"annotations":{"`+mcfgv1.AnnotationBuildSecrets+`":"layerwright-signing-key"}}}`), runSecretsMessage)
		require.ErrorContains(t, patch(person, kind, `{"metadata":{"annotations":null}}`), runSecretsMessage)
		// Another build's run would have its image taken for that of this one.
		for _, metadata := range []string{
			`{"annotations":{"` + mcfgv1.AnnotationMachineOSBuild + `":"other"}}`, `{"labels":{"` + mcfgv1.LabelMachineOSBuild + `":"other"}}`,
			`{"labels":{"tekton.dev/pipelineRun":null}}`, `{"labels":null}`, `{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"a","uid":"1"}]}`,
		} {
			require.ErrorContains(t, patch(person, kind, `{"metadata":`+metadata+`}`), runOwnerMessage, metadata)
			require.NoError(t, patch(tekton, kind, `{"metadata":`+metadata+`}`), metadata)
		}
		require.NoError(t, patch(person, kind, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"builds"}}}`), "queueing systems label runs")
		require.NoError(t, patch(person, kind, `{"spec":{"status":"Cancelled"}}`), "a person cancels")
		const finalizer = `{"metadata":{"finalizers":["example.com/a"]}}`
		require.ErrorContains(t, patch(person, kind, finalizer), "only Tekton may add finalizers to runs in this namespace")
		require.NoError(t, patch(as("system:serviceaccount:tekton-chains:tekton-chains-controller"), kind, finalizer))
		require.NoError(t, patch(person, kind, `{"metadata":{"annotations":{"chains.tekton.dev/signed":"true"}}}`))
	}
}

func testSecretsOfRuns(t *testing.T, config *rest.Config) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	// Not the builds' own: another policy refuses volumes of that too, and either may answer.
	const account = "pipeline"
	_, err := client.CoreV1().ServiceAccounts("layerwright").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	require.NoError(t, err)
	create := func(ctx context.Context, change func(*corev1.Pod)) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "task-", Labels: map[string]string{"tekton.dev/taskRun": "task"}, Annotations: map[string]string{mcfgv1.AnnotationBuildSecrets: "pull,push"}},
			Spec: corev1.PodSpec{
				ServiceAccountName: account, AutomountServiceAccountToken: new(false),
				Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/builder:1"}},
			},
		}
		change(pod)
		_, err := client.CoreV1().Pods("layerwright").Create(ctx, pod, metav1.CreateOptions{DryRun: dryRunOptions})
		return err
	}
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
	}
	secret := func(name string) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}})
	}
	projected := func(source corev1.VolumeProjection) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}})
	}
	key := corev1.LocalObjectReference{Name: "layerwright-signing-key"}
	eventuallyRefused(t, podSecretsMessage+key.Name, func(ctx context.Context) error { return create(ctx, secret(key.Name)) })
	for name, test := range map[string]struct {
		change  func(*corev1.Pod)
		message string
	}{
		"a secret of another pool": {secret("push-of-another"), podSecretsMessage + "push-of-another"},
		"one by projection":        {projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: key}}), podSecretsMessage + key.Name},
		"one in a variable": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: key, Key: "key"}}}}
		}, podSecretsMessage + key.Name},
		"one in the variables of an init container": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "registry.example.com/builder:1", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: key}}}}}
		}, podSecretsMessage + key.Name},
		"a run that has none": {func(p *corev1.Pod) {
			secret("pull")(p)
			p.Annotations = nil
		}, podSecretsMessage + "pull"},
		"the registry's of another account": {secret("layerwright-controller-dockercfg-abc"), podSecretsMessage + "layerwright-controller-dockercfg-abc"},
		"a token":                           {projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}), podVolumesMessage},
		"the token that is mounted by itself": {func(p *corev1.Pod) {
			p.Spec.AutomountServiceAccountToken = new(true)
		}, podVolumesMessage},
		"a driver":  {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io"}}), podVolumesMessage},
		"the node":  {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), podVolumesMessage},
		"the build": {secret("push"), ""},
		"a test":    {secret("verification-scanner"), ""},
		"OpenShift": {secret(account + "-dockercfg-abc"), ""},
		"a claim":   {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}}), ""},
		"pods that are not Tekton's": {func(p *corev1.Pod) {
			secret(key.Name)(p)
			p.Labels = nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := create(t.Context(), test.change)
			if test.message == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.message)
			}
		})
	}
}
