package metrics

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestState(t *testing.T) {
	t.Parallel()
	state, failure := &State{
		Objects:      []Objects{{"worker", "Node", "Held", "without agent", 3}},
		Conditions:   []Conditions{{"worker", "MachineConfigNode", "Drained", "DrainOverdue", 2}},
		LayeredNodes: map[string]int{"worker": 5},
		Configs:      2,
		Builds:       []PoolBuilds{{Pool: "worker", HasBuild: true, Stage: mcfgv1.BuildStageFailed, Started: 1003, Ended: 1005, Push: PushFailed}, {Pool: "infra", Active: 1}},
	}, error(nil)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(NewState(func(context.Context) (*State, error) { return state, failure })))
	assert.Equal(t, []string{
		"layerwright_conditions{condition=Drained,kind=MachineConfigNode,pool=worker,reason=DrainOverdue} 2",
		"layerwright_objects{assessment=Held,kind=Node,pool=worker,step=without agent} 3",
		"mco_mosc_count{} 2",
		"ocl_active_builds{pool=infra} 1",
		"ocl_active_builds{pool=worker} 0",
		"ocl_build_end_timestamp_seconds{pool=worker,state=failed} 1005",
		"ocl_build_start_timestamp_seconds{pool=worker} 1003",
		"ocl_build_state{pool=worker,state=building} 0",
		"ocl_build_state{pool=worker,state=failed} 1",
		"ocl_build_state{pool=worker,state=interrupted} 0",
		"ocl_build_state{pool=worker,state=pending} 0",
		"ocl_build_state{pool=worker,state=prepared} 0",
		"ocl_build_state{pool=worker,state=succeeded} 0",
		"ocl_image_push_state{pool=worker,state=failed} 1",
		"ocl_image_push_state{pool=worker,state=succeeded} 0",
		"ocl_layered_nodes_count{pool=worker} 5",
	}, gather(t, registry))

	state = &State{}
	assert.Equal(t, []string{"mco_mosc_count{} 0"}, gather(t, registry), "nothing is left of what is gone")
	failure = errors.New("no cache")
	_, err := registry.Gather()
	require.ErrorIs(t, err, failure)
}
