package pools

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/members"
)

func allPools() []*mcfgv1.MachineConfigPool {
	return []*mcfgv1.MachineConfigPool{newPool("worker"), newPool("gpu"), newPool("master"), newPool("infra"), newPool("arbiter")}
}

func TestAssign(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		node     *corev1.Node
		pool     string
		disputed []string
	}{
		"worker alone":                          {node: newNode("n", []string{"worker"}), pool: "worker"},
		"master before worker":                  {node: newNode("n", []string{"worker", "master"}), pool: "master"},
		"custom before worker":                  {node: newNode("n", []string{"worker", "infra"}), pool: "infra"},
		"custom without worker":                 {node: newNode("n", []string{"infra"}), pool: "infra"},
		"master before custom":                  {node: newNode("n", []string{"infra", "master"}), pool: "master"},
		"master before two custom ones":         {node: newNode("n", []string{"infra", "gpu", "master"}), pool: "master"},
		"arbiter before custom and worker":      {node: newNode("n", []string{"arbiter", "infra", "worker"}), pool: "arbiter"},
		"master before arbiter":                 {node: newNode("n", []string{"arbiter", "master"}), pool: "master"},
		"two custom ones":                       {node: newNode("n", []string{"infra", "gpu"}), disputed: []string{"gpu", "infra"}},
		"two custom ones are not settled by it": {node: newNode("n", []string{"infra", "gpu", "worker"}), disputed: []string{"gpu", "infra"}},
		"no role":                               {node: newNode("n", nil)},
		"a role without a pool":                 {node: newNode("n", []string{"storage"})},
		"Windows":                               {node: newNode("n", []string{"worker"}, labelled(corev1.LabelOSStable, "windows"))},
		"Windows in two custom pools":           {node: newNode("n", []string{"infra", "gpu"}, labelled(corev1.LabelOSStable, "windows"))},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := assign(members.New(allPools()), observeAll(tt.node))
			for _, pool := range allPools() {
				if pool.Name == tt.pool {
					assert.Len(t, m.members[pool.Name], 1, pool.Name)
				} else {
					assert.Empty(t, m.members[pool.Name], pool.Name)
				}
			}
			var disputed []string
			for _, pool := range []string{"arbiter", "gpu", "infra", "master", "worker"} {
				for _, d := range m.disputed[pool] {
					disputed = append(disputed, pool)
					assert.Equal(t, dispute{node: "n", pools: tt.disputed}, d)
				}
			}
			assert.Equal(t, tt.disputed, disputed)
		})
	}
}

func TestAssignSortsWhatItSays(t *testing.T) {
	t.Parallel()
	both := []string{"infra", "gpu"}
	m := assign(members.New(allPools()), observeAll(
		newNode("c", []string{"worker"}), newNode("b", both), newNode("a", []string{"worker"}), newNode("d", both), newNode("aa", both)))
	require.Len(t, m.members["worker"], 2)
	assert.Equal(t, "a", m.members["worker"][0].Name)
	require.Len(t, m.disputed["infra"], 3)
	assert.Equal(t, m.disputed["infra"], m.disputed["gpu"])
	assert.Equal(t, "aa", m.disputed["infra"][0].node)
}
