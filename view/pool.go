package view

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
)

// poolView is what the items of one pool are made of.
type poolView struct {
	*cluster
	pool *mcfgv1.MachineConfigPool
	// config is its MachineOSConfig; nil where it has none, or that is being deleted.
	config *mcfgv1.MachineOSConfig
	// target is what nodes should have, image what they stage for it, wanted both in words.
	target nodes.Target
	image  string
	wanted string
	lines  lines
}

func (c *cluster) pool(pool *mcfgv1.MachineConfigPool) Item {
	p := &poolView{cluster: c, pool: pool, config: c.configOf(pool.Name)}
	if p.config != nil {
		c.isShown[p.config.Name] = true
	}
	p.target, p.image = p.wants()
	rollout := pool.Status.Rollout
	if rollout == nil {
		rollout = &mcfgv1.RolloutStatus{}
	}
	if p.wanted = describe(p.target); pool.Status.Rollout != nil && rollout.TargetConfiguration == "" {
		p.wanted = p.target.Config // the image is not known yet
	}
	p.lines = readLines(rollout.WaitingFor, c.members[pool.Name])
	item := Item{
		Kind: KindPool, Names: []string{pool.Name}, Wanted: p.wanted, Step: rollout.Summary, Stream: pool.Status.OSImageStream.Name,
		Image: shortOf(p.target.Image), Total: len(c.members[pool.Name]),
	}
	item.Items = slices.Concat(p.configItems(), p.conditionItems(), p.nodeItems(&item.Updated))
	p.assess(&item)
	return item
}

// configOf is the MachineOSConfig of a pool: it has the pool's name.
func (c *cluster) configOf(pool string) *mcfgv1.MachineOSConfig {
	for i := range c.Configs {
		if config := &c.Configs[i]; config.Name == pool && config.DeletionTimestamp.IsZero() {
			return config
		}
	}
	return nil
}

// wants is what the nodes should have, and what they stage for it. Nodes of a pool without images
// of its own have none beside that of their configuration.
func (p *poolView) wants() (nodes.Target, string) {
	r := p.pool.Status.Rollout
	if r == nil || r.TargetConfiguration == "" {
		t := nodes.TargetOf(p.pool, p.Images)
		return t, t.Image
	}
	t := nodes.Target{Config: r.TargetConfiguration}
	if p.config != nil || p.pool.Spec.MachineOSImage != "" {
		t.Image = string(r.TargetImagePullSpec)
	}
	return t, string(r.TargetImagePullSpec)
}

// assess says how the pool is, by its conditions, its items and what the controller wrote.
func (p *poolView) assess(item *Item) {
	worst := Done
	var because []string
	for i := range item.Items {
		if of := &item.Items[i]; of.Assessment > worst {
			worst, item.Next, item.Command = of.Assessment, of.Next, of.Command
			if because = of.WaitsFor; of.Kind == KindNode {
				because = nil // the summary has it
			}
		}
	}
	for _, reason := range p.lines.all {
		m := meaningOf(reason)
		if m.assessment > worst {
			worst, item.Next = m.assessment, m.next
			item.Command = m.commandFor(&subject{pool: p.pool.Name, namespace: p.namespace(), reason: reason})
		}
	}
	item.Assessment = worst
	because = p.assessConditions(item, because)
	if updated := p.condition(mcfgv1.PoolUpdated); updated != nil {
		item.Since = updated.LastTransitionTime.Time
		item.Step = cmp.Or(item.Step, updated.Message)
	}
	if len(item.WaitsFor) == 0 {
		item.WaitsFor = because
	}
}

// assessConditions adds what the pool's own conditions say, and gives the reason that counts now.
func (p *poolView) assessConditions(item *Item, because []string) []string {
	updated := p.condition(mcfgv1.PoolUpdated)
	item.WaitsFor = slices.DeleteFunc(slices.Clone(p.lines.ofPool), func(line string) bool { return line == item.Step })
	if c := p.condition(mcfgv1.PoolRolloutDegraded); c != nil && c.Status == corev1.ConditionTrue {
		item.WaitsFor = append(item.WaitsFor, c.Message)
		if item.Assessment < Degraded {
			item.Assessment, item.Next = Degraded, You
		}
		item.Command = resume(&subject{pool: p.pool.Name})
		if c.Reason != mcfgv1.ReasonRolloutHalted {
			item.Command = describePool(&subject{pool: p.pool.Name})
		}
	}
	if c := p.condition(mcfgv1.ConditionStalled); c != nil && c.Status == corev1.ConditionTrue && item.Assessment < Held {
		item.Assessment, item.Next, item.Command, because = Degraded, You, describePool(&subject{pool: p.pool.Name}), texts(c.Message)
	}
	if p.pool.Status.ObservedGeneration > 0 && p.pool.Status.ObservedGeneration < p.pool.Generation {
		item.Assessment, item.Next, item.Command, item.WaitsFor, because = Waiting, Controller, "", nil, []string{changedSince}
	}
	if item.Assessment == Done && (updated == nil || updated.Status != corev1.ConditionTrue && updated.Reason != mcfgv1.ReasonNoNodes) {
		item.Assessment, item.Next = Waiting, Controller
	}
	return because
}

func (p *poolView) condition(conditionType mcfgv1.MachineConfigPoolConditionType) *mcfgv1.MachineConfigPoolCondition {
	i := slices.IndexFunc(p.pool.Status.Conditions, func(c mcfgv1.MachineConfigPoolCondition) bool { return c.Type == conditionType })
	if i < 0 {
		return nil
	}
	return &p.pool.Status.Conditions[i]
}
