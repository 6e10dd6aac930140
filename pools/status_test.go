package pools

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/statustest"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/streams"
)

var worker = []string{"worker"}

// rendered is the outcome of rendering that went well.
func rendered(name string) *outcome { return &outcome{name: name} }

// say is a pool's conditions as people read them, without those that are False and say nothing.
func say(pool *mcfgv1.MachineConfigPool) []string {
	var lines []string
	for _, c := range pool.GetConditions() {
		if c.Status == metav1.ConditionFalse && (c.Reason == mcfgv1.ReasonSucceeded || c.Reason == mcfgv1.ReasonAsExpected) && c.Message == "" {
			continue
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)))
	}
	return lines
}

func TestConditions(t *testing.T) {
	t.Parallel()
	errInvalid := fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, errors.New(`MachineConfig "50-x": spec.config: no JSON`))
	toX := annotated(mcfgv1.AnnotationDesiredConfig, "x")
	tests := map[string]struct {
		pool     *mcfgv1.MachineConfigPool
		nodes    []*corev1.Node
		disputed []nodes.Dispute
		want     *outcome
		says     []string
	}{
		"all nodes have it": {
			pool: newPool("worker", wanting("x")), nodes: []*corev1.Node{newNode("a", worker, having("x"))}, want: rendered("x"),
			says: []string{"Ready=True Succeeded", "Updated=True Succeeded All nodes are updated with x"},
		},
		"all nodes have configuration and image": {
			pool:  newPool("worker", wanting("x"), wantingImage("1")),
			nodes: []*corev1.Node{newNode("a", worker, having("x"), havingImage("1"))}, want: rendered("x"),
			says: []string{"Ready=True Succeeded", "Updated=True Succeeded All nodes are updated with x and image 111111111111"},
		},
		"no nodes": {
			pool: newPool("worker", wanting("x")), want: rendered("x"),
			says: []string{
				"Ready=True Succeeded", "Updated=False NoNodes The pool has no nodes; they would get x", "Updating=False NoNodes",
			},
		},
		"a node that is down does not make it update": {
			pool:  newPool("worker", wanting("x")),
			nodes: []*corev1.Node{newNode("a", worker, having("x"), withCondition(corev1.NodeReady, corev1.ConditionUnknown))}, want: rendered("x"),
			says: []string{"Ready=True Succeeded", "Updated=True Succeeded All nodes are updated with x"},
		},
		"nodes are on their way": {
			pool:  newPool("worker", wanting("x")),
			nodes: []*corev1.Node{newNode("a", worker, having("x")), newNode("b", worker, having("w"), toX)}, want: rendered("x"),
			says: []string{
				"Ready=Unknown Progressing All nodes are updating to x: 1 of 2 nodes are updated",
				"Reconciling=True Progressing All nodes are updating to x: 1 of 2 nodes are updated",
				"Updated=False Progressing All nodes are updating to x: 1 of 2 nodes are updated",
				"Updating=True Progressing All nodes are updating to x: 1 of 2 nodes are updated",
			},
		},
		"nodes without an agent": {
			pool: newPool("worker", wanting("x")), nodes: []*corev1.Node{newNode("a", worker)}, want: rendered("x"),
			says: []string{
				"Ready=Unknown NoNodeAgent Will not update to x: 0 of 1 nodes are updated, and 1 have no node agent that could update them",
				"Reconciling=True NoNodeAgent Will not update to x: 0 of 1 nodes are updated, and 1 have no node agent that could update them",
				"Updated=False NoNodeAgent Will not update to x: 0 of 1 nodes are updated, and 1 have no node agent that could update them",
				"Updating=False NoNodeAgent Will not update to x: 0 of 1 nodes are updated, and 1 have no node agent that could update them",
			},
		},
		"paused with nothing to do": {
			pool: newPool("worker", wanting("x"), paused), nodes: []*corev1.Node{newNode("a", worker, having("x"))}, want: rendered("x"),
			says: []string{"Ready=True Succeeded", "Updated=True Succeeded All nodes are updated with x"},
		},
		"paused in the middle": {
			pool:  newPool("worker", wanting("x"), paused),
			nodes: []*corev1.Node{newNode("a", worker, having("x")), newNode("b", worker, having("w"))}, want: rendered("x"),
			says: []string{
				"Ready=Unknown Paused Pool is paused; will not update to x: 1 of 2 nodes are updated",
				"Reconciling=True Paused Pool is paused; will not update to x: 1 of 2 nodes are updated",
				"Updated=False Paused Pool is paused; will not update to x: 1 of 2 nodes are updated",
				"Updating=False Paused Pool is paused; will not update to x: 1 of 2 nodes are updated",
			},
		},
		"paused, with MachineConfigs that cannot be joined": {
			pool: newPool("worker", wanting("x"), paused), nodes: []*corev1.Node{newNode("a", worker, having("x"))}, want: &outcome{err: errInvalid},
			says: []string{
				`Degraded=True InvalidMachineConfig RenderDegraded: MachineConfig "50-x": spec.config: no JSON`,
				`Ready=False InvalidMachineConfig MachineConfig "50-x": spec.config: no JSON`,
				`RenderDegraded=True InvalidMachineConfig MachineConfig "50-x": spec.config: no JSON`,
				`Stalled=True InvalidMachineConfig MachineConfig "50-x": spec.config: no JSON`,
				"Updated=True Succeeded All nodes are updated with x",
			},
		},
		"MachineConfigs that cannot be joined, and nothing before": {
			pool: newPool("worker"), want: &outcome{err: errInvalid},
			says: []string{
				`Degraded=True InvalidMachineConfig RenderDegraded: MachineConfig "50-x": spec.config: no JSON`,
				`Ready=False InvalidMachineConfig MachineConfig "50-x": spec.config: no JSON`,
				`RenderDegraded=True InvalidMachineConfig MachineConfig "50-x": spec.config: no JSON`,
				`Stalled=True InvalidMachineConfig MachineConfig "50-x": spec.config: no JSON`,
				"Updated=False NotRendered the pool has no configuration yet",
				"Updating=False NotRendered",
			},
		},
		"streams of another release": {
			pool: newPool("worker", wanting("x")),
			want: &outcome{err: streamFault(&streams.OutdatedError{Release: "1", Want: "2"})},
			says: []string{
				`Ready=Unknown WaitingForOSImageStream OSImageStream "cluster" is of release "1", this controller of "2": images of two releases are not mixed`,
				`Reconciling=True WaitingForOSImageStream OSImageStream "cluster" is of release "1", this controller of "2": images of two releases are not mixed`,
				`RenderDegraded=Unknown WaitingForOSImageStream OSImageStream "cluster" is of release "1", this controller of "2": images of two releases are not mixed`,
				"Updated=False NoNodes The pool has no nodes; they would get x", "Updating=False NoNodes",
			},
		},
		"nodes failed": {
			pool: newPool("worker", wanting("x")),
			nodes: []*corev1.Node{
				newNode("a", worker, having("w"), toX, inState(mcfgv1.NodeStateDegraded, "disk is full")),
				newNode("b", worker, having("w"), toX, inState(mcfgv1.NodeStateUnreconcilable, "FIPS")),
			}, want: rendered("x"),
			says: []string{
				`Degraded=True NodesDegraded NodeDegraded: Node a is reporting: "disk is full"; Node b is reporting: "FIPS"`,
				`NodeDegraded=True NodesDegraded Node a is reporting: "disk is full"; Node b is reporting: "FIPS"`,
				`Ready=False NodesDegraded Node a is reporting: "disk is full"; Node b is reporting: "FIPS"`,
				`Reconciling=True NodesDegraded Node a is reporting: "disk is full"; Node b is reporting: "FIPS"`,
				"Updated=False Progressing All nodes are updating to x: 0 of 2 nodes are updated",
				"Updating=True Progressing All nodes are updating to x: 0 of 2 nodes are updated",
			},
		},
		"a node of two pools": {
			pool: newPool("infra", wanting("x")), disputed: []nodes.Dispute{{Node: "n", Pools: []string{"gpu", "infra"}}}, want: rendered("x"),
			says: []string{
				"Degraded=True NodesInSeveralPools NodeDegraded: Node n is selected by the pools gpu and infra, so none of them updates it: let only one custom pool select it",
				"NodeDegraded=True NodesInSeveralPools Node n is selected by the pools gpu and infra, so none of them updates it: let only one custom pool select it",
				"Ready=False NodesInSeveralPools Node n is selected by the pools gpu and infra, so none of them updates it: let only one custom pool select it",
				"Reconciling=True NodesInSeveralPools Node n is selected by the pools gpu and infra, so none of them updates it: let only one custom pool select it",
				"Updated=False NoNodes The pool has no nodes; they would get x", "Updating=False NoNodes",
			},
		},
		"a halted rollout": {
			pool:  newPool("worker", wanting("x"), stoppedBy(mcfgv1.ReasonRolloutHalted, 0, 1)),
			nodes: []*corev1.Node{newNode("a", worker, having("w")), newNode("b", worker, having("w"))}, want: rendered("x"),
			says: []string{
				"Degraded=True RolloutHalted RolloutDegraded: a failed", "RolloutDegraded=True RolloutHalted a failed",
				"Ready=False RolloutHalted a failed", "Stalled=True RolloutHalted a failed",
				"Updated=False RolloutHalted Will not update further to x: 0 of 2 nodes are updated, see RolloutDegraded",
				"Updating=False RolloutHalted Will not update further to x: 0 of 2 nodes are updated, see RolloutDegraded",
			},
		},
		"the only node went back": {
			pool:  newPool("worker", wanting("x"), stoppedBy(mcfgv1.ReasonNodesFailed, 0, 1)),
			nodes: []*corev1.Node{newNode("a", worker, having("w"))}, want: rendered("x"),
			says: []string{
				"Degraded=True NodesFailed RolloutDegraded: a failed", "RolloutDegraded=True NodesFailed a failed",
				"Ready=False NodesFailed a failed", "Stalled=True NodesFailed a failed",
				"Updated=False NodesFailed Will not update further to x: 0 of 1 nodes are updated, see RolloutDegraded",
				"Updating=False NodesFailed Will not update further to x: 0 of 1 nodes are updated, see RolloutDegraded",
			},
		},
		"one node went back, and another is updated": {
			pool:  newPool("worker", wanting("x"), stoppedBy(mcfgv1.ReasonNodesFailed, 0, 1)),
			nodes: []*corev1.Node{newNode("a", worker, having("w")), newNode("b", worker, having("w"), toX)}, want: rendered("x"),
			says: []string{
				"Degraded=True NodesFailed RolloutDegraded: a failed", "RolloutDegraded=True NodesFailed a failed",
				"Ready=False NodesFailed RolloutDegraded: a failed", "Reconciling=True NodesFailed RolloutDegraded: a failed",
				"Updated=False Progressing All nodes are updating to x: 0 of 2 nodes are updated",
				"Updating=True Progressing All nodes are updating to x: 0 of 2 nodes are updated",
			},
		},
		"another controller's trouble": {
			pool: newPool("worker", wanting("x"), func(p *mcfgv1.MachineConfigPool) {
				p.SetConditions([]metav1.Condition{
					{Type: "OtherDegraded", Status: "True", Reason: "BuildFailed", Message: "line 3", LastTransitionTime: metav1.NewTime(t0)},
				})
			}), want: rendered("x"),
			says: []string{
				"Degraded=True BuildFailed OtherDegraded: line 3",
				"OtherDegraded=True BuildFailed line 3",
				"Ready=False BuildFailed OtherDegraded: line 3",
				"Reconciling=True BuildFailed OtherDegraded: line 3",
				"Updated=False NoNodes The pool has no nodes; they would get x", "Updating=False NoNodes",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setStatus(tt.pool, facts{members: observeAll(tt.nodes...), disputed: tt.disputed, want: tt.want}, t0)
			rulesOf(tt.pool).Conclude(tt.pool, t0, nil)
			got := say(tt.pool)
			assert.ElementsMatch(t, tt.says, got, strings.Join(got, "\n"))
			statustest.RequireConsistent(t, tt.pool, statustest.Having("Updated", "Updating", "Degraded", "NodeDegraded", "RenderDegraded", "Ready"))

			before := tt.pool.DeepCopy()
			setStatus(tt.pool, facts{members: observeAll(tt.nodes...), disputed: tt.disputed, want: tt.want}, t0.Add(time.Hour))
			rulesOf(tt.pool).Conclude(tt.pool, t0.Add(time.Hour), nil)
			assert.Equal(t, before, tt.pool, "another look at the same changes nothing")
		})
	}
}

func TestPinnedImagesThatNoOnePulls(t *testing.T) {
	t.Parallel()
	theirs := metav1.Condition{Type: typePinnedImageSetsDegraded, Status: "True", Reason: "PrefetchFailed", Message: "disk full", LastTransitionTime: metav1.NewTime(t0)}
	tests := map[string]struct {
		lacks, names bool
		has          []metav1.Condition
		want         string
	}{
		"a pool that names none":             {lacks: true},
		"a pool that names some":             {lacks: true, names: true, want: "True KindNotInstalled"},
		"where OpenShift pulls them":         {names: true},
		"where OpenShift could not":          {names: true, has: []metav1.Condition{theirs}, want: "True PrefetchFailed"},
		"a pool that names none any more":    {lacks: true, has: []metav1.Condition{{Type: typePinnedImageSetsDegraded, Status: "True", Reason: "KindNotInstalled"}}},
		"since when the cluster has a kind":  {names: true, has: []metav1.Condition{{Type: typePinnedImageSetsDegraded, Status: "True", Reason: "KindNotInstalled"}}},
		"a condition of others without kind": {lacks: true, has: []metav1.Condition{theirs}, want: "True PrefetchFailed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool("worker", wanting("x"))
			if tt.names {
				pool.Spec.PinnedImageSets = []mcfgv1.PinnedImageSetRef{{Name: "images"}}
			}
			pool.SetConditions(tt.has)
			setStatus(pool, facts{want: rendered("x"), lacksPins: tt.lacks}, t0)
			got := ""
			if is := status.Find(pool.GetConditions(), typePinnedImageSetsDegraded); is != nil {
				got = string(is.Status) + " " + is.Reason
			}
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.want != "", status.IsTrue(pool.GetConditions(), typeDegraded))
		})
	}
}

// stoppedBy has the rollout say why nodes are not updated, and how many are or failed.
func stoppedBy(reason string, updated, failed int32) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) {
		p.Status.Rollout = &mcfgv1.RolloutStatus{TargetConfiguration: "x", UpdatedMachineCount: updated, FailedMachineCount: failed}
		p.SetConditions([]metav1.Condition{
			{Type: typeRolloutDegraded, Status: "True", Reason: reason, Message: "a failed", LastTransitionTime: metav1.NewTime(t0)},
		})
	}
}

func TestStatusCountsAndConfiguration(t *testing.T) {
	t.Parallel()
	pool := newPool("worker", wanting("x"))
	pool.Spec.Configuration.Source = sourceReferences([]string{"00-a", "50-b"})
	pool.Status.Configuration.Name = "w"
	half := []*corev1.Node{newNode("a", worker, having("x")), newNode("b", worker, having("w"), inState(mcfgv1.NodeStateDegraded, "r"))}
	setStatus(pool, facts{members: observeAll(half...), want: rendered("x")}, t0)
	s := pool.Status
	assert.Equal(t, []int32{2, 1, 1, 1, 1}, []int32{s.MachineCount, s.UpdatedMachineCount, s.ReadyMachineCount, s.UnavailableMachineCount, s.DegradedMachineCount})
	assert.Equal(t, "w", s.Configuration.Name, "not all have x")

	all := []*corev1.Node{newNode("a", worker, having("x")), newNode("b", worker, having("x"), cordoned)}
	setStatus(pool, facts{members: observeAll(all...), want: rendered("x")}, t0)
	s = pool.Status
	assert.Equal(t, []int32{2, 2, 1, 1, 0}, []int32{s.MachineCount, s.UpdatedMachineCount, s.ReadyMachineCount, s.UnavailableMachineCount, s.DegradedMachineCount})
	assert.Equal(t, pool.Spec.Configuration, s.Configuration)
	require.Len(t, s.Configuration.Source, 2)
	assert.Equal(t, corev1.ObjectReference{APIVersion: "machineconfiguration.openshift.io/v1", Kind: "MachineConfig", Name: "00-a"}, s.Configuration.Source[0])

	pool.Spec.Configuration.Name = ""
	setStatus(pool, facts{want: rendered("x")}, t0)
	assert.Equal(t, "x", pool.Status.Configuration.Name, "what nodes had is not forgotten for a configuration that is not there yet")
}

func TestStreamIsRememberedOnceAllNodesAreOnIt(t *testing.T) {
	t.Parallel()
	stream := streams.Choice{Name: "rhel-9", Images: mcfgv1.OSImageStreamSet{Name: "rhel-9", OSImage: "i"}}
	of := func(name, osImage string) *outcome { return &outcome{name: name, osImage: osImage, stream: stream} }
	there := []*corev1.Node{newNode("a", worker, having("x"))}
	tests := map[string]struct {
		pool  *mcfgv1.MachineConfigPool
		nodes []*corev1.Node
		want  *outcome
		says  string
	}{
		"all are there":                   {newPool("worker", wanting("x")), there, of("x", "i"), "rhel-9"},
		"one is not":                      {newPool("worker", wanting("x")), append(there, newNode("b", worker, having("w"))), of("x", "i"), "before"},
		"the pool is degraded":            {newPool("worker", wanting("x"), degradedBy("ImageBuildDegraded")), there, of("x", "i"), "before"},
		"a MachineConfig sets osImageURL": {newPool("worker", wanting("x")), there, of("x", "another"), "before"},
		"paused before the newest":        {newPool("worker", wanting("x"), paused), there, of("y", "i"), "before"},
		"the newest cannot be rendered":   {newPool("worker", wanting("x")), there, &outcome{err: errors.New("no")}, "before"},
		"the newest is not known":         {newPool("worker", wanting("x")), there, nil, "before"},
		"the pool follows no stream":      {newPool("worker", wanting("x")), there, rendered("x"), "before"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.pool.Status.OSImageStream.Name = "before"
			setStatus(tt.pool, facts{members: observeAll(tt.nodes...), want: tt.want}, t0)
			assert.Equal(t, tt.says, tt.pool.Status.OSImageStream.Name)
		})
	}
}

func degradedBy(conditionType string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) {
		p.SetConditions([]metav1.Condition{{Type: conditionType, Status: metav1.ConditionTrue, Reason: "Because"}})
	}
}

func TestNodeMessagesAreCut(t *testing.T) {
	t.Parallel()
	var failed []*corev1.Node
	var disputed []nodes.Dispute
	for i := range 12 {
		failed = append(failed, newNode(fmt.Sprintf("n%02d", i), worker, inState(mcfgv1.NodeStateDegraded, "r")))
		disputed = append(disputed, nodes.Dispute{Node: fmt.Sprintf("m%02d", i), Pools: []string{"a", "b", "c"}})
	}
	c := nodeDegraded(observeAll(failed...), disputed[:6])
	assert.Equal(t, mcfgv1.ReasonNodesDegraded, c.Reason)
	assert.Contains(t, c.Message, `Node n04 is reporting: "r"; and 7 more nodes; Node m00 is selected by the pools a and b and c`)
	assert.True(t, strings.HasSuffix(c.Message, "; and 1 more node"), c.Message)
	assert.NotContains(t, c.Message, "n05")
	assert.NotContains(t, c.Message, "m05")
}

func TestAnUnknownOutcomeKeepsTheLastWord(t *testing.T) {
	t.Parallel()
	pool := newPool("worker", wanting("x"))
	setStatus(pool, facts{want: &outcome{err: fault.NewTerminal("InvalidMachineConfig", errors.New("broken"))}}, t0)
	setStatus(pool, facts{}, t0.Add(time.Hour))
	rules.Conclude(pool, t0.Add(time.Hour), errors.New("connection refused"))
	c := status.Find(pool.GetConditions(), "RenderDegraded")
	assert.Equal(t, metav1.ConditionTrue, c.Status)
	assert.Equal(t, "broken", c.Message)
	assert.Equal(t, metav1.NewTime(t0), c.LastTransitionTime)
}
