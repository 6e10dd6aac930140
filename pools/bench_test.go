package pools

import (
	"context"
	"fmt"
	"testing"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/nodes"
)

// BenchmarkNodeEvent is what one changed Node costs beside the reading of lists, on a cluster of
// 5,000 nodes, 10 pools and 100 MachineConfigs of 200 kB.
func BenchmarkNodeEvent(b *testing.B) {
	var pools []*mcfgv1.MachineConfigPool
	for i := range 9 {
		pools = append(pools, newPool(fmt.Sprint("custom-", i), wanting("x")))
	}
	pools = append(pools, newPool("worker", wanting("x")))
	var all []nodes.Node
	for i := range 5000 {
		all = append(all, nodes.Observe(newNode(fmt.Sprint("n", i), []string{"worker", fmt.Sprint("custom-", i%20)}, having("x"))))
	}
	in := inputs{options: machineconfigs.Options{Pool: "worker"}}
	for i := range 100 {
		mc := newConfig(fmt.Sprintf("%02d-a", i), "worker", fmt.Sprint("/etc/", i))
		mc.Spec.Config.Raw = append(mc.Spec.Config.Raw, make([]byte, 200<<10)...)
		in.configs = append(in.configs, mc)
	}
	in.content = func(context.Context) ([]*mcfgv1.MachineConfig, error) { return in.configs, nil }
	renders := newRenders(func(machineconfigs.Options, []*mcfgv1.MachineConfig) (*machineconfigs.Rendered, error) {
		return &machineconfigs.Rendered{MachineConfig: newConfig("x", "", "/a")}, nil
	}, nil)
	b.ReportAllocs()
	for b.Loop() {
		m := nodes.Assign(nodes.NewSelectors(pools), all)
		setStatus(pools[9], facts{members: m.Members["worker"], want: renders.of(b.Context(), in)}, t0)
	}
}
