package plan_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	type archs = []mcfgv1.Architecture
	const amd, arm, z = mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64, mcfgv1.ArchitectureS390X
	all := archs{amd, arm, z}
	tests := map[string]struct {
		demand  plan.Demand
		offered archs
		want    archs
		err     string
	}{
		"those of the nodes":    {demand: plan.Demand{Nodes: map[string]string{"arm64": "a", "amd64": "b"}}, want: archs{amd, arm}},
		"one of several":        {demand: plan.Demand{Nodes: map[string]string{"arm64": "a"}}, want: archs{arm}},
		"the only one":          {demand: plan.Demand{Nodes: map[string]string{"amd64": "a"}}, offered: archs{amd}, want: archs{amd}},
		"those that are named":  {demand: plan.Demand{Nodes: map[string]string{"amd64": "a"}, Named: archs{z}}, want: archs{amd, z}},
		"those that were there": {demand: plan.Demand{Nodes: map[string]string{"amd64": "a"}, Before: archs{arm, amd}}, want: archs{amd, arm}},
		"those that were there, and are offered no more": {
			demand: plan.Demand{Nodes: map[string]string{"amd64": "a"}, Before: archs{arm, amd}}, offered: archs{amd}, want: archs{amd},
		},
		"no nodes any more":                     {demand: plan.Demand{Before: archs{arm}, Cluster: []string{"amd64"}}, want: archs{arm}},
		"no nodes yet":                          {demand: plan.Demand{Cluster: []string{"arm64", "amd64", "riscv64"}}, want: archs{amd, arm}},
		"no nodes yet, and one is named":        {demand: plan.Demand{Named: archs{z}, Cluster: []string{"amd64"}}, want: archs{amd, z}},
		"no nodes at all":                       {want: all},
		"none of the cluster's is offered":      {demand: plan.Demand{Cluster: []string{"ppc64le"}}, want: all},
		"another one in the cluster is no harm": {demand: plan.Demand{Cluster: []string{"arm64"}}, offered: archs{amd}, want: archs{amd}},
		"a node that the image is not for": {
			demand:  plan.Demand{Pool: "worker", Nodes: map[string]string{"amd64": "one", "arm64": "two"}},
			offered: archs{amd},
			err:     `it is for amd64, and node "two" of pool "worker" is arm64: name an OS image that is for arm64 too, or give that node another pool`,
		},
		"a node that no image is for": {
			demand: plan.Demand{Pool: "worker", Nodes: map[string]string{"riscv64": "odd"}}, offered: archs{amd, arm},
			err: `it is for amd64 and arm64, and node "odd" of pool "worker" is riscv64: name an OS image that is for riscv64 too, or give that node another pool`,
		},
		"a Containerfile that the image is not for": {
			demand: plan.Demand{Named: archs{arm}}, offered: archs{amd},
			err: `it is for amd64, and spec.containerFile[ARM64] is for arm64: name an OS image that is for arm64 too, or remove that Containerfile`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.offered == nil {
				test.offered = all
			}
			got, err := test.demand.Choose(test.offered)
			if test.err != "" {
				lack := (*plan.LackError)(nil)
				require.ErrorAs(t, err, &lack)
				assert.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestADemandAsText(t *testing.T) {
	t.Parallel()
	one := plan.Demand{Nodes: map[string]string{"arm64": "a", "amd64": "b"}, Cluster: []string{"arm64", "amd64"}}
	other := plan.Demand{Nodes: map[string]string{"amd64": "c", "arm64": "d"}, Cluster: []string{"amd64", "arm64"}}
	assert.Equal(t, one.String(), other.String(), "which node it is does not count")
	assert.NotEqual(t, one.String(), (&plan.Demand{Cluster: one.Cluster}).String())
}
