package states

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/view"
)

// Of is the state of a cluster.
func Of(o *view.Objects) *metrics.State {
	s := &metrics.State{Objects: objects(o), Conditions: conditions(o), LayeredNodes: layered(o), Configs: len(o.Configs)}
	for i := range o.Configs {
		s.Builds = append(s.Builds, builds(o.Configs[i].Name, o.Builds))
	}
	return s
}

// objects counts what the command's status shows. The step of a pool is what happens in it, as free
// text, and that of its parts says the same.
func objects(o *view.Objects) []metrics.Objects {
	counts := map[metrics.Objects]int{}
	count := func(pool string, i *view.Item) {
		key := metrics.Objects{Pool: pool, Kind: i.Kind, Assessment: i.Assessment.String(), Step: cmp.Or(i.Step, mcfgv1.ReasonNotYetObserved)}
		if i.Kind == view.KindPool {
			key.Step = ""
		}
		counts[key] += len(i.Names)
	}
	tree := view.Of(o)
	for i := range tree.Items {
		item, pool := &tree.Items[i], ""
		if item.Kind == view.KindPool || item.Kind == view.KindConfig {
			pool = item.Names[0]
		}
		count(pool, item)
		for j := range item.Items {
			count(pool, &item.Items[j])
		}
	}
	out := make([]metrics.Objects, 0, len(counts))
	for key, n := range counts {
		key.Count = n
		out = append(out, key)
	}
	return out
}

// troubles are reasons that someone has to know of, whatever else happens.
var troubles = []string{
	// Of MachineConfigNodes.
	mcfgv1.ReasonUpdateFailed, mcfgv1.ReasonConfigDrift, mcfgv1.ReasonDrainBlocked, mcfgv1.ReasonDrainOverdue, mcfgv1.ReasonRebootOverdue,
	mcfgv1.ReasonStagingFailed, mcfgv1.ReasonUnstagingFailed, mcfgv1.ReasonPreparingFailed, mcfgv1.ReasonApplyingFailed,
	mcfgv1.ReasonLockUnsupported, mcfgv1.ReasonLockingFailed,
	mcfgv1.ReasonUnsuitableHost, mcfgv1.ReasonKernelArgumentsUnsupported, mcfgv1.ReasonUnstagingUnsupported, mcfgv1.ReasonLocalPackages,
	mcfgv1.ReasonReadOnlyHost, mcfgv1.ReasonUsrUnlocked,
	// Of MachineOSImages.
	mcfgv1alpha1.ReasonSigningFailed, mcfgv1alpha1.ReasonAttestationFailed, mcfgv1alpha1.ReasonWaitingForKey, mcfgv1alpha1.ReasonInvalidKey,
	mcfgv1alpha1.ReasonNotSigned, mcfgv1alpha1.ReasonNotTrusted, mcfgv1alpha1.ReasonImageGone, mcfgv1alpha1.ReasonUnreachable,
	mcfgv1alpha1.ReasonWaitingForTrustPolicy, mcfgv1alpha1.ReasonInvalidTrustPolicy,
	mcfgv1alpha1.ReasonVerificationFailed, mcfgv1alpha1.ReasonInvalidVerification, mcfgv1alpha1.ReasonVerificationUnavailable,
	// Of the MachineConfiguration.
	operatorv1.ReasonBootImageUpdateFailed, operatorv1.ReasonClusterBootImageSkewError,
}

// summaries repeat the reasons of other conditions.
var summaries = []string{mcfgv1.ConditionReady, mcfgv1.ConditionReconciling, mcfgv1.ConditionStalled}

func conditions(o *view.Objects) []metrics.Conditions {
	counts := map[metrics.Conditions]int{}
	count := func(pool, kind string, all []metav1.Condition) {
		for i := range all {
			c := &all[i]
			if slices.Contains(troubles, c.Reason) && !slices.Contains(summaries, c.Type) {
				counts[metrics.Conditions{Pool: pool, Kind: kind, Condition: c.Type, Reason: c.Reason}]++
			}
		}
	}
	for i := range o.Reports {
		count(o.Reports[i].Spec.Pool.Name, "MachineConfigNode", o.Reports[i].Status.Conditions)
	}
	for i := range o.Images {
		count(o.Images[i].Spec.MachineConfigPool, view.KindImage, o.Images[i].Status.Conditions)
	}
	for i := range o.Machines {
		count("", view.KindMachines, o.Machines[i].Status.Conditions)
	}
	out := make([]metrics.Conditions, 0, len(counts))
	for key, n := range counts {
		key.Count = n
		out = append(out, key)
	}
	return out
}

// layered counts the nodes that run an image of their pool.
func layered(o *view.Objects) map[string]int {
	counts, selectors := make(map[string]int, len(o.Pools)), o.Selectors()
	for i := range o.Pools {
		counts[o.Pools[i].Name] = 0
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if pool := nodes.PoolOf(selectors.Selecting(n.Labels)); pool != "" && n.Annotations[mcfgv1.AnnotationCurrentImage] != "" {
			counts[pool]++
		}
	}
	return counts
}

// builds are those of a MachineOSConfig, which has the name of its pool.
func builds(config string, all []mcfgv1.MachineOSBuild) metrics.PoolBuilds {
	out := metrics.PoolBuilds{Pool: config}
	var newest, pushed *mcfgv1.MachineOSBuild
	for i := range all {
		b := &all[i]
		if b.Spec.MachineOSConfig.Name != config {
			continue
		}
		if stage := status.BuildStageOf(b.Status.Conditions); stage == mcfgv1.BuildStagePrepared || stage == mcfgv1.BuildStageBuilding {
			out.Active++
		}
		if newest == nil || cmp.Or(b.CreationTimestamp.Compare(newest.CreationTimestamp.Time), cmp.Compare(b.Name, newest.Name)) > 0 {
			newest = b
		}
		if end := pushOf(b); end != "" && (pushed == nil || pushed.Status.BuildEnd.Before(b.Status.BuildEnd)) {
			pushed, out.Push = b, end
		}
	}
	if newest == nil {
		return out
	}
	out.HasBuild, out.Stage = true, status.BuildStageOf(newest.Status.Conditions)
	out.Started, out.Ended = seconds(newest.Status.BuildStart), seconds(newest.Status.BuildEnd)
	return out
}

// pushOf is how the push of a build ended; empty where it pushed nothing.
func pushOf(b *mcfgv1.MachineOSBuild) string {
	if b.Status.BuildEnd == nil {
		return ""
	}
	reasonOf := func(conditionType string) string {
		if c := status.Find(b.Status.Conditions, conditionType); c != nil && c.Status == metav1.ConditionTrue {
			return c.Reason
		}
		return ""
	}
	switch {
	case reasonOf(mcfgv1.BuildFailed) == mcfgv1.ReasonPushDenied:
		return metrics.PushFailed
	case slices.Contains([]string{mcfgv1.ReasonBuilt, mcfgv1.ReasonConfigAppended}, reasonOf(mcfgv1.BuildSucceeded)):
		return metrics.PushSucceeded
	}
	return ""
}

func seconds(t *metav1.Time) float64 {
	if t == nil {
		return 0
	}
	return float64(t.Unix())
}
