package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

func TestCount(t *testing.T) {
	t.Parallel()
	worker := []string{"worker"}
	tests := map[string]struct {
		nodes []*corev1.Node
		want  nodes.Counts
	}{
		"no nodes":                  {},
		"all have it":               {[]*corev1.Node{nodestest.New("a", worker, nodestest.Having("x")), nodestest.New("b", worker, nodestest.Having("x"))}, nodes.Counts{Machines: 2, Updated: 2, Ready: 2}},
		"one is on its way":         {[]*corev1.Node{nodestest.New("a", worker, nodestest.Having("x")), nodestest.New("b", worker, nodestest.Having("w"), nodestest.Annotated(mcfgv1.AnnotationDesiredConfig, "x"))}, nodes.Counts{Machines: 2, Updated: 1, Ready: 1, Unavailable: 1}},
		"one waits for its turn":    {[]*corev1.Node{nodestest.New("a", worker, nodestest.Having("x")), nodestest.New("b", worker, nodestest.Having("w"))}, nodes.Counts{Machines: 2, Updated: 1, Ready: 1}},
		"one has it and is down":    {[]*corev1.Node{nodestest.New("a", worker, nodestest.Having("x"), nodestest.WithCondition(corev1.NodeReady, corev1.ConditionFalse))}, nodes.Counts{Machines: 1, Updated: 1, Unavailable: 1}},
		"one is nodestest.Cordoned": {[]*corev1.Node{nodestest.New("a", worker, nodestest.Having("x"), nodestest.Cordoned)}, nodes.Counts{Machines: 1, Updated: 1, Unavailable: 1}},
		"one failed":                {[]*corev1.Node{nodestest.New("a", worker, nodestest.Having("w"), nodestest.Annotated(mcfgv1.AnnotationDesiredConfig, "x"), nodestest.InState(mcfgv1.NodeStateDegraded, "disk"))}, nodes.Counts{Machines: 1, Unavailable: 1, Degraded: 1}},
		"one cannot get there":      {[]*corev1.Node{nodestest.New("a", worker, nodestest.Having("w"), nodestest.InState(mcfgv1.NodeStateUnreconcilable, "fips"))}, nodes.Counts{Machines: 1, Unavailable: 1, Degraded: 1}},
		"without agents":            {[]*corev1.Node{nodestest.New("a", worker), nodestest.New("b", worker, nodestest.Cordoned)}, nodes.Counts{Machines: 2, Unavailable: 1, Silent: 2}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, nodes.Count(nodestest.ObserveAll(tt.nodes...), nodes.Target{Config: "x"}))
		})
	}
}
