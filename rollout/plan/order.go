package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/words"
)

// settleTime is how long a new configuration waits before a pool goes that other pools go before:
// the status of those may not know yet that they have a new one too.
const settleTime = 10 * time.Second

// Wait is why no node may start to change yet.
type Wait struct {
	// Reason reads on after a node's name; empty where nothing is waited for.
	Reason string
	// Until is when that changes although nothing in the cluster does; zero where it does not.
	Until time.Time
}

// After says which of the pools in spec.rollout.afterPools a pool waits for, first the one that is
// named first. rendered is when the configuration of the pool was made. An error is that pools wait
// for each other.
func After(pool *mcfgv1.MachineConfigPool, all []*mcfgv1.MachineConfigPool, rendered, now time.Time) (Wait, error) {
	names := afterPools(pool)
	if len(names) == 0 {
		return Wait{}, nil
	}
	byName := map[string]*mcfgv1.MachineConfigPool{}
	for _, p := range all {
		byName[p.Name] = p
	}
	if goesBefore(byName, pool.Name, names) {
		return Wait{}, fmt.Errorf("afterPools: pool %s waits for itself, through %s: remove one of the names", pool.Name, strings.Join(names, ", "))
	}
	for _, name := range names {
		if why := notDone(byName[name]); why != "" {
			return Wait{Reason: fmt.Sprintf(words.WaitsForPool+"%s: %s", name, why)}, nil
		}
	}
	if until := rendered.Add(settleTime); now.Before(until) {
		return Wait{Reason: fmt.Sprintf("waits to see whether pool %s has a new configuration too", names[0]), Until: until}, nil
	}
	return Wait{}, nil
}

// afterPools are the pools that go before a pool.
func afterPools(pool *mcfgv1.MachineConfigPool) []string {
	if pool == nil || pool.Spec.Rollout == nil {
		return nil
	}
	return pool.Spec.Rollout.AfterPools
}

// goesBefore reports whether one of the named pools waits for a pool, or for one that does.
func goesBefore(all map[string]*mcfgv1.MachineConfigPool, pool string, names []string) bool {
	seen := map[string]bool{}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if name == pool {
			return true
		}
		if !seen[name] {
			seen[name] = true
			names = append(slices.Clone(names), afterPools(all[name])...)
		}
	}
	return false
}

// notDone says what a pool still has to do; empty where all its nodes are updated and healthy.
func notDone(pool *mcfgv1.MachineConfigPool) string {
	if pool == nil {
		return "there is no such MachineConfigPool: correct spec.rollout.afterPools"
	}
	i := slices.IndexFunc(pool.Status.Conditions, func(c mcfgv1.MachineConfigPoolCondition) bool {
		return c.Type == mcfgv1.PoolUpdated
	})
	switch {
	case pool.Status.ObservedGeneration < pool.Generation || i < 0:
		return "it was changed just now"
	case pool.Status.Conditions[i].Reason == mcfgv1.ReasonNoNodes:
		return ""
	case pool.Status.Conditions[i].Status != corev1.ConditionTrue:
		return pool.Status.Conditions[i].Message
	case pool.Status.Rollout == nil || pool.Status.Rollout.UpdatedMachineCount < pool.Status.MachineCount:
		return "not all of its nodes are healthy"
	}
	return ""
}
