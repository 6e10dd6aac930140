package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestPools(t *testing.T) {
	t.Parallel()
	worker := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Status: mcfgv1.MachineConfigPoolStatus{
		MachineCount: 5, UpdatedMachineCount: 4, ReadyMachineCount: 3, UnavailableMachineCount: 2, DegradedMachineCount: 1,
		Conditions: []mcfgv1.MachineConfigPoolCondition{
			{Type: "RenderDegraded", Status: corev1.ConditionTrue, Reason: "StreamNotFound"}, {Type: "Ready", Status: corev1.ConditionUnknown, Reason: "Paused"},
		},
	}}
	all := []mcfgv1.MachineConfigPool{worker}
	collector := NewPools(func(context.Context) ([]mcfgv1.MachineConfigPool, error) { return all, nil })
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	assert.Equal(t, []string{
		"layerwright_pool_condition{condition=Ready,pool=worker,reason=Paused} 0",
		"layerwright_pool_condition{condition=RenderDegraded,pool=worker,reason=StreamNotFound} 1",
		"layerwright_pool_machines{pool=worker,state=all} 5",
		"layerwright_pool_machines{pool=worker,state=degraded} 1",
		"layerwright_pool_machines{pool=worker,state=ready} 3",
		"layerwright_pool_machines{pool=worker,state=unavailable} 2",
		"layerwright_pool_machines{pool=worker,state=updated} 4",
	}, gather(t, registry))

	all = nil
	assert.Empty(t, gather(t, registry), "nothing is left of a pool that is gone")
}

// gather are all samples as text, in the registry's order.
func gather(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	var samples []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, pair := range metric.GetLabel() {
				labels = append(labels, pair.GetName()+"="+pair.GetValue())
			}
			samples = append(samples, fmt.Sprintf("%s{%s} %v", family.GetName(), strings.Join(labels, ","), metric.GetGauge().GetValue()))
		}
	}
	return samples
}

func TestPoolStreams(t *testing.T) {
	t.Parallel()
	var failure error
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(NewPoolStreams(func(context.Context) ([]PoolStream, error) {
		return []PoolStream{{"worker", "rhel-9", "Deprecated"}, {"worker", "rhel-10", "Supported"}}, failure
	})))
	assert.Equal(t, []string{
		"layerwright_pool_os_stream{lifecycle=Deprecated,pool=worker,stream=rhel-9} 1",
		"layerwright_pool_os_stream{lifecycle=Supported,pool=worker,stream=rhel-10} 1",
	}, gather(t, registry))
	failure = errors.New("no cache")
	_, err := registry.Gather()
	require.ErrorIs(t, err, failure)
}

func TestPoolsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(NewPools(func(context.Context) ([]mcfgv1.MachineConfigPool, error) { return nil, errors.New("no cache") })))
	_, err := registry.Gather()
	require.ErrorContains(t, err, "no cache")
}
