package pools

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/status"
)

func policy(name string) admissionv1.ValidatingAdmissionPolicy {
	return admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func binding(name, of string, actions ...admissionv1.ValidationAction) admissionv1.ValidatingAdmissionPolicyBinding {
	return admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: of, ValidationActions: actions},
	}
}

func TestMissingPolicies(t *testing.T) {
	t.Parallel()
	const end = "; the API server accepts what they refuse, so apply the manifests of this release again"
	a, b := policy("a"), policy("b")
	tests := map[string]struct {
		policies []admissionv1.ValidatingAdmissionPolicy
		bindings []admissionv1.ValidatingAdmissionPolicyBinding
		want     string
	}{
		"all are enforced": {
			[]admissionv1.ValidatingAdmissionPolicy{a, b}, []admissionv1.ValidatingAdmissionPolicyBinding{binding("x", "a", admissionv1.Deny), binding("b", "b", admissionv1.Deny)}, "",
		},
		"one is gone": {
			[]admissionv1.ValidatingAdmissionPolicy{b},
			[]admissionv1.ValidatingAdmissionPolicyBinding{binding("a", "a", admissionv1.Deny), binding("b", "b", admissionv1.Deny)},
			"these ValidatingAdmissionPolicies do not exist: a" + end,
		},
		"a binding is gone": {
			[]admissionv1.ValidatingAdmissionPolicy{a, b},
			[]admissionv1.ValidatingAdmissionPolicyBinding{binding("a", "a", admissionv1.Deny)},
			"no ValidatingAdmissionPolicyBinding with the action Deny exists for: b" + end,
		},
		"a binding only warns": {
			[]admissionv1.ValidatingAdmissionPolicy{a, b},
			[]admissionv1.ValidatingAdmissionPolicyBinding{binding("a", "a", admissionv1.Deny), binding("b", "b", admissionv1.Warn, admissionv1.Audit)},
			"no ValidatingAdmissionPolicyBinding with the action Deny exists for: b" + end,
		},
		"one that is not required has no binding": {
			[]admissionv1.ValidatingAdmissionPolicy{a, b, policy("c")},
			[]admissionv1.ValidatingAdmissionPolicyBinding{binding("a", "a", admissionv1.Deny), binding("b", "b", admissionv1.Deny)},
			"no ValidatingAdmissionPolicyBinding with the action Deny exists for: c" + end,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, missingPolicies([]string{"a", "b"}, tt.policies, tt.bindings))
		})
	}
}

func TestPoolsSayWhichPoliciesAreMissing(t *testing.T) {
	t.Parallel()
	a, enforced := policy("a"), binding("a", "a", admissionv1.Deny)
	w := newWorld(t, newPool("worker"), &a, enforced.DeepCopy())
	p := &Policies{client: w, clock: clocktesting.NewFakePassiveClock(t0), events: events.NewPublisher(w.recorder), required: []string{"a"}}
	says := func() string {
		t.Helper()
		_, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "worker"}})
		require.NoError(t, err)
		if c := status.Find(w.pool("worker").GetConditions(), "PoliciesMissing"); c != nil {
			return string(c.Status) + " " + c.Reason + " " + c.Message
		}
		return ""
	}
	assert.Empty(t, says())
	w.remove(enforced.DeepCopy())
	assert.Contains(t, says(), "True PoliciesMissing no ValidatingAdmissionPolicyBinding with the action Deny exists for: a")
	require.Len(t, w.told(), 1)
	assert.Contains(t, says(), "True")
	assert.Empty(t, w.told(), "it is said once")
	require.NoError(t, w.Create(t.Context(), client.Object(enforced.DeepCopy())))
	assert.Empty(t, says(), "it is taken back")
	assert.Len(t, p.everyPool(t.Context(), nil), 1)
}
