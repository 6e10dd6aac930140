package forecast_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/cmd/layerwright/forecast"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/view"
)

// t0 is a Monday.
var t0 = time.Date(2026, 11, 23, 20, 0, 0, 0, time.UTC)

// input is of a pool whose nodes have configuration a and image 1, and should have b and 2. An
// update takes five minutes.
func input(change ...func(*forecast.Input)) *forecast.Input {
	pool := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}
	pool.Spec.Rollout = &mcfgv1.RolloutSpec{}
	pool.Status.Rollout = &mcfgv1.RolloutStatus{
		TargetConfiguration: "b", TargetImagePullSpec: mcfgv1.ImageDigestFormat(nodestest.Pinned("2")), MachineUpdateSeconds: new(int64(300)),
		Cost: &mcfgv1.RolloutCost{Summary: "nodes: 3 not known yet"},
	}
	image := mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "worker-2"}}
	image.Spec.MachineConfigPool, image.Spec.PullSpec = "worker", mcfgv1.ImageDigestFormat(nodestest.Pinned("2"))
	image.Spec.RenderedMachineConfig = "b"
	image.Status.Conditions = []metav1.Condition{{Type: mcfgv1.ConditionReady, Status: metav1.ConditionTrue}}
	layer := mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	layer.Status.CurrentImagePullSpec = image.Spec.PullSpec
	in := &forecast.Input{
		Pool: &pool, Now: t0, Config: &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
		Objects: &view.Objects{Images: []mcfgv1alpha1.MachineOSImage{image}, Configs: []mcfgv1.MachineOSConfig{layer}},
	}
	for i := range 3 {
		n := nodestest.New("n-"+strconv.Itoa(i), []string{"worker"}, nodestest.Having("a"), nodestest.HavingImage("1"), nodestest.Annotated(mcfgv1.AnnotationStagedImage, ""))
		in.Objects.Nodes = append(in.Objects.Nodes, *n)
	}
	for _, c := range change {
		c(in)
	}
	in.Objects.Pools = append(in.Objects.Pools, *in.Pool)
	return in
}

func node(i int, change func(*corev1.Node)) func(*forecast.Input) {
	return func(in *forecast.Input) { change(&in.Objects.Nodes[i]) }
}

func pool(change func(*mcfgv1.MachineConfigPool)) func(*forecast.Input) {
	return func(in *forecast.Input) { change(in.Pool) }
}

// names are the issues, and what they are about.
func names(f *forecast.Forecast) []string {
	var all []string
	for _, i := range f.Issues {
		all = append(all, i.Name+" "+i.Object)
	}
	return all
}

// steps are a line each: minutes after t0, and nodes.
func steps(f *forecast.Forecast) []string {
	var all []string
	for _, s := range f.Steps {
		line := strconv.Itoa(int(s.Earliest.Sub(t0).Minutes())) + ":"
		for _, n := range s.Nodes {
			line += " " + n.Node + n.Change
		}
		all = append(all, line)
	}
	return all
}

func TestSteps(t *testing.T) {
	t.Parallel()
	two := pool(func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt32(2)) })
	canary := pool(func(p *mcfgv1.MachineConfigPool) { p.Spec.Rollout.Canary = &mcfgv1.RolloutCanary{SoakTime: "30m"} })
	staged := func(change string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Annotations[mcfgv1.AnnotationStagedImage], n.Annotations[mcfgv1.AnnotationStagedChange] = nodestest.Pinned("2"), change
		}
	}
	for name, test := range map[string]struct {
		in    *forecast.Input
		steps []string
		after string // of the second step
	}{
		"one after the other":      {input(), []string{"0: n-0", "5: n-1", "10: n-2"}, "n-0 is told to change"},
		"as many as may":           {input(two), []string{"0: n-0 n-1", "5: n-2"}, "maxUnavailable allows 2"},
		"the canary goes first":    {input(two, canary), []string{"0: n-0", "35: n-1 n-2"}, "waits for the canaries to stay healthy until 2026-11-23T20:35:00Z"},
		"what nodes say of it":     {input(node(0, staged(mcfgv1.NodeChangeReboot))), []string{"0: n-0Reboot", "5: n-1", "10: n-2"}, ""},
		"a node that stays":        {input(node(1, staged(mcfgv1.NodeChangeLive))), []string{"0: n-0 n-1Live", "5: n-2"}, ""},
		"a node that is there":     {input(node(0, nodestest.Having("b")), node(0, nodestest.HavingImage("2"))), []string{"0: n-1", "5: n-2"}, ""},
		"a node that is under way": {input(node(0, nodestest.Annotated(mcfgv1.AnnotationDesiredConfig, "b")), node(0, nodestest.Annotated(mcfgv1.AnnotationDesiredImage, nodestest.Pinned("2")))), []string{"0: n-1", "5: n-2"}, ""},
		"a paused pool":            {input(pool(func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })), []string{"0: n-0", "5: n-1", "10: n-2"}, ""},
		"within windows": {input(pool(func(p *mcfgv1.MachineConfigPool) {
			p.Spec.Rollout.Windows = []mcfgv1.RolloutWindow{{Name: "night", Start: "22:00", Duration: "7m"}}
		})), []string{"120: n-0", "125: n-1", "1560: n-2"}, ""},
		"batches": {input(two, pool(func(p *mcfgv1.MachineConfigPool) {
			p.Spec.Rollout.Batches = []mcfgv1.RolloutBatch{{Name: "half", MachineCount: new(intstr.FromInt32(1))}}
		})), []string{"0: n-0", "5: n-1 n-2"}, "waits for batch half"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := forecast.Of(test.in)
			assert.Equal(t, test.steps, steps(f))
			if test.after != "" {
				assert.Contains(t, f.Steps[1].After, test.after)
			}
			assert.True(t, f.Drains())
		})
	}
}

func TestIssuesOfNodesAndPool(t *testing.T) {
	t.Parallel()
	const ofPool = " MachineConfigPool worker"
	failed := func(reason string) func(*forecast.Input) {
		return func(in *forecast.Input) {
			n := &in.Objects.Nodes[1]
			nodestest.Annotated(mcfgv1.AnnotationDesiredConfig, "b")(n)
			nodestest.Annotated(mcfgv1.AnnotationDesiredImage, nodestest.Pinned("2"))(n)
			nodestest.InState(mcfgv1.NodeStateDegraded, reason)(n)
		}
	}
	waiting := func(line string) func(*forecast.Input) {
		return pool(func(p *mcfgv1.MachineConfigPool) { p.Status.Rollout.WaitingFor = []string{line} })
	}
	window := func(day mcfgv1.Weekday) func(*forecast.Input) {
		return pool(func(p *mcfgv1.MachineConfigPool) {
			p.Spec.Rollout.Windows = []mcfgv1.RolloutWindow{{Name: "weekly", Days: []mcfgv1.Weekday{day}, Start: "22:00", Duration: "4h"}}
		})
	}
	paused := pool(func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	for name, test := range map[string]struct {
		in   *forecast.Input
		want []string
	}{
		"none":                 {input(), nil},
		"paused":               {input(paused), []string{"Paused" + ofPool}},
		"resuming":             {input(paused, func(in *forecast.Input) { in.Resuming = true }), nil},
		"not Ready":            {input(node(1, nodestest.WithCondition(corev1.NodeReady, corev1.ConditionFalse))), []string{"NodeNotReady Node n-1"}},
		"disk pressure":        {input(node(1, nodestest.WithCondition(corev1.NodeDiskPressure, corev1.ConditionTrue))), []string{"NoSpace Node n-1"}},
		"cordoned":             {input(node(1, nodestest.Cordoned)), []string{"NodeCordoned Node n-1"}},
		"no agent":             {input(node(1, func(n *corev1.Node) { n.Annotations = nil })), []string{"AgentMissing Node n-1"}},
		"failed":               {input(failed("unit x failed")), []string{"NodeFailed Node n-1"}},
		"no space":             {input(failed("write /sysroot: no space left on device")), []string{"NoSpace Node n-1"}},
		"agent does not run":   {input(waiting("n-2: stages the image, but its node agent can't answer: its pod is Pending")), []string{"AgentMissing Node n-2"}},
		"alert fires":          {input(waiting("n-0: is not healthy yet: check disks is sda is full")), []string{"AlertFires Node n-0"}},
		"check can't be asked": {input(waiting("waits for health check disks: no answer")), []string{"AlertFires" + ofPool}},
		"old lines":            {input(waiting("n-0: is not Ready, and is not moved")), nil},
		"window is far":        {input(window("Friday")), []string{"WindowFar" + ofPool}},
		"window is near":       {input(window("Monday")), nil},
		"window is ignored": {input(window("Friday"), pool(func(p *mcfgv1.MachineConfigPool) {
			p.Annotations = map[string]string{mcfgv1.AnnotationIgnoreWindows: "CVE"}
		})), nil},
		"window never opens": {input(pool(func(p *mcfgv1.MachineConfigPool) {
			p.Spec.Rollout.Windows = []mcfgv1.RolloutWindow{{Name: "lost", Start: "22:00", Duration: "4h", TimeZone: "Mars/Base"}}
		})), []string{"InvalidRollout" + ofPool}},
		"no canary": {input(pool(func(p *mcfgv1.MachineConfigPool) {
			p.Spec.Rollout.Canary = &mcfgv1.RolloutCanary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}}
		})), []string{"InvalidRollout" + ofPool}},
		"waits for itself": {input(pool(func(p *mcfgv1.MachineConfigPool) { p.Spec.Rollout.AfterPools = []string{"worker"} })), []string{"InvalidRollout" + ofPool}},
		"not signed": {input(func(in *forecast.Input) {
			in.Objects.Images[0].Status.Conditions = []metav1.Condition{{Type: mcfgv1.ConditionReady, Status: metav1.ConditionFalse, Reason: "WaitingForSignature"}}
		}), []string{"ImageNotReady" + ofPool}},
		"no image":         {input(func(in *forecast.Input) { in.Objects.Images = nil }), []string{"ImageNotReady" + ofPool}},
		"no configuration": {input(func(in *forecast.Input) { in.Config = nil }), []string{"ImageNotReady" + ofPool}},
		"quarantined": {input(func(in *forecast.Input) {
			in.Objects.Images[0].Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{Reason: mcfgv1.ReasonRolloutHalted, Message: "n-0 failed"}
		}), []string{"Quarantined" + ofPool}},
		"halted": {input(pool(func(p *mcfgv1.MachineConfigPool) {
			p.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: mcfgv1.PoolRolloutDegraded, Status: corev1.ConditionTrue, Reason: mcfgv1.ReasonRolloutHalted}}
		})), []string{"Halted" + ofPool}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := forecast.Of(test.in)
			assert.Equal(t, test.want, names(f))
			for _, i := range f.Issues {
				assert.NotEmpty(t, i.Message)
				assert.Contains(t, view.Issues(), i.Name)
			}
			left := f.Accept([]string{"Paused"})
			assert.Equal(t, len(test.want) > 0 && !strings.HasPrefix(test.want[0], "Paused"), len(left) > 0)
		})
	}
}

// pod is one that runs on a node.
func pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	for _, c := range change {
		c(p)
	}
	return p
}

func of(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(kind + name), Controller: new(true)}}
		if kind == "ReplicaSet" {
			p.Labels["pod-template-hash"] = "abc"
		}
	}
}

func budget(name string, needs, has, pods int32) policyv1.PodDisruptionBudget {
	return policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DesiredHealthy: needs, CurrentHealthy: has, ExpectedPods: pods, DisruptionsAllowed: max(0, has-needs)},
	}
}

func TestIssuesOfWorkload(t *testing.T) {
	t.Parallel()
	always := policyv1.AlwaysAllow
	for name, test := range map[string]struct {
		pods    []*corev1.Pod
		budgets []policyv1.PodDisruptionBudget
		want    []string
		says    string
	}{
		"one replica": {
			[]*corev1.Pod{pod("db-0", "n-0", of("StatefulSet", "db"))},
			nil,
			[]string{"SingleReplica StatefulSet shop/db"},
			"its only pod is on Node n-0",
		},
		"the controller": {[]*corev1.Pod{pod("c", "n-0", of("ReplicaSet", "layerwright-controller-abc"), func(p *corev1.Pod) {
			p.Labels["app.kubernetes.io/name"], p.Labels["app.kubernetes.io/component"] = "layerwright", "controller"
		})}, nil, nil, ""},
		"one of a Deployment": {[]*corev1.Pod{pod("web", "n-1", of("ReplicaSet", "web-abc"))}, nil, []string{"SingleReplica Deployment shop/web"}, ""},
		"two replicas":        {[]*corev1.Pod{pod("a", "n-0", of("ReplicaSet", "web-abc")), pod("b", "elsewhere", of("ReplicaSet", "web-abc"))}, nil, nil, ""},
		"one elsewhere":       {[]*corev1.Pod{pod("a", "elsewhere", of("ReplicaSet", "web-abc")), pod("bare", "elsewhere")}, nil, nil, ""},
		"of a DaemonSet":      {[]*corev1.Pod{pod("a", "n-0", of("DaemonSet", "agent"))}, nil, nil, ""},
		"of a Job":            {[]*corev1.Pod{pod("a", "n-0", of("Job", "once"))}, nil, nil, ""},
		"of the node":         {[]*corev1.Pod{pod("a", "n-0", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })}, nil, nil, ""},
		"that has ended":      {[]*corev1.Pod{pod("a", "n-0", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, nil, nil, ""},
		"without owner":       {[]*corev1.Pod{pod("bare", "n-2")}, nil, []string{"UnmanagedPod Pod shop/bare"}, "drain of Node n-2 deletes it"},
		"budget of all":       {[]*corev1.Pod{pod("db", "n-0", of("StatefulSet", "db"))}, []policyv1.PodDisruptionBudget{budget("db", 1, 1, 1)}, []string{"BudgetBlocksDrain PodDisruptionBudget shop/db"}, "it can never let a pod leave: 1 of 1 pods must be healthy; pod shop/db on Node n-0"},
		"budget for now":      {[]*corev1.Pod{pod("db", "n-0", of("StatefulSet", "db")), pod("db", "x", of("StatefulSet", "db"))}, []policyv1.PodDisruptionBudget{budget("db", 2, 2, 3)}, []string{"BudgetBlocksDrain PodDisruptionBudget shop/db"}, "it lets no pod leave now: 2 of 3 pods are healthy, and 2 must be"},
		"budget that allows":  {[]*corev1.Pod{pod("db", "n-0", of("StatefulSet", "db")), pod("db", "x", of("StatefulSet", "db"))}, []policyv1.PodDisruptionBudget{budget("db", 1, 2, 2)}, nil, ""},
		"budget of a pod that waits": {
			[]*corev1.Pod{pod("db", "n-0", of("StatefulSet", "db"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), pod("db", "x", of("StatefulSet", "db"))},
			[]policyv1.PodDisruptionBudget{budget("db", 2, 1, 2)},
			nil, "",
		},
		"budget that lets go of what is ill": {
			[]*corev1.Pod{pod("db", "n-0", of("StatefulSet", "db")), pod("db", "x", of("StatefulSet", "db"))},
			[]policyv1.PodDisruptionBudget{func() policyv1.PodDisruptionBudget {
				b := budget("db", 2, 1, 2)
				b.Spec.UnhealthyPodEvictionPolicy = &always
				return b
			}()},
			nil, "",
		},
		"two budgets": {
			[]*corev1.Pod{pod("db", "n-0", of("StatefulSet", "db"))},
			[]policyv1.PodDisruptionBudget{budget("db", 0, 1, 1), func() policyv1.PodDisruptionBudget {
				b := budget("all", 0, 1, 1)
				b.Spec.Selector = &metav1.LabelSelector{}
				return b
			}()},
			[]string{"BudgetBlocksDrain PodDisruptionBudget shop/all, db"},
			"the API server evicts no pod that several budgets select",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := forecast.Of(input())
			w := f.Workload(test.budgets)
			for _, p := range test.pods {
				w.Add(p)
			}
			w.End()
			assert.Equal(t, test.want, names(f))
			if test.says != "" {
				assert.Contains(t, f.Issues[0].Message, test.says)
			}
		})
	}
}

// TestNothingToDrain has a pool that is done, and one whose nodes change as they run.
func TestNothingToDrain(t *testing.T) {
	t.Parallel()
	there := func(in *forecast.Input) {
		for i := range in.Objects.Nodes {
			nodestest.Having("b")(&in.Objects.Nodes[i])
			nodestest.HavingImage("2")(&in.Objects.Nodes[i])
		}
	}
	f := forecast.Of(input(there))
	assert.False(t, f.Drains())
	assert.Equal(t, 3, f.Updated)
	assert.Empty(t, f.Steps)
	live := func(in *forecast.Input) {
		for i := range in.Objects.Nodes {
			nodestest.Annotated(mcfgv1.AnnotationStagedImage, nodestest.Pinned("2"))(&in.Objects.Nodes[i])
			nodestest.Annotated(mcfgv1.AnnotationStagedChange, mcfgv1.NodeChangeLive)(&in.Objects.Nodes[i])
		}
	}
	f = forecast.Of(input(live))
	assert.False(t, f.Drains())
	assert.Equal(t, []string{"0: n-0Live n-1Live n-2Live"}, steps(f))
}

func TestLargePool(t *testing.T) {
	t.Parallel()
	f := forecast.Of(input(func(in *forecast.Input) {
		one := in.Objects.Nodes[0]
		for i := range 997 {
			n := one.DeepCopy()
			n.Name = "many-" + strconv.Itoa(i)
			in.Objects.Nodes = append(in.Objects.Nodes, *n)
		}
	}))
	assert.Len(t, f.Steps, 50)
	assert.Equal(t, 950, f.More)
}

func TestText(t *testing.T) {
	t.Parallel()
	f := forecast.Of(input(node(1, nodestest.Annotated(mcfgv1.AnnotationStagedImage, nodestest.Pinned("2"))), node(1, nodestest.Annotated(mcfgv1.AnnotationStagedChange, mcfgv1.NodeChangeReboot)),
		node(2, func(n *corev1.Node) {
			nodestest.Annotated(mcfgv1.AnnotationDesiredConfig, "b")(n)
			nodestest.Annotated(mcfgv1.AnnotationDesiredImage, nodestest.Pinned("2"))(n)
			nodestest.InState(mcfgv1.NodeStateDegraded, "\x1b[31mevil")(n)
		})))
	f.Accept([]string{view.IssueNodeFailed})
	var out strings.Builder
	require.NoError(t, f.Text(&out))
	assert.Equal(t, `Pool worker: b, image 222222222222; 0 of 3 nodes have it
  nodes: 3 not known yet

Moves
  STEP  EARLIEST              NODES                AFTER
  1     now                   n-0 (not known yet)  a slot
  2     2026-11-23T20:05:00Z  n-1 (reboot)         a slot

Issues
  NodeFailed (accepted): Node n-2
    its update failed:  [31mevil
    fix: kubectl get machineconfignode n-2 -o yaml
`, out.String())
}
