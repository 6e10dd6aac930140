package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
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
		"one waits for a slot":      {[]*corev1.Node{nodestest.New("a", worker, nodestest.Having("x")), nodestest.New("b", worker, nodestest.Having("w"))}, nodes.Counts{Machines: 2, Updated: 1, Ready: 1}},
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

func TestTargetOf(t *testing.T) {
	t.Parallel()
	image := func(name, digit, config string) mcfgv1alpha1.MachineOSImage {
		i := mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: name}}
		i.Spec.PullSpec, i.Spec.RenderedMachineConfig = mcfgv1.ImageDigestFormat(nodestest.Pinned(digit)), config
		return i
	}
	images := []mcfgv1alpha1.MachineOSImage{image("old", "1", "x-old"), image("new", "2", "x"), image("foreign", "3", ""), image("later", "4", "x-old")}
	images[3].Status.RenderedMachineConfig = "x-later"
	tests := map[string]struct {
		pinned, rolledOut string
		want              nodes.Target
	}{
		"no image":                         {"", "", nodes.Target{Config: "x"}},
		"the newest image":                 {"", "2", nodes.Target{Config: "x", Image: nodestest.Pinned("2")}},
		"an image that the pool names":     {"old", "1", nodes.Target{Config: "x-old", Image: nodestest.Pinned("1")}},
		"one with a later configuration":   {"later", "4", nodes.Target{Config: "x-later", Image: nodestest.Pinned("4")}},
		"one that is not rolled out yet":   {"old", "2", nodes.Target{Config: "x", Image: nodestest.Pinned("2")}},
		"one without a configuration":      {"foreign", "3", nodes.Target{Config: "x", Image: nodestest.Pinned("3")}},
		"one that does not exist any more": {"gone", "2", nodes.Target{Config: "x", Image: nodestest.Pinned("2")}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := &mcfgv1.MachineConfigPool{}
			pool.Spec.Configuration.Name, pool.Spec.MachineOSImage = "x", tt.pinned
			if tt.rolledOut != "" {
				pool.Status.OSImagePullSpec = mcfgv1.ImageDigestFormat(nodestest.Pinned(tt.rolledOut))
			}
			assert.Equal(t, tt.want, nodes.TargetOf(pool, images))
		})
	}
}
