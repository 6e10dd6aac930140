package policies

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

const ourNamespace = "layerwright"

// userWith is a user with rules in the whole cluster and no other rights, as soon as the API server
// knows them.
func userWith(t *testing.T, config *rest.Config, name string, rules ...rbacv1.PolicyRule) *kubernetes.Clientset {
	t.Helper()
	admin := kubernetes.NewForConfigOrDie(config)
	rbac := admin.RbacV1()
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	last := rules[len(rules)-1]
	asked := &authorizationv1.ResourceAttributes{Group: last.APIGroups[0], Resource: last.Resources[0], Verb: last.Verbs[0]}
	if len(last.ResourceNames) > 0 {
		asked.Name = last.ResourceNames[0]
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: asked},
		}, metav1.CreateOptions{})
		if assert.NoError(c, err) {
			assert.True(c, review.Status.Allowed)
		}
	}, enforced, tick)
	return impersonate(config, name)
}

// impersonate is a user with the rights that the cluster gives this name.
func impersonate(config *rest.Config, name string) *kubernetes.Clientset {
	user := rest.CopyConfig(config)
	user.Impersonate = rest.ImpersonationConfig{UserName: name}
	return kubernetes.NewForConfigOrDie(user)
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func TestReservedConfigMaps(t *testing.T) {
	config := clustertest.ControlPlane(t)
	installAll(t, config)
	ensureNamespace(t, dynamic.NewForConfigOrDie(config), ourNamespace)
	admin := kubernetes.NewForConfigOrDie(config)
	write := rule("", "configmaps", "create", "update", "delete", "deletecollection", "list")
	writer := userWith(t, config, "writes-configmaps", write)
	create := func(ctx context.Context, by *kubernetes.Clientset, namespace, name string) error {
		_, err := by.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: dryRunOptions})
		return err
	}
	eventuallyRefused(t, "says what nodes boot", func(ctx context.Context) error { return create(ctx, writer, ourNamespace, "registry-mirrors") })

	for name, kind := range map[string]string{
		"coreos-bootimages": "osimagestreams", "machine-config-osimageurl": "osimagestreams", "osimagestream-lifecycle": "osimagestreams",
		"registry-mirrors": "osimagestreams", "etc-yum-repos-d": "machineosconfigs", "layerwright-trust-policy": "machineconfigs",
	} {
		t.Run("asks for the right to say the same as "+name, func(t *testing.T) {
			require.ErrorContains(t, create(t.Context(), writer, ourNamespace, name),
				`ConfigMap "`+name+`" says what nodes boot; you need the right to update `+kind+`.machineconfiguration.openshift.io in the whole cluster`)
			may := userWith(t, config, "writes-"+name, write, rule(mcfgv1.GroupName, kind, "update"))
			require.NoError(t, create(t.Context(), may, ourNamespace, name))
			require.NoError(t, create(t.Context(), writer, "default", name), "another namespace")
		})
	}
	t.Run("leaves other ConfigMaps alone", func(t *testing.T) { require.NoError(t, create(t.Context(), writer, ourNamespace, "other")) })
	t.Run("keeps them from being changed and deleted", func(t *testing.T) {
		made, err := admin.CoreV1().ConfigMaps(ourNamespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "registry-mirrors"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		made.Data = map[string]string{"mirrors.yaml": "[]"}
		_, err = writer.CoreV1().ConfigMaps(ourNamespace).Update(t.Context(), made, metav1.UpdateOptions{})
		require.ErrorContains(t, err, "says what nodes boot")
		require.ErrorContains(t, writer.CoreV1().ConfigMaps(ourNamespace).Delete(t.Context(), made.Name, metav1.DeleteOptions{}), "right to delete osimagestreams")
		err = writer.CoreV1().ConfigMaps(ourNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + made.Name})
		require.ErrorContains(t, err, "right to delete osimagestreams")
		ofKubernetes := impersonate(config, "system:serviceaccount:kube-system:namespace-controller")
		require.NoError(t, ofKubernetes.CoreV1().ConfigMaps(ourNamespace).Delete(t.Context(), made.Name, metav1.DeleteOptions{}), "a namespace can be deleted")
	})
	t.Run("takes in those that objects name", func(t *testing.T) { testNamedConfigMaps(t, config, writer, create) })
}

// testNamedConfigMaps is about ConfigMaps that a MachineOSConfig or a MachineConfigPool names.
func testNamedConfigMaps(t *testing.T, config *rest.Config, writer *kubernetes.Clientset, create func(context.Context, *kubernetes.Clientset, string, string) error) {
	t.Helper()
	client := dynamic.NewForConfigOrDie(config)
	for resource, text := range map[string]string{
		"machineosconfigs": `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSConfig
metadata: {name: team}
spec:
  machineConfigPool: {name: team}
  imageBuilder: {imageBuilderType: Job}
  renderedImagePushSecret: {name: push}
  renderedImagePushSpec: registry.example.com/os/team:latest
  containerFile: [{configMapRef: {name: team-containerfile}}]
  verification: {type: Job, job: {name: team-test}}`,
		"machineconfigpools": `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: team}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
  nodeSelector: {matchLabels: {team: a}}
  rollout: {healthChecks: [{name: job, job: {name: team-health}}]}`,
	} {
		_, err := client.Resource(mcfgv1.SchemeGroupVersion.WithResource(resource)).Create(t.Context(), object(t, text), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	write := rule("", "configmaps", "create", "update")
	for name, kind := range map[string]string{"team-containerfile": "machineosconfigs", "team-test": "machineosconfigs", "team-health": "machineconfigpools"} {
		eventuallyRefused(t, `you need the right to update `+kind+`.machineconfiguration.openshift.io "team"`, func(ctx context.Context) error {
			return create(ctx, writer, ourNamespace, name)
		})
		named := rule(mcfgv1.GroupName, kind, "update")
		for of, ok := range map[string]bool{"team": true, "another": false} {
			named.ResourceNames = []string{of}
			err := create(t.Context(), userWith(t, config, "of-"+of+"-"+name, write, named), ourNamespace, name)
			require.Equal(t, ok, err == nil, "%s: %v", of, err)
		}
	}
	require.NoError(t, create(t.Context(), writer, ourNamespace, "another-containerfile"))
}
