package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/rollout/bootimages/ec2"
	"github.com/layerwright/layerwright/trust"
)

// document is one object of a manifest file, as its bytes.
type document struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	file string
	raw  []byte
}

// documents reads every object below a folder; kustomizations are no objects.
func documents(t *testing.T, folder string) []document {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	var all []document
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, raw := range bytes.Split(content, []byte("\n---\n")) {
			d := document{file: file, raw: raw}
			require.NoError(t, yaml.Unmarshal(raw, &d), file)
			if d.Kind != "" {
				all = append(all, d)
			}
		}
	}
	require.NotEmpty(t, all, folder)
	return all
}

// only decodes the object of a kind and name, refusing fields that the API does not know.
func only[T any](t *testing.T, folder, kind, name string) T {
	t.Helper()
	var object T
	found := 0
	for _, d := range documents(t, folder) {
		if d.Kind == kind && d.Name == name {
			found++
			require.NoError(t, yaml.UnmarshalStrict(d.raw, &object), d.file)
		}
	}
	require.Equal(t, 1, found, "%s %s in %s", kind, name, folder)
	return object
}

type kustomization struct {
	Namespace string   `json:"namespace"`
	Resources []string `json:"resources"`
	Patches   []struct {
		Path   string `json:"path"`
		Patch  string `json:"patch"`
		Target struct {
			Name string `json:"name"`
		} `json:"target"`
	} `json:"patches"`
	Images []struct {
		Name   string `json:"name"`
		NewTag string `json:"newTag"`
	} `json:"images"`
}

func kustomizationOf(t *testing.T, folder string) kustomization {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	require.NoError(t, err)
	var k kustomization
	require.NoError(t, yaml.Unmarshal(content, &k))
	return k
}

func controller(t *testing.T) (appsv1.Deployment, corev1.Container) {
	t.Helper()
	deployment := only[appsv1.Deployment](t, "base", "Deployment", "layerwright-controller")
	require.Len(t, deployment.Spec.Template.Spec.Containers, 1)
	require.Empty(t, deployment.Spec.Template.Spec.InitContainers)
	return deployment, deployment.Spec.Template.Spec.Containers[0]
}

func TestEveryFileIsUsed(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"base", "crds", "policies", "overlays/kubernetes", "overlays/openshift", "openshift-machine-api", "components/agent", "components/alerts", "components/monitor", "components/private-networks", "components/registry-ca", "components/signing", "components/tekton", "components/trust-policy"} {
		k := kustomizationOf(t, folder)
		listed := slices.DeleteFunc(k.Resources, func(r string) bool { return strings.HasPrefix(r, "..") })
		for _, patch := range k.Patches {
			if patch.Path != "" {
				listed = append(listed, patch.Path)
			}
		}
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		require.NoError(t, err)
		var present []string
		for _, file := range files {
			if base := filepath.Base(file); base != "kustomization.yaml" {
				present = append(present, base)
			}
		}
		assert.ElementsMatch(t, present, listed, folder)
	}
}

func TestTheSigningKeyIsNotPartOfTheManifests(t *testing.T) {
	t.Parallel()
	secret := only[corev1.Secret](t, "components/signing", "Secret", names.SigningKey)
	assert.Empty(t, secret.Data)
	assert.Empty(t, secret.StringData)
	content, err := os.ReadFile("components/signing/kustomization.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(content), "--signing-secret="+names.SigningKey+"\n")
}

func TestTheTrustPolicyIsNotPartOfTheManifests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("components/trust-policy/*")
	require.NoError(t, err)
	assert.Equal(t, []string{"components/trust-policy/kustomization.yaml"}, files, "applying them again would overwrite it, and reading it takes no right more")
	content, err := os.ReadFile("components/trust-policy/kustomization.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(content), "--trust-policy="+names.TrustPolicy+"\n")

	text, err := os.ReadFile("examples/trust-policy.yaml")
	require.NoError(t, err)
	var example corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict(text, &example))
	assert.Equal(t, names.TrustPolicy, example.Name)
	policy, err := trust.Parse([]byte(example.Data[trust.PolicyKey]))
	require.NoError(t, err)
	image, err := os.ReadFile("examples/external-image.yaml")
	require.NoError(t, err)
	pullSpec := regexp.MustCompile(`pullSpec: (\S+)`).FindSubmatch(image)
	require.Len(t, pullSpec, 2)
	repository, err := trust.RepositoryOf(string(pullSpec[1]))
	require.NoError(t, err)
	rule, has := policy.For(repository)
	require.True(t, has, "the examples fit together")
	assert.NotEmpty(t, rule.Builders)
}

func TestOverlaysChooseTheNamespace(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "layerwright", kustomizationOf(t, "overlays/kubernetes").Namespace)
	assert.Equal(t, "openshift-machine-config-operator", kustomizationOf(t, "overlays/openshift").Namespace)
	for _, d := range append(documents(t, "base"), documents(t, "overlays/openshift")...) {
		assert.Empty(t, d.Namespace, "%s %s: the overlay says where it lives", d.Kind, d.Name)
		assert.NotEqual(t, "Namespace", d.Kind, "the namespace on OpenShift is not ours")
	}

	namespace := only[corev1.Namespace](t, "overlays/kubernetes", "Namespace", "layerwright")
	assert.Equal(t, "privileged", namespace.Labels["pod-security.kubernetes.io/enforce"], "builds mount; the policy of pods says who may do what")
	binding := only[admissionv1.ValidatingAdmissionPolicyBinding](t, "overlays/kubernetes", "ValidatingAdmissionPolicyBinding", "layerwright-pods")
	policy := only[admissionv1.ValidatingAdmissionPolicy](t, "overlays/kubernetes", "ValidatingAdmissionPolicy", binding.Spec.PolicyName)
	selector, err := metav1.LabelSelectorAsSelector(binding.Spec.MatchResources.NamespaceSelector)
	require.NoError(t, err)
	assert.True(t, selector.Matches(labels.Set(namespace.Labels)))
	assert.Equal(t, []admissionv1.ValidationAction{admissionv1.Deny}, binding.Spec.ValidationActions)
	assert.Equal(t, new(admissionv1.Fail), policy.Spec.FailurePolicy)
}

func TestObjectsCarryTheRecommendedLabels(t *testing.T) {
	t.Parallel()
	for _, d := range documents(t, "base") {
		assert.Equal(t, "layerwright", d.Labels["app.kubernetes.io/name"], "%s %s", d.Kind, d.Name)
		component := "controller"
		for _, other := range []string{"build", "verification"} {
			if strings.HasSuffix(d.Name, "-"+other) {
				component = other
			}
		}
		assert.Equal(t, component, d.Labels["app.kubernetes.io/component"], "%s %s", d.Kind, d.Name)
	}
}

func TestRBACIsLeastPrivilege(t *testing.T) {
	t.Parallel()
	const ours = "machineconfiguration.openshift.io"
	type grant struct{ kind, name string }
	got := map[grant][]rbacv1.PolicyRule{}
	for _, folder := range []string{"base", "overlays/kubernetes", "overlays/openshift", "openshift-machine-api", "components/agent", "components/monitor", "components/signing", "components/tekton"} {
		for _, d := range documents(t, folder) {
			if d.Kind == "Role" || d.Kind == "ClusterRole" {
				var role rbacv1.ClusterRole
				require.NoError(t, yaml.UnmarshalStrict(d.raw, &role))
				got[grant{d.Kind, d.Name}] = role.Rules
			}
		}
	}
	for of, rules := range got {
		for _, rule := range rules {
			words := slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs)
			for _, word := range words {
				assert.NotContains(t, word, "*", "%v: %v", of, rule)
			}
			for _, verb := range []string{"escalate", "bind", "impersonate"} {
				assert.NotContains(t, rule.Verbs, verb, "%v: %v", of, rule)
			}
		}
	}
	assert.Equal(t, map[grant][]rbacv1.PolicyRule{
		{"Role", "layerwright-controller"}: {
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{
				APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
				ResourceNames: []string{names.ControllerLease}, Verbs: []string{"get", "update"},
			},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{""}, Resources: []string{"events", "limitranges"}, Verbs: []string{"list"}},
		},
		{"Role", "layerwright-pipelines"}: {
			{APIGroups: []string{"tekton.dev"}, Resources: []string{"pipelineruns"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
			{APIGroups: []string{"tekton.dev"}, Resources: []string{"taskruns"}, Verbs: []string{"list", "watch", "patch"}},
			{APIGroups: []string{"tekton.dev"}, Resources: []string{"pipelines"}, Verbs: []string{"get"}},
		},
		{"ClusterRole", "layerwright-pipelines"}: {
			{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, ResourceNames: []string{"pipelineruns.tekton.dev"}, Verbs: []string{"list", "watch"}},
		},
		{"Role", "layerwright-signing"}: {
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{names.SigningKey}, Verbs: []string{"get", "update"}},
		},
		{"ClusterRole", "layerwright-controller"}: {
			{APIGroups: []string{ours}, Resources: []string{"machineconfigpools"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{ours}, Resources: []string{"machineconfigpools/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{ours}, Resources: []string{"machineconfigpools/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{ours}, Resources: []string{"machineconfigs"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
			{APIGroups: []string{ours}, Resources: []string{"osimagestreams"}, Verbs: []string{"list", "watch", "create", "patch"}},
			{APIGroups: []string{ours}, Resources: []string{"osimagestreams/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{"config.openshift.io"}, Resources: []string{"clusterversions"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{"config.openshift.io"}, Resources: []string{"imagedigestmirrorsets", "imagetagmirrorsets"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{"operator.openshift.io"}, Resources: []string{"imagecontentsourcepolicies"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{ours}, Resources: []string{"machineconfignodes"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{ours}, Resources: []string{"machineosconfigs"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{ours}, Resources: []string{"machineosconfigs/status", "machineosbuilds/status", "machineosimages/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{ours}, Resources: []string{"machineosconfigs/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{ours}, Resources: []string{"machineosbuilds"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
			{APIGroups: []string{ours}, Resources: []string{"machineosimages"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
			{APIGroups: []string{ours}, Resources: []string{"osimagestreams/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{"operator.openshift.io"}, Resources: []string{"machineconfigurations"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"config.openshift.io"}, Resources: []string{"clusteroperators"}, Verbs: []string{"create"}},
			{
				APIGroups: []string{"config.openshift.io"}, Resources: []string{"clusteroperators"},
				ResourceNames: []string{names.ClusterOperator}, Verbs: []string{"get"},
			},
			{
				APIGroups: []string{"config.openshift.io"}, Resources: []string{"clusteroperators/status"},
				ResourceNames: []string{names.ClusterOperator}, Verbs: []string{"patch"},
			},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch", "patch"}},
			{
				APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
				Verbs: []string{"list", "watch"},
			},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		},
		{"ClusterRole", "layerwright-rollout"}: {
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
			{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
			{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list"}},
			{APIGroups: []string{ours}, Resources: []string{"machineconfignodes"}, Verbs: []string{"create", "delete", "patch"}},
			{APIGroups: []string{ours}, Resources: []string{"machineconfignodes/status"}, Verbs: []string{"patch"}},
		},
		{"ClusterRole", "layerwright-boot-images"}: {
			{APIGroups: []string{"operator.openshift.io"}, Resources: []string{"machineconfigurations"}, Verbs: []string{"patch"}},
			{APIGroups: []string{"operator.openshift.io"}, Resources: []string{"machineconfigurations/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{"config.openshift.io"}, Resources: []string{"infrastructures", "clusterversions"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"machine.openshift.io"}, Resources: []string{"machinesets", "controlplanemachinesets"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"machinesets", "machinedeployments"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{"machine.openshift.io", "cluster.x-k8s.io"}, Resources: []string{"machines"}, Verbs: []string{"list"}},
			{
				APIGroups: []string{"infrastructure.cluster.x-k8s.io"},
				Resources: []string{"awsmachinetemplates", "azuremachinetemplates", "gcpmachinetemplates", "vspheremachinetemplates", "metal3machinetemplates"},
				Verbs:     []string{"get", "list", "create", "delete"},
			},
			{
				APIGroups: []string{"infrastructure.cluster.x-k8s.io"},
				Resources: []string{"openstackmachinetemplates", "nutanixmachinetemplates", "ibmvpcmachinetemplates", "ibmpowervsmachinetemplates"},
				Verbs:     []string{"get", "list"},
			},
			{APIGroups: []string{ours}, Resources: []string{"bootimagehistories"}, Verbs: []string{"get", "list", "watch", "create"}},
			{APIGroups: []string{ours}, Resources: []string{"bootimagehistories/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		},
		{"Role", "layerwright-user-data"}: {
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "patch", "watch"}},
		},
		{"ClusterRole", "layerwright-agent"}: {
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{ours}, Resources: []string{"machineconfignodes", "machineconfigpools", "machineconfigs", "machineosconfigs"}, Verbs: []string{"get"}},
			{APIGroups: []string{"operator.openshift.io"}, Resources: []string{"machineconfigurations"}, Verbs: []string{"get"}},
			{APIGroups: []string{ours}, Resources: []string{"machineconfignodes/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		},
		{"Role", "layerwright-agent-rights"}: {
			{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"roles"}, Verbs: []string{"create"}},
			{
				APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"roles"},
				ResourceNames: []string{"layerwright-agent-pull-secrets"}, Verbs: []string{"list", "watch", "update"},
			},
		},
		{"ClusterRole", "layerwright-openshift"}: {
			{APIGroups: []string{"config.openshift.io"}, Resources: []string{"clusterimagepolicies"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
		},
		{"ClusterRole", "layerwright-metrics-auth"}: {
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
			{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		},
		{"ClusterRole", "layerwright-metrics-reader"}: {
			{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
		},
		{"Role", "layerwright-metrics-discovery"}: {
			{APIGroups: []string{""}, Resources: []string{"services", "endpoints", "pods"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "watch"}},
		},
	}, got, "a new right is written down here too, so that someone looks at it")
}

func TestBindingsBindTheControllerOnly(t *testing.T) {
	t.Parallel()
	account := only[corev1.ServiceAccount](t, "base", "ServiceAccount", "layerwright-controller")
	require.NotNil(t, account.AutomountServiceAccountToken)
	assert.False(t, *account.AutomountServiceAccountToken)

	build := only[corev1.ServiceAccount](t, "base", "ServiceAccount", "layerwright-build")
	assert.Equal(t, new(false), build.AutomountServiceAccountToken)

	var bound []string
	for _, d := range documents(t, "base") {
		if d.Kind != "RoleBinding" && d.Kind != "ClusterRoleBinding" {
			continue
		}
		var binding rbacv1.ClusterRoleBinding
		require.NoError(t, yaml.UnmarshalStrict(d.raw, &binding))
		assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name}}, binding.Subjects)
		bound = append(bound, fmt.Sprintf("%s of %s/%s", d.Kind, binding.RoleRef.Kind, binding.RoleRef.Name))
	}
	assert.ElementsMatch(t, []string{
		"RoleBinding of Role/layerwright-controller",
		"ClusterRoleBinding of ClusterRole/layerwright-controller",
		"ClusterRoleBinding of ClusterRole/layerwright-metrics-auth",
		"ClusterRoleBinding of ClusterRole/layerwright-rollout",
		"ClusterRoleBinding of ClusterRole/layerwright-boot-images",
	}, bound)
}

func TestDeploymentMeetsTheRestrictedStandard(t *testing.T) {
	t.Parallel()
	deployment, container := controller(t)
	pod := deployment.Spec.Template.Spec
	assert.Equal(t, &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		RunAsUser:      new(int64(65532)),
		RunAsGroup:     new(int64(65532)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, pod.SecurityContext)
	assert.Equal(t, &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}, container.SecurityContext)
	assert.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
	assert.Equal(t, []corev1.Volume{{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("640Mi"))}}}}, pod.Volumes)
	assert.Equal(t, []corev1.VolumeMount{{Name: "cache", MountPath: "/var/cache/layerwright"}}, container.VolumeMounts)
	assert.Contains(t, container.Args, "--base-image-cache-dir=/var/cache/layerwright/base-images")
	assert.Equal(t, "layerwright-controller", pod.ServiceAccountName)
	assert.Equal(t, new(true), pod.AutomountServiceAccountToken)
	for _, port := range container.Ports {
		assert.Zero(t, port.HostPort, port.Name)
	}
}

func TestOpenShiftKeepsThePodRestricted(t *testing.T) {
	t.Parallel()
	patch := only[appsv1.Deployment](t, "overlays/openshift", "Deployment", "layerwright-controller")
	pod := patch.Spec.Template.Spec
	assert.Equal(t, &corev1.PodSecurityContext{}, pod.SecurityContext, "user and group are taken away, nothing is added")
	assert.Equal(t, "restricted-v2", patch.Spec.Template.Annotations["openshift.io/required-scc"])
	require.Len(t, pod.Containers, 1)
	assert.Nil(t, pod.Containers[0].SecurityContext)
	_, container := controller(t)
	assert.Equal(t, container.Args, pod.Containers[0].Args[:len(container.Args)], "a patch replaces the list: it repeats base's")

	service := only[corev1.Service](t, "overlays/openshift", "Service", "layerwright-metrics")
	require.Len(t, pod.Volumes, 2)
	require.NotNil(t, pod.Volumes[0].Secret)
	assert.Equal(t, service.Annotations["service.beta.openshift.io/serving-cert-secret-name"], pod.Volumes[0].Secret.SecretName)
	require.NotNil(t, pod.Volumes[1].Projected)
	token := pod.Volumes[1].Projected.Sources[0].ServiceAccountToken
	assert.Equal(t, "openshift", token.Audience, "the API server takes it for nothing")
	assert.Equal(t, ec2.TokenFile, path.Join(pod.Containers[0].VolumeMounts[1].MountPath, token.Path))
	assert.Contains(t, pod.Containers[0].Args, "--metrics-cert-dir="+pod.Containers[0].VolumeMounts[0].MountPath)
}

func TestDeploymentRunsWell(t *testing.T) {
	t.Parallel()
	deployment, container := controller(t)
	pod := deployment.Spec.Template.Spec
	assert.Equal(t, int32(1), *deployment.Spec.Replicas)
	assert.Equal(t, "system-cluster-critical", pod.PriorityClassName)
	assert.Equal(t, corev1.TerminationMessageFallbackToLogsOnError, container.TerminationMessagePolicy)

	assert.Equal(t, "10m", container.Resources.Requests.Cpu().String())
	assert.Equal(t, "48Mi", container.Resources.Requests.Memory().String())
	assert.Equal(t, "256Mi", container.Resources.Limits.Memory().String())
	assert.True(t, container.Resources.Limits.Cpu().IsZero(), "throttling a leader costs it its Lease")

	const flag = "--graceful-shutdown-timeout="
	at := slices.IndexFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	require.NotEqual(t, -1, at)
	grace, err := time.ParseDuration(strings.TrimPrefix(container.Args[at], flag))
	require.NoError(t, err)
	assert.Greater(t, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second, grace)

	probes := map[string]*corev1.Probe{
		"/healthz": container.LivenessProbe,
		"/readyz":  container.ReadinessProbe,
	}
	for path, probe := range probes {
		require.NotNil(t, probe)
		assert.Equal(t, path, probe.HTTPGet.Path)
		assert.Equal(t, "health", probe.HTTPGet.Port.StrVal)
		assert.Greater(t, probe.TimeoutSeconds, int32(2), "the program answers within 2 s")
	}
	require.NotNil(t, container.StartupProbe)
	assert.Equal(t, "/healthz", container.StartupProbe.HTTPGet.Path)
}

func TestMemoryLimitReachesTheGoRuntime(t *testing.T) {
	t.Parallel()
	_, container := controller(t)
	env := map[string]corev1.EnvVar{}
	for _, e := range container.Env {
		env[e.Name] = e
	}
	assert.Equal(t, "metadata.namespace", env["POD_NAMESPACE"].ValueFrom.FieldRef.FieldPath)
	limit := env["MEMORY_LIMIT_MIB"].ValueFrom.ResourceFieldRef
	assert.Equal(t, "limits.memory", limit.Resource)
	assert.Equal(t, container.Name, limit.ContainerName)
	assert.Equal(t, "1Mi", limit.Divisor.String())
	assert.Equal(t, "$(MEMORY_LIMIT_MIB)000000", env["GOMEMLIMIT"].Value)

	bytes := container.Resources.Limits.Memory().Value()
	soft := bytes / (1 << 20) * 1_000_000
	assert.InDelta(t, 0.95, float64(soft)/float64(bytes), 0.01)
}

func TestControllerKnowsWhereItRuns(t *testing.T) {
	t.Parallel()
	_, container := controller(t)
	paths := map[string]string{}
	for _, e := range container.Env {
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			paths[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	assert.Equal(t, map[string]string{"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "NODE_NAME": "spec.nodeName"}, paths)
}

func TestSelectorsFindThePod(t *testing.T) {
	t.Parallel()
	deployment, container := controller(t)
	pod := labels.Set(deployment.Spec.Template.Labels)
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	assert.Equal(t, map[string]int32{"metrics": 8443, "health": 8081}, ports, "the program's defaults")

	service := only[corev1.Service](t, "base", "Service", "layerwright-metrics")
	policy := only[networkingv1.NetworkPolicy](t, "base", "NetworkPolicy", "layerwright-controller")
	for name, selector := range map[string]labels.Selector{
		"Deployment":    labels.SelectorFromSet(deployment.Spec.Selector.MatchLabels),
		"Service":       labels.SelectorFromSet(service.Spec.Selector),
		"NetworkPolicy": labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels),
	} {
		assert.False(t, selector.Empty(), name)
		assert.True(t, selector.Matches(pod), name)
	}
	require.Len(t, service.Spec.Ports, 1)
	assert.Contains(t, ports, service.Spec.Ports[0].TargetPort.StrVal)
}

func TestNetworkPolicyIsClosedByDefault(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"base", "overlays/openshift"} {
		policy := only[networkingv1.NetworkPolicy](t, folder, "NetworkPolicy", "layerwright-controller")
		require.Len(t, policy.Spec.Ingress, 1, folder)
		rule := policy.Spec.Ingress[0]
		require.Len(t, rule.From, 1, folder)
		assert.NotEmpty(t, rule.From[0].NamespaceSelector.MatchLabels, "%s: a namespace has to be labelled", folder)
		require.Len(t, rule.Ports, 1, folder)
		assert.Equal(t, "metrics", rule.Ports[0].Port.StrVal, folder)
	}
	policy := only[networkingv1.NetworkPolicy](t, "base", "NetworkPolicy", "layerwright-controller")
	assert.ElementsMatch(t, []networkingv1.PolicyType{"Ingress", "Egress"}, policy.Spec.PolicyTypes)
	for _, rule := range policy.Spec.Egress {
		assert.NotEmpty(t, rule.Ports, "a rule without ports allows everything")
	}
}

func TestEgressOfBuildsAndVerifications(t *testing.T) {
	t.Parallel()
	for component, of := range map[string]string{"build": "as builder/jobs labels them", "verification": "as internal/testjobs labels them"} {
		t.Run(component, func(t *testing.T) {
			t.Parallel()
			testEgress(t, component, of)
		})
	}
}

func testEgress(t *testing.T, component, of string) {
	t.Helper()
	policy := only[networkingv1.NetworkPolicy](t, "base", "NetworkPolicy", "layerwright-"+component)
	assert.ElementsMatch(t, []networkingv1.PolicyType{"Ingress", "Egress"}, policy.Spec.PolicyTypes)
	assert.Empty(t, policy.Spec.Ingress, "no one reaches them")
	selector := labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels)
	assert.True(t, selector.Matches(labels.Set{"app.kubernetes.io/name": "layerwright", "app.kubernetes.io/component": component}), of)
	assert.False(t, selector.Matches(labels.Set{"app.kubernetes.io/name": "layerwright", "app.kubernetes.io/component": "controller"}))
	var blocks []networkingv1.IPBlock
	for _, rule := range policy.Spec.Egress {
		assert.NotEmpty(t, rule.Ports, "a rule without ports allows everything")
		for _, to := range rule.To {
			if to.IPBlock != nil {
				blocks = append(blocks, *to.IPBlock)
			}
		}
	}
	require.Len(t, blocks, 2)
	for _, cloud := range []string{"169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32"} {
		assert.Contains(t, blocks[0].Except, cloud, "where clouds hand out the credentials of nodes")
	}
	assert.Subset(t, blocks[1].Except, []string{"fe80::/10", "fd00:ec2::/32", "fd00:c1::/32", "fd20:ce::/32"})
	closed := closedBy(t, "components/private-networks", policy)
	for i, ranges := range [][]string{{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"}, {"fe80::/10", "fc00::/7"}} {
		assert.Subset(t, closed.Spec.Egress[2].To[i].IPBlock.Except, ranges, "pods, Services and nodes")
	}
	assert.Subset(t, closed.Spec.Egress[2].To[0].IPBlock.Except, blocks[0].Except, "nothing is opened")
}

// closedBy is a policy with the only patch of a component.
func closedBy(t *testing.T, component string, policy networkingv1.NetworkPolicy) networkingv1.NetworkPolicy {
	t.Helper()
	patches := kustomizationOf(t, component).Patches
	require.Len(t, patches, 1)
	require.Regexp(t, "^"+patches[0].Target.Name+"$", policy.Name)
	text, err := yaml.YAMLToJSON([]byte(patches[0].Patch))
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(text)
	require.NoError(t, err)
	before, err := json.Marshal(policy)
	require.NoError(t, err)
	after, err := patch.Apply(before)
	require.NoError(t, err)
	var closed networkingv1.NetworkPolicy
	require.NoError(t, json.Unmarshal(after, &closed))
	return closed
}

func TestImageIsNamedOnce(t *testing.T) {
	t.Parallel()
	_, container := controller(t)
	assert.Equal(t, "ghcr.io/layerwright/layerwright", container.Image, "kustomize adds the tag")
	images := kustomizationOf(t, "base").Images
	require.Len(t, images, 1)
	assert.Equal(t, container.Image, images[0].Name)
	assert.NotEmpty(t, images[0].NewTag)
	assert.NotEqual(t, "latest", images[0].NewTag)
}

// TestConstraintsOfBuildsOnOpenShift compares them with the policy that says the same on
// Kubernetes, where it is tried.
func TestConstraintsOfBuildsOnOpenShift(t *testing.T) {
	t.Parallel()
	type constraints struct {
		Users                                                                   []string
		UserNamespaceLevel                                                      string
		AllowHostDirVolumePlugin, AllowHostIPC, AllowHostNetwork, AllowHostPID  *bool
		AllowHostPorts, AllowPrivilegedContainer, AllowPrivilegeEscalation      *bool
		AllowedCapabilities, RequiredDropCapabilities, SeccompProfiles, Volumes []string
	}
	policy, err := os.ReadFile("overlays/kubernetes/pod-policy.yaml")
	require.NoError(t, err)
	seen := 0
	for _, d := range documents(t, "overlays/openshift") {
		if d.Kind != "SecurityContextConstraints" {
			continue
		}
		seen++
		var c constraints
		require.NoError(t, yaml.Unmarshal(d.raw, &c))
		assert.Equal(t, []string{"system:serviceaccount:openshift-machine-config-operator:layerwright-build"}, c.Users)
		for _, allowed := range []*bool{
			c.AllowHostDirVolumePlugin, c.AllowHostIPC, c.AllowHostNetwork, c.AllowHostPID, c.AllowHostPorts, c.AllowPrivilegedContainer, c.AllowPrivilegeEscalation,
		} {
			assert.Equal(t, new(false), allowed, d.Name)
		}
		assert.Equal(t, []string{"ALL"}, c.RequiredDropCapabilities)
		assert.Contains(t, string(policy), `["`+strings.Join(c.AllowedCapabilities, `", "`)+`"]`, d.Name)
		assert.ElementsMatch(t, []string{"configMap", "emptyDir", "projected", "secret"}, c.Volumes)
		inPod := slices.Contains(c.AllowedCapabilities, "SYS_ADMIN")
		assert.Equal(t, inPod, c.UserNamespaceLevel == "RequirePodLevel", "SYS_ADMIN is for a user namespace only")
		assert.Equal(t, inPod, slices.Contains(c.SeccompProfiles, "runtime/default"), d.Name)
	}
	assert.Equal(t, 2, seen)
}
