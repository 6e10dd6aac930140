package states_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/states"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/view"
)

func at(seconds int64) metav1.Time { return metav1.NewTime(time.Unix(seconds, 0)) }

func condition(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: "what happened to node-7"}
}

func pool() mcfgv1.MachineConfigPool {
	p := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}}
	p.Status.Rollout = &mcfgv1.RolloutStatus{Summary: "1/3 updated, node-0: no node agent has reported from it"}
	return p
}

func node(name string, annotations map[string]string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": "worker"}, Annotations: annotations}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func report(name string, conditions ...metav1.Condition) mcfgv1.MachineConfigNode {
	r := mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.Pool.Name, r.Status.Conditions = "worker", conditions
	return r
}

func build(name string, created, ended int64, conditions ...metav1.Condition) mcfgv1.MachineOSBuild {
	b := mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(created)}}
	b.Spec.MachineOSConfig.Name, b.Status.Conditions = "worker", conditions
	if begun := at(created + 1); len(conditions) > 0 {
		b.Status.BuildStart = &begun
	}
	if end := at(ended); ended != 0 {
		b.Status.BuildEnd = &end
	}
	return b
}

func TestObjectsAreCountedAsTheStatusShowsThem(t *testing.T) {
	t.Parallel()
	o := &view.Objects{Pools: []mcfgv1.MachineConfigPool{pool()}}
	for i := range 2 {
		o.Nodes = append(o.Nodes, node(fmt.Sprintf("node-%d", i), nil))
	}
	other := node("windows-0", nil)
	other.Labels = nil
	o.Nodes = append(o.Nodes, other)
	o.Configs = []mcfgv1.MachineOSConfig{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}
	assert.ElementsMatch(t, []metrics.Objects{
		{Pool: "worker", Kind: view.KindPool, Assessment: "Held", Count: 1},
		{Pool: "worker", Kind: view.KindNode, Assessment: "Held", Step: "without agent", Count: 2},
		{Pool: "worker", Kind: view.KindConfig, Assessment: "Waiting", Step: mcfgv1.ReasonNotYetObserved, Count: 1},
		{Kind: view.KindNode, Assessment: "Unmanaged", Step: "in no pool", Count: 1},
	}, states.Of(o).Objects)
}

func TestLabelsAreNoNamesAndNoTexts(t *testing.T) {
	t.Parallel()
	o := &view.Objects{Pools: []mcfgv1.MachineConfigPool{pool()}}
	for i := range 500 {
		name := fmt.Sprintf("node-%d", i)
		o.Nodes = append(o.Nodes, node(name, map[string]string{
			mcfgv1.AnnotationState: mcfgv1.NodeStateDegraded, mcfgv1.AnnotationReason: "failed on " + name, mcfgv1.AnnotationCurrentConfig: "a", mcfgv1.AnnotationDesiredConfig: "b",
		}))
		o.Reports = append(o.Reports, report(name, condition(mcfgv1.NodeNodeDegraded, metav1.ConditionTrue, mcfgv1.ReasonUpdateFailed)))
	}
	s := states.Of(o)
	assert.LessOrEqual(t, len(s.Objects), 3, "the number of series does not grow with the pool")
	assert.Equal(t, []metrics.Conditions{{Pool: "worker", Kind: "MachineConfigNode", Condition: "NodeDegraded", Reason: "UpdateFailed", Count: 500}}, s.Conditions)
}

func TestConditionsThatTellOfTrouble(t *testing.T) {
	t.Parallel()
	image := mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	image.Spec.MachineConfigPool = "worker"
	image.Status.Conditions = []metav1.Condition{
		condition(mcfgv1alpha1.ImageSigned, metav1.ConditionFalse, mcfgv1alpha1.ReasonSigningFailed), condition(mcfgv1alpha1.ImageVerified, metav1.ConditionUnknown, mcfgv1alpha1.ReasonVerificationRunning),
		condition(mcfgv1.ConditionReady, metav1.ConditionFalse, mcfgv1alpha1.ReasonSigningFailed),
	}
	machines := operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	machines.Status.Conditions = []metav1.Condition{condition(operatorv1.BootImagesUpgradeable, metav1.ConditionFalse, operatorv1.ReasonClusterBootImageSkewError)}
	s := states.Of(&view.Objects{
		Images: []mcfgv1alpha1.MachineOSImage{image}, Machines: []operatorv1.MachineConfiguration{machines},
		Reports: []mcfgv1.MachineConfigNode{
			report("a", condition(mcfgv1.NodeDrained, metav1.ConditionFalse, mcfgv1.ReasonDrainOverdue)), report("b", condition(mcfgv1.NodeDrained, metav1.ConditionFalse, mcfgv1.ReasonDraining)),
			report("c", condition(mcfgv1.NodeNodeDegraded, metav1.ConditionTrue, mcfgv1.ReasonConfigDrift)), report("d", condition(mcfgv1.NodeUpdated, metav1.ConditionTrue, mcfgv1.ReasonUpdated)),
		},
	})
	assert.ElementsMatch(t, []metrics.Conditions{
		{Pool: "worker", Kind: "MachineConfigNode", Condition: "Drained", Reason: "DrainOverdue", Count: 1},
		{Pool: "worker", Kind: "MachineConfigNode", Condition: "NodeDegraded", Reason: "ConfigDrift", Count: 1},
		{Pool: "worker", Kind: "MachineOSImage", Condition: "Signed", Reason: "SigningFailed", Count: 1},
		{Kind: "MachineConfiguration", Condition: "Upgradeable", Reason: "ClusterBootImageSkewError", Count: 1},
	}, s.Conditions)
}

func TestBuilds(t *testing.T) {
	t.Parallel()
	succeeded := func(reason string) metav1.Condition {
		return condition(mcfgv1.BuildSucceeded, metav1.ConditionTrue, reason)
	}
	failed := func(reason string) metav1.Condition {
		return condition(mcfgv1.BuildFailed, metav1.ConditionTrue, reason)
	}
	tests := map[string]struct {
		builds []mcfgv1.MachineOSBuild
		want   metrics.PoolBuilds
	}{
		"none": {want: metrics.PoolBuilds{}},
		"one that waits": {
			builds: []mcfgv1.MachineOSBuild{build("a", 10, 0)},
			want:   metrics.PoolBuilds{HasBuild: true, Stage: mcfgv1.BuildStagePending},
		},
		"one that runs after one that was pushed": {
			builds: []mcfgv1.MachineOSBuild{
				build("b", 20, 0, condition(mcfgv1.BuildBuilding, metav1.ConditionTrue, mcfgv1.ReasonBuilding)), build("a", 10, 15, succeeded(mcfgv1.ReasonConfigAppended)),
			},
			want: metrics.PoolBuilds{HasBuild: true, Stage: mcfgv1.BuildStageBuilding, Active: 1, Started: 21, Push: metrics.PushSucceeded},
		},
		"one that the registry refuses": {
			builds: []mcfgv1.MachineOSBuild{build("a", 10, 15, succeeded(mcfgv1.ReasonBuilt)), build("b", 20, 25, failed(mcfgv1.ReasonPushDenied))},
			want:   metrics.PoolBuilds{HasBuild: true, Stage: mcfgv1.BuildStageFailed, Started: 21, Ended: 25, Push: metrics.PushFailed},
		},
		"one whose compiler fails pushes nothing": {
			builds: []mcfgv1.MachineOSBuild{build("a", 10, 15, succeeded(mcfgv1.ReasonBuilt)), build("b", 20, 25, failed(mcfgv1.ReasonBuildFailed))},
			want:   metrics.PoolBuilds{HasBuild: true, Stage: mcfgv1.BuildStageFailed, Started: 21, Ended: 25, Push: metrics.PushSucceeded},
		},
		"an image that was there is not pushed": {
			builds: []mcfgv1.MachineOSBuild{build("a", 10, 15, succeeded(mcfgv1.ReasonReused))},
			want:   metrics.PoolBuilds{HasBuild: true, Stage: mcfgv1.BuildStageSucceeded, Started: 11, Ended: 15},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			foreign := build("z", 99, 0)
			foreign.Spec.MachineOSConfig.Name = "infra"
			s := states.Of(&view.Objects{
				Configs: []mcfgv1.MachineOSConfig{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}, Builds: append([]mcfgv1.MachineOSBuild{foreign}, tt.builds...),
			})
			tt.want.Pool = "worker"
			assert.Equal(t, []metrics.PoolBuilds{tt.want}, s.Builds)
			assert.Equal(t, 1, s.Configs)
		})
	}
}

func TestLayeredNodes(t *testing.T) {
	t.Parallel()
	infra := pool()
	infra.Name, infra.Spec.NodeSelector = "infra", &metav1.LabelSelector{MatchLabels: map[string]string{"role": "infra"}}
	s := states.Of(&view.Objects{Pools: []mcfgv1.MachineConfigPool{pool(), infra}, Nodes: []corev1.Node{
		node("a", map[string]string{mcfgv1.AnnotationCurrentImage: "registry.example.com/os@sha256:1"}), node("b", nil),
	}})
	assert.Equal(t, map[string]int{"worker": 1, "infra": 0}, s.LayeredNodes)
}
