package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

func TestIsUnavailable(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change []func(*corev1.Node)
		want   bool
	}{
		"done":                                 {[]func(*corev1.Node){nodestest.Having("a")}, false},
		"done with an image":                   {[]func(*corev1.Node){nodestest.Having("a"), nodestest.HavingImage("1")}, false},
		"without an agent":                     {nil, false},
		"not Ready":                            {[]func(*corev1.Node){nodestest.Having("a"), nodestest.WithCondition(corev1.NodeReady, corev1.ConditionFalse)}, true},
		"silent":                               {[]func(*corev1.Node){nodestest.Having("a"), nodestest.WithCondition(corev1.NodeReady, corev1.ConditionUnknown)}, true},
		"not Ready, without an agent":          {[]func(*corev1.Node){nodestest.WithCondition(corev1.NodeReady, corev1.ConditionFalse)}, true},
		"under disk pressure":                  {[]func(*corev1.Node){nodestest.Having("a"), nodestest.WithCondition(corev1.NodeDiskPressure, corev1.ConditionTrue)}, true},
		"nodestest.Cordoned":                   {[]func(*corev1.Node){nodestest.Having("a"), nodestest.Cordoned}, true},
		"to get another configuration":         {[]func(*corev1.Node){nodestest.Having("a"), nodestest.Annotated(mcfgv1.AnnotationDesiredConfig, "b")}, true},
		"to get its first configuration":       {[]func(*corev1.Node){nodestest.Annotated(mcfgv1.AnnotationDesiredConfig, "b")}, true},
		"to get another image":                 {[]func(*corev1.Node){nodestest.Having("a"), nodestest.HavingImage("1"), nodestest.Annotated(mcfgv1.AnnotationDesiredImage, nodestest.Pinned("2"))}, true},
		"to go back to no image":               {[]func(*corev1.Node){nodestest.Having("a"), nodestest.Annotated(mcfgv1.AnnotationCurrentImage, nodestest.Pinned("2"))}, true},
		"Working":                              {[]func(*corev1.Node){nodestest.Having("a"), nodestest.InState(mcfgv1.NodeStateWorking, "")}, true},
		"Rebooting":                            {[]func(*corev1.Node){nodestest.Having("a"), nodestest.InState(mcfgv1.NodeStateRebooting, "")}, true},
		"Degraded":                             {[]func(*corev1.Node){nodestest.Having("a"), nodestest.InState(mcfgv1.NodeStateDegraded, "disk")}, true},
		"Unreconcilable":                       {[]func(*corev1.Node){nodestest.Having("a"), nodestest.InState(mcfgv1.NodeStateUnreconcilable, "fips")}, true},
		"a state that no one knows is no work": {[]func(*corev1.Node){nodestest.Having("a"), nodestest.InState("Singing", "")}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodes.Observe(nodestest.New("n", nil, tt.change...))
			assert.Equal(t, tt.want, n.IsUnavailable())
		})
	}
}

func TestIsAt(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change []func(*corev1.Node)
		target nodes.Target
		want   bool
	}{
		"has the configuration": {[]func(*corev1.Node){nodestest.Having("a")}, nodes.Target{Config: "a"}, true},
		"has both":              {[]func(*corev1.Node){nodestest.Having("a"), nodestest.HavingImage("1")}, nodes.Target{Config: "a", Image: nodestest.Pinned("1")}, true},
		"has an image that the pool does not name":  {[]func(*corev1.Node){nodestest.Having("a"), nodestest.HavingImage("1")}, nodes.Target{Config: "a"}, false},
		"has it, and is not Ready":                  {[]func(*corev1.Node){nodestest.Having("a"), nodestest.WithCondition(corev1.NodeReady, corev1.ConditionFalse)}, nodes.Target{Config: "a"}, true},
		"has another":                               {[]func(*corev1.Node){nodestest.Having("b")}, nodes.Target{Config: "a"}, false},
		"has another image":                         {[]func(*corev1.Node){nodestest.Having("a"), nodestest.HavingImage("2")}, nodes.Target{Config: "a", Image: nodestest.Pinned("1")}, false},
		"has no image yet":                          {[]func(*corev1.Node){nodestest.Having("a")}, nodes.Target{Config: "a", Image: nodestest.Pinned("1")}, false},
		"has the configuration, is to get another":  {[]func(*corev1.Node){nodestest.Having("a"), nodestest.Annotated(mcfgv1.AnnotationDesiredConfig, "b")}, nodes.Target{Config: "a"}, false},
		"has it, and is not done":                   {[]func(*corev1.Node){nodestest.Having("a"), nodestest.InState(mcfgv1.NodeStateWorking, "")}, nodes.Target{Config: "a"}, false},
		"has it, and failed":                        {[]func(*corev1.Node){nodestest.Having("a"), nodestest.InState(mcfgv1.NodeStateDegraded, "")}, nodes.Target{Config: "a"}, false},
		"has it, and an agent that never says Done": {[]func(*corev1.Node){nodestest.Having("a"), nodestest.InState("", "")}, nodes.Target{Config: "a"}, false},
		"has no agent":                              {nil, nodes.Target{Config: "a"}, false},
		"has no agent, and the pool has nothing":    {nil, nodes.Target{}, false},
		"has something, and the pool has nothing":   {[]func(*corev1.Node){nodestest.Having("a")}, nodes.Target{}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodes.Observe(nodestest.New("n", nil, tt.change...))
			assert.Equal(t, tt.want, n.IsAt(tt.target))
		})
	}
}
