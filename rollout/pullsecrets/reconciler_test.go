package pullsecrets

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func layer(name, secret string) *mcfgv1.MachineOSConfig {
	l := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if secret != "" {
		l.Spec.CurrentImagePullSecret = &mcfgv1.ImageSecretObjectReference{Name: secret}
	}
	return l
}

func secret(name string, is corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "layerwright", Name: name}, Type: is}
}

func TestRoleListsTheNamedSecrets(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, rbacv1.AddToScheme(scheme))
	require.NoError(t, mcfgv1.AddToScheme(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(layer("gpu", "pull-b"), layer("infra", "pull-b"), layer("worker", "pull-a"),
		secret("pull-a", corev1.SecretTypeDockercfg), secret("pull-b", corev1.SecretTypeDockerConfigJson)).Build()
	r := New("layerwright", "agents")
	r.client, r.reader = c, c
	rules := func() []rbacv1.PolicyRule {
		_, err := r.Reconcile(t.Context(), ctrl.Request{})
		require.NoError(t, err)
		role := &rbacv1.Role{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "layerwright", Name: "agents"}, role))
		return role.Rules
	}
	get := func(names ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names, Verbs: []string{"get"}}}
	}
	assert.Equal(t, get("pull-a", "pull-b"), rules(), "it is made, and names each secret once")
	require.NoError(t, c.Delete(t.Context(), layer("worker", "")))
	assert.Equal(t, get("pull-b"), rules(), "a name that no one has any more goes")

	role := &rbacv1.Role{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "layerwright", Name: "agents"}, role))
	role.Rules[0].ResourceNames = append(role.Rules[0].ResourceNames, "layerwright-signing-key")
	require.NoError(t, c.Update(t.Context(), role))
	assert.Equal(t, get("pull-b"), rules(), "what others add goes too")

	require.NoError(t, c.DeleteAllOf(t.Context(), &mcfgv1.MachineOSConfig{}))
	assert.Empty(t, rules(), "no names are no rights, and not a right on all secrets")
}

func TestAgentsNeverReadTheSigningKey(t *testing.T) {
	t.Parallel()
	layers := []mcfgv1.MachineOSConfig{*layer("gpu", "signing"), *layer("worker", "pull-a")}
	assert.Equal(t, []string{"pull-a"}, namesIn(layers, []string{"signing"}))
	assert.Empty(t, rulesFor(namesIn(layers[:1], []string{"signing"})))
}

// TestAgentsReadSecretsOfRegistriesOnly has MachineOSConfigs name secrets that are for something
// else, such as a token.
func TestAgentsReadSecretsOfRegistriesOnly(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{rbacv1.AddToScheme, mcfgv1.AddToScheme, corev1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(layer("gpu", "hook"), layer("infra", "later"), layer("worker", "pull"),
		secret("hook", corev1.SecretTypeOpaque), secret("pull", corev1.SecretTypeDockerConfigJson)).Build()
	r := New("layerwright", "agents")
	r.client, r.reader = c, c
	names := func(again time.Duration) []string {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		require.NoError(t, err)
		assert.Equal(t, again, result.RequeueAfter)
		role := &rbacv1.Role{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "layerwright", Name: "agents"}, role))
		return role.Rules[0].ResourceNames
	}
	assert.Equal(t, []string{"pull"}, names(retryInterval))
	require.NoError(t, c.Create(t.Context(), secret("later", corev1.SecretTypeDockercfg)))
	assert.Equal(t, []string{"later", "pull"}, names(0), "nothing tells that it was made")
}
