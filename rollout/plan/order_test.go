package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/plan"
)

// after makes a pool wait for others.
func after(names ...string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) { p.Spec.Rollout = &mcfgv1.RolloutSpec{AfterPools: names} }
}

// done is a pool of two nodes, so many of which are healthy.
func done(healthy int32) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) {
		condition(corev1.ConditionTrue, "", "")(p)
		p.Status.MachineCount, p.Status.Rollout = 2, &mcfgv1.RolloutStatus{UpdatedMachineCount: healthy}
	}
}

func condition(status corev1.ConditionStatus, reason, message string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) {
		p.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: mcfgv1.PoolUpdated, Status: status, Reason: reason, Message: message}}
	}
}

func TestAfter(t *testing.T) {
	t.Parallel()
	worker := pool("worker", after("infra"))
	tests := map[string]struct {
		pool  *mcfgv1.MachineConfigPool
		other []*mcfgv1.MachineConfigPool
		age   time.Duration
		want  plan.Wait
		err   string
	}{
		"a pool that says nothing waits for none": {pool: pool("worker"), other: []*mcfgv1.MachineConfigPool{pool("infra")}},
		"a pool that is done":                     {other: []*mcfgv1.MachineConfigPool{pool("infra", done(2))}},
		"a pool with a node that is ill": {
			other: []*mcfgv1.MachineConfigPool{pool("infra", done(1))}, want: plan.Wait{Reason: "waits for pool infra: not all of its nodes are healthy"},
		},
		"a pool that is being updated": {
			other: []*mcfgv1.MachineConfigPool{pool("infra", condition(corev1.ConditionFalse, "Progressing", "1 of 2 nodes are updated"))},
			want:  plan.Wait{Reason: "waits for pool infra: 1 of 2 nodes are updated"},
		},
		"a pool without nodes":        {other: []*mcfgv1.MachineConfigPool{pool("infra", condition(corev1.ConditionFalse, mcfgv1.ReasonNoNodes, "none"))}},
		"a pool that does not exist":  {want: plan.Wait{Reason: "waits for pool infra: there is no such MachineConfigPool: correct spec.rollout.afterPools"}},
		"a pool that no one has seen": {other: []*mcfgv1.MachineConfigPool{pool("infra")}, want: plan.Wait{Reason: "waits for pool infra: it was changed just now"}},
		"a pool whose status is of an older spec": {
			other: []*mcfgv1.MachineConfigPool{pool("infra", done(2), func(p *mcfgv1.MachineConfigPool) { p.Generation = 2 })},
			want:  plan.Wait{Reason: "waits for pool infra: it was changed just now"},
		},
		"a configuration that was made just now": {
			other: []*mcfgv1.MachineConfigPool{pool("infra", done(2))}, age: 4 * time.Second,
			want: plan.Wait{Reason: "waits to see whether pool infra has a new configuration too", Until: t0.Add(6 * time.Second)},
		},
		"pools that wait for each other": {
			other: []*mcfgv1.MachineConfigPool{pool("infra", after("storage")), pool("storage", after("worker"))},
			err:   "afterPools: pool worker waits for itself, through infra: remove one of the names",
		},
		"pools that wait for each other and not for this one": {
			other: []*mcfgv1.MachineConfigPool{pool("infra", after("storage"), done(1)), pool("storage", after("infra"))},
			want:  plan.Wait{Reason: "waits for pool infra: not all of its nodes are healthy"},
		},
		"a pool that waits for itself": {pool: pool("worker", after("worker")), err: "afterPools: pool worker waits for itself, through worker: remove one of the names"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := tt.pool
			if p == nil {
				p = worker
			}
			if tt.age == 0 {
				tt.age = time.Hour
			}
			got, err := plan.After(p, append(tt.other, p), t0.Add(-tt.age), t0)
			assert.Equal(t, tt.want, got)
			if tt.err == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, tt.err)
			}
		})
	}
}

func TestNodesStageWhileTheirPoolWaits(t *testing.T) {
	t.Parallel()
	wait := plan.Wait{Reason: "waits for pool infra: 1 of 2 nodes are updated", Until: t0.Add(time.Second)}
	p := plan.Decide(plan.Input{
		Pool: pool("worker"), Target: to(), Image: to().Image, Wait: wait, Now: t0, Nodes: []plan.Node{node("a"), node("b", staged), node("c", asked)},
	})
	assert.Equal(t, []string{"Stage a: it does not hold the image yet", "b: " + wait.Reason, "c: is changing"}, said(p))
	assert.Equal(t, wait.Until, p.Next)
}
