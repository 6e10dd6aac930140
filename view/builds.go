package view

import (
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// configItems are the MachineOSConfig of the pool, its builds, and its images of which there is
// something to say.
func (p *poolView) configItems() []Item {
	if p.config == nil {
		return p.imageItems()
	}
	item := configItem(p.config)
	items := []Item{item}
	var builds []Item
	for i := range p.Builds {
		b := &p.Builds[i]
		if b.Spec.MachineOSConfig.Name != p.config.Name || !p.isNews(b, item.Assessment == Done) {
			continue
		}
		// What failed is over when the MachineOSConfig was changed, and waits for something else.
		if build := p.build(b); build.Assessment != Degraded || item.Assessment == Degraded {
			builds = append(builds, build)
		}
	}
	for i := range builds { // a build has the same trouble, and more to show
		if builds[i].Assessment == item.Assessment && builds[i].Command != "" {
			items[0].Command = builds[i].Command
		}
	}
	return slices.Concat(items, group(builds), p.imageItems())
}

func configItem(c *mcfgv1.MachineOSConfig) Item {
	item := fromConditions(KindConfig, c, c.Status.Conditions, safe("kubectl describe machineosconfig %s", c.Name))
	if image := c.Status.CurrentImagePullSpec; image != "" {
		item.Image = image.Short()
	}
	return item
}

// isNews reports whether a build says more than its MachineOSConfig: it has not ended, or it is the
// newest one and there is no image of it.
func (p *poolView) isNews(b *mcfgv1.MachineOSBuild, isDone bool) bool {
	newest := p.config.Status.MachineOSBuild
	isNewest := newest != nil && newest.Name == b.Name
	return b.Status.BuildEnd == nil && !stageOf(b).IsFinal() || isNewest && !isDone
}

// stageOf is how far a build is.
func stageOf(b *mcfgv1.MachineOSBuild) mcfgv1.BuildStage {
	stage := mcfgv1.BuildStagePending
	for s, conditionType := range []string{mcfgv1.BuildPrepared, mcfgv1.BuildBuilding, mcfgv1.BuildFailed, mcfgv1.BuildInterrupted, mcfgv1.BuildSucceeded} {
		for i := range b.Status.Conditions {
			if c := &b.Status.Conditions[i]; c.Type == conditionType && c.Status == "True" {
				stage = max(stage, mcfgv1.BuildStage(s+1))
			}
		}
	}
	return stage
}

func (p *poolView) build(b *mcfgv1.MachineOSBuild) Item {
	item := fromConditions(KindBuild, b, b.Status.Conditions, safe("kubectl describe machineosbuild %s", b.Name))
	item.Wanted = b.Spec.MachineConfig.Name
	if b.Status.Why != "" {
		item.Wanted += ", " + b.Status.Why
	}
	stage := stageOf(b)
	switch {
	case stage == mcfgv1.BuildStageInterrupted && item.Step == mcfgv1.ReasonSuperseded:
		item.Assessment, item.Next, item.Command = Waiting, Controller, ""
	case stage == mcfgv1.BuildStageInterrupted:
		item.Command = safe("layerwright build %s --rebuild", p.pool.Name)
	case item.Assessment == Progressing && stage == mcfgv1.BuildStageBuilding, stage == mcfgv1.BuildStageFailed:
		item.Command = safe("layerwright logs %s", b.Name)
	}
	return item
}

// imageItems are the images of the pool that nodes should have and may not get.
func (p *poolView) imageItems() []Item {
	var items []Item
	for i := range p.Images {
		image := &p.Images[i]
		if image.Spec.MachineConfigPool != p.pool.Name {
			continue
		}
		isNewest := p.config != nil && image.Spec.PullSpec == p.config.Status.CurrentImagePullSpec
		if !isNewest && image.Name != p.pool.Spec.MachineOSImage && string(image.Spec.PullSpec) != p.target.Image {
			continue
		}
		item := fromConditions(KindImage, image, image.Status.Conditions, safe("kubectl describe machineosimage %s", image.Name))
		if q := image.Quarantined(); q != nil {
			item = p.quarantined(image, q)
		}
		if item.Assessment != Done {
			item.Image = image.Spec.PullSpec.Short()
			items = append(items, item)
		}
	}
	return group(items)
}

func (p *poolView) quarantined(image *mcfgv1alpha1.MachineOSImage, q *mcfgv1alpha1.ImageQuarantine) Item {
	return Item{
		Kind: KindImage, Names: []string{image.Name}, Assessment: Held, Step: stepQuarantined,
		Since: q.Since.Time, WaitsFor: []string{q.Reason + ": " + q.Message}, Next: You, Command: resume(&subject{pool: p.pool.Name}),
	}
}
