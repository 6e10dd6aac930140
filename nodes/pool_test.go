package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
)

func pool(name string, selector *metav1.LabelSelector) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigPoolSpec{NodeSelector: selector}}
}

func role(name string) *mcfgv1.MachineConfigPool {
	return pool(name, &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}})
}

func TestPoolOf(t *testing.T) {
	t.Parallel()
	s := nodes.NewSelectors([]*mcfgv1.MachineConfigPool{role("worker"), role("gpu"), role("master"), role("infra"), role("arbiter")})
	tests := map[string]struct {
		roles []string
		os    string
		pool  string
	}{
		"worker alone":                          {roles: []string{"worker"}, pool: "worker"},
		"master before worker":                  {roles: []string{"worker", "master"}, pool: "master"},
		"custom before worker":                  {roles: []string{"worker", "infra"}, pool: "infra"},
		"custom without worker":                 {roles: []string{"infra"}, pool: "infra"},
		"master before two custom ones":         {roles: []string{"infra", "gpu", "master"}, pool: "master"},
		"arbiter before custom and worker":      {roles: []string{"arbiter", "infra", "worker"}, pool: "arbiter"},
		"two custom ones":                       {roles: []string{"infra", "gpu"}},
		"two custom ones are not settled by it": {roles: []string{"infra", "gpu", "worker"}},
		"no role":                               {},
		"a role without a pool":                 {roles: []string{"storage"}},
		"Windows":                               {roles: []string{"worker"}, os: "windows"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			labels := map[string]string{corev1.LabelOSStable: test.os}
			for _, r := range test.roles {
				labels["node-role.kubernetes.io/"+r] = ""
			}
			assert.Equal(t, test.pool, nodes.PoolOf(s.Selecting(labels)))
			for _, p := range []string{"worker", "gpu", "master", "infra", "arbiter"} {
				assert.Equal(t, p == test.pool, s.Has(p, labels), p)
			}
		})
	}
}

func TestSelectorsThatSelectNothing(t *testing.T) {
	t.Parallel()
	s := nodes.NewSelectors([]*mcfgv1.MachineConfigPool{
		pool("none", nil), pool("empty", &metav1.LabelSelector{}), role("worker"),
		pool("invalid", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Sometimes"}}}),
	})
	assert.Equal(t, []string{"worker"}, s.Selecting(map[string]string{"node-role.kubernetes.io/worker": "", "a": "b"}))
	assert.Empty(t, s.Selecting(nil))
	assert.False(t, s.Selects("none", nil))
	assert.False(t, s.Has("invalid", map[string]string{"a": "b"}))
	require.ErrorContains(t, s.Invalid("invalid"), `reading spec.nodeSelector: "Sometimes" is not a valid label selector operator`)
	require.NoError(t, s.Invalid("worker"))
}

func TestASelectorByExpression(t *testing.T) {
	t.Parallel()
	s := nodes.NewSelectors([]*mcfgv1.MachineConfigPool{pool("zone", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
	}})})
	assert.Equal(t, []string{"zone"}, s.Selecting(map[string]string{"zone": "b"}))
	assert.Empty(t, s.Selecting(map[string]string{"zone": "c"}))
}
