package trust_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/trust"
)

var policyName = types.NamespacedName{Namespace: "layerwright", Name: "trust"}

func TestThePolicyIsThatOfTheConfigMapNow(t *testing.T) {
	t.Parallel()
	var refused error
	cluster := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if refused != nil {
				return refused
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	from := trust.NewConfigMap(cluster, policyName)
	assert.True(t, from.IsIn(policyName))
	assert.False(t, from.IsIn(types.NamespacedName{Namespace: "other", Name: "trust"}))

	waits := func(reason, text string) {
		t.Helper()
		policy, err := from.Policy(t.Context())
		require.ErrorContains(t, err, text)
		assert.True(t, fault.IsWaiting(err))
		assert.Equal(t, reason, fault.Reason(err))
		assert.Positive(t, fault.After(err))
		assert.Nil(t, policy)
	}
	waits(mcfgv1alpha1.ReasonWaitingForTrustPolicy, `the ConfigMap "trust" in namespace "layerwright" with the trust policy does not exist`)

	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: policyName.Namespace, Name: policyName.Name}}
	require.NoError(t, cluster.Create(t.Context(), object))
	waits(mcfgv1alpha1.ReasonInvalidTrustPolicy, `policy.yaml of the ConfigMap "trust" in namespace "layerwright" is no trust policy: it is missing`)

	object.Data = map[string]string{trust.PolicyKey: "own: {}\nrepos: []\n"}
	require.NoError(t, cluster.Update(t.Context(), object))
	waits(mcfgv1alpha1.ReasonInvalidTrustPolicy, `line 2: there is no field "repos"`)

	object.Data[trust.PolicyKey] = "own: {requireProvenance: true}"
	require.NoError(t, cluster.Update(t.Context(), object))
	policy, err := from.Policy(t.Context())
	require.NoError(t, err)
	assert.True(t, policy.Own.Provenance)
	again, err := from.Policy(t.Context())
	require.NoError(t, err)
	assert.Same(t, policy, again, "it is parsed once")

	refused = errors.New("etcd is down")
	_, err = from.Policy(t.Context())
	require.ErrorIs(t, err, refused)
	assert.True(t, fault.IsTransient(err))
	refused = nil

	require.NoError(t, cluster.Delete(t.Context(), object))
	waits(mcfgv1alpha1.ReasonWaitingForTrustPolicy, "does not exist")
}
