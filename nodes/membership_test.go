package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

func allPools() []*mcfgv1.MachineConfigPool {
	return []*mcfgv1.MachineConfigPool{role("worker"), role("gpu"), role("master"), role("infra"), role("arbiter")}
}

func TestAssign(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		node     *corev1.Node
		pool     string
		disputed []string
	}{
		"worker alone":                          {node: nodestest.New("n", []string{"worker"}), pool: "worker"},
		"master before worker":                  {node: nodestest.New("n", []string{"worker", "master"}), pool: "master"},
		"custom before worker":                  {node: nodestest.New("n", []string{"worker", "infra"}), pool: "infra"},
		"custom without worker":                 {node: nodestest.New("n", []string{"infra"}), pool: "infra"},
		"master before custom":                  {node: nodestest.New("n", []string{"infra", "master"}), pool: "master"},
		"master before two custom ones":         {node: nodestest.New("n", []string{"infra", "gpu", "master"}), pool: "master"},
		"arbiter before custom and worker":      {node: nodestest.New("n", []string{"arbiter", "infra", "worker"}), pool: "arbiter"},
		"master before arbiter":                 {node: nodestest.New("n", []string{"arbiter", "master"}), pool: "master"},
		"two custom ones":                       {node: nodestest.New("n", []string{"infra", "gpu"}), disputed: []string{"gpu", "infra"}},
		"two custom ones are not settled by it": {node: nodestest.New("n", []string{"infra", "gpu", "worker"}), disputed: []string{"gpu", "infra"}},
		"no role":                               {node: nodestest.New("n", nil)},
		"a role without a pool":                 {node: nodestest.New("n", []string{"storage"})},
		"Windows":                               {node: nodestest.New("n", []string{"worker"}, nodestest.Labelled(corev1.LabelOSStable, "windows"))},
		"Windows in two custom pools":           {node: nodestest.New("n", []string{"infra", "gpu"}, nodestest.Labelled(corev1.LabelOSStable, "windows"))},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := nodes.Assign(nodes.NewSelectors(allPools()), nodestest.ObserveAll(tt.node))
			for _, pool := range allPools() {
				if pool.Name == tt.pool {
					assert.Len(t, m.Members[pool.Name], 1, pool.Name)
				} else {
					assert.Empty(t, m.Members[pool.Name], pool.Name)
				}
			}
			var disputed []string
			for _, pool := range []string{"arbiter", "gpu", "infra", "master", "worker"} {
				for _, d := range m.Disputed[pool] {
					disputed = append(disputed, pool)
					assert.Equal(t, nodes.Dispute{Node: "n", Pools: tt.disputed}, d)
				}
			}
			assert.Equal(t, tt.disputed, disputed)
		})
	}
}

func TestAssignSortsWhatItSays(t *testing.T) {
	t.Parallel()
	both := []string{"infra", "gpu"}
	m := nodes.Assign(nodes.NewSelectors(allPools()), nodestest.ObserveAll(
		nodestest.New("c", []string{"worker"}), nodestest.New("b", both), nodestest.New("a", []string{"worker"}), nodestest.New("d", both), nodestest.New("aa", both)))
	require.Len(t, m.Members["worker"], 2)
	assert.Equal(t, "a", m.Members["worker"][0].Name)
	require.Len(t, m.Disputed["infra"], 3)
	assert.Equal(t, m.Disputed["infra"], m.Disputed["gpu"])
	assert.Equal(t, "aa", m.Disputed["infra"][0].Node)
}
