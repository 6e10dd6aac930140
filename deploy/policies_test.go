package deploy

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/rollout/bootimages"
	"github.com/layerwright/layerwright/streams"
)

// TestPoliciesKnowTheNamespaces: a namespace that they do not name is not held.
func TestPoliciesKnowTheNamespaces(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{
		"layerwright-pipeline-runs": "components/tekton", "layerwright-pipeline-secrets": "components/tekton",
		"layerwright-own-pods": "policies", "layerwright-configmaps": "policies",
		"layerwright-containerfile-configmaps": "policies", "layerwright-healthcheck-configmaps": "policies",
	} {
		binding := only[admissionv1.ValidatingAdmissionPolicyBinding](t, folder, "ValidatingAdmissionPolicyBinding", name)
		selector, err := metav1.LabelSelectorAsSelector(binding.Spec.MatchResources.NamespaceSelector)
		require.NoError(t, err)
		for _, overlay := range []string{"overlays/kubernetes", "overlays/openshift"} {
			assert.True(t, selector.Matches(labels.Set{corev1.LabelMetadataName: kustomizationOf(t, overlay).Namespace}), "%s %s", name, overlay)
		}
		policy := only[admissionv1.ValidatingAdmissionPolicy](t, folder, "ValidatingAdmissionPolicy", name)
		if policy.Spec.ParamKind == nil { // else clusters without the kind would be held
			assert.Equal(t, new(admissionv1.Fail), policy.Spec.FailurePolicy, name)
		}
	}
}

// TestTheControllerKnowsThePolicies: it looks for these names, by these labels.
func TestTheControllerKnowsThePolicies(t *testing.T) {
	t.Parallel()
	for folder, known := range map[string][]string{
		"policies": names.AdmissionPolicies(), "overlays/kubernetes": names.AgentAdmissionPolicies(), "components/tekton": names.TektonAdmissionPolicies(),
	} {
		var found []string
		for _, d := range documents(t, folder) {
			if d.Kind != "ValidatingAdmissionPolicy" && d.Kind != "ValidatingAdmissionPolicyBinding" {
				continue
			}
			var object metav1.PartialObjectMetadata
			require.NoError(t, yaml.Unmarshal(d.raw, &object))
			assert.Equal(t, "layerwright", object.Labels["app.kubernetes.io/name"], d.Name)
			assert.Equal(t, "policy", object.Labels["app.kubernetes.io/component"], d.Name)
			if d.Kind == "ValidatingAdmissionPolicy" {
				found = append(found, d.Name)
			}
		}
		assert.ElementsMatch(t, known, found, folder)
	}
}

// TestReservedConfigMaps: whoever adds one that a controller finds by its name has to reserve it.
func TestReservedConfigMaps(t *testing.T) {
	t.Parallel()
	policy := only[admissionv1.ValidatingAdmissionPolicy](t, "policies", "ValidatingAdmissionPolicy", "layerwright-configmaps")
	for _, name := range []string{
		streams.ConfigMapName, streams.LifecycleConfigMap, streams.MetadataConfigMap, names.RegistryMirrors,
		bootimages.ConfigMapName, backend.InputYumRepos, names.TrustPolicy,
	} {
		assert.Contains(t, policy.Spec.MatchConditions[0].Expression, strconv.Quote(name))
	}
}
