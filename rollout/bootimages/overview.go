package bootimages

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	openshiftv1 "github.com/openshift/api/operator/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
	"github.com/layerwright/layerwright/rollout/bootimages/skew"
)

// maxNamed is how many resources a message names.
const maxNamed = 5

// overview writes the status of the MachineConfiguration, from what came of each resource.
type overview struct {
	kinds   []*kind
	options Options
	clock   clock.PassiveClock
	client  client.Client
	cache   client.Reader
	world   *world
	ledger  *ledger
	// hasSeenAll reports whether every resource has been looked at since the start.
	hasSeenAll bool
}

// Reconcile reconciles the MachineConfiguration.
func (v *overview) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	config := &operatorv1.MachineConfiguration{}
	if err := v.client.Get(ctx, req.NamespacedName, config); err != nil || config.Name != MachineConfigurationName {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	f, err := v.world.facts(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if f.config == nil || f.config.ResourceVersion != config.ResourceVersion && f.config.Generation != config.Generation {
		v.world.invalidate() // the MachineConfiguration is newer than the facts
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if err := v.noteOptIn(ctx, config, f); err != nil {
		return status.Result(ctrl.Result{}, err)
	}
	is, err := v.sum(ctx, f)
	if err != nil {
		return ctrl.Result{}, err
	}
	// After a restart the last word stands until there is something to say.
	if v.hasSeenAll = v.hasSeenAll || is.unseen == 0; !v.hasSeenAll && status.Find(config.Status.Conditions, operatorv1.BootImagesUpgradeable) != nil {
		return ctrl.Result{RequeueAfter: settle}, nil
	}
	patch := status.NewPatcher(v.client, config)
	v.setStatus(config, f, is)
	return patch.Finish(ctx, config, ctrl.Result{RequeueAfter: is.after}, nil)
}

// noteOptIn writes when boot images began to be managed.
func (v *overview) noteOptIn(ctx context.Context, config *operatorv1.MachineConfiguration, f *facts) error {
	isIn := slices.ContainsFunc(f.managers.MachineManagers, func(m operatorv1.MachineManager) bool { return m.Selection.Mode != openshiftv1.None })
	if _, isNoted := config.Annotations[mcfgv1.AnnotationBootImageOptedInAt]; isNoted || !isIn || f.idle != "" {
		return nil
	}
	before := config.DeepCopy()
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, mcfgv1.AnnotationBootImageOptedInAt, v.clock.Now().UTC().Format(time.RFC3339))
	if err := v.client.Patch(ctx, config, client.MergeFrom(before), client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("writing when boot images began to be managed: %w", err)
	}
	return nil
}

// sum is what came of all resources.
type sum struct {
	// done and all count resources by kind: those that need nothing more, and those that are
	// managed.
	done, all map[string]int
	waiting   []string // why some wait
	failed    []string // those that have failed for long
	skipped   []string // why some are skipped
	unseen    int      // resources that have not been looked at
	// oldest is the oldest boot image that machines of MachineSets of the Machine API start with.
	oldest skew.BootImage
	// after is when a resource will have failed for long.
	after time.Duration
}

func (v *overview) sum(ctx context.Context, f *facts) (*sum, error) {
	is := &sum{done: map[string]int{}, all: map[string]int{}, oldest: f.firstImage()}
	known := map[string]int{}
	var versions []skew.BootImage
	for _, e := range v.ledger.entries() {
		name := e.id.kind.name
		known[name]++
		if e.state == metrics.BootImageSkipped {
			is.count(&e)
		} else {
			is.all[name]++
			v.judge(is, &e)
		}
		if e.id.kind == v.kinds[0] && (e.state != metrics.BootImageSkipped || e.counted) {
			versions = append(versions, versionOf(&e, f))
		}
	}
	for i, version := range versions {
		if i == 0 {
			is.oldest = version
		}
		is.oldest = skew.Oldest(is.oldest, version)
	}
	for _, k := range v.kinds {
		if k.version == "" {
			continue
		}
		list := k.newList()
		if err := v.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %s: %w", k.name, err)
		}
		there := len(list.Items)
		for i := range list.Items {
			if list.Items[i].GetDeletionTimestamp() != nil {
				there--
			}
		}
		if unseen := there - known[k.name]; unseen > 0 {
			is.unseen += unseen
			is.all[k.name] += unseen
			is.waiting = append(is.waiting, fmt.Sprintf("%d %s have not been looked at", unseen, k.name))
		}
	}
	return is, nil
}

// count counts a resource that is skipped.
func (s *sum) count(e *entry) {
	if e.counted {
		s.skipped = append(s.skipped, e.id.String()+": "+e.message)
	}
}

// judge counts a resource that is managed.
func (v *overview) judge(is *sum, e *entry) {
	switch e.state {
	case metrics.BootImageUpToDate:
		is.done[e.id.kind.name]++
	case metrics.BootImageFailed:
		left := v.options.DegradeAfter - v.clock.Since(e.since)
		if left > 0 && e.reason != plan.ReasonHotLoop {
			if is.after == 0 || left < is.after {
				is.after = left
			}
			is.waiting = append(is.waiting, e.id.String()+" is tried again: "+e.message)
			return
		}
		is.failed = append(is.failed, e.id.String()+": "+e.message)
	default:
		is.waiting = append(is.waiting, e.id.String()+": "+e.message)
	}
}

// versionOf is the boot image that machines of a resource start with: as far as that is not known,
// the one of the installation.
func versionOf(e *entry, f *facts) skew.BootImage {
	if plan.IsRHCOS(e.version) {
		return skew.BootImage{RHCOSVersion: e.version}
	}
	return f.firstImage()
}

// firstImage is the boot image of the installation.
func (f *facts) firstImage() skew.BootImage {
	return skew.BootImage{OCPVersion: f.install, RHCOSVersion: f.installed}
}

// setStatus writes what is in force, and the conditions.
func (v *overview) setStatus(config *operatorv1.MachineConfiguration, f *facts, is *sum) {
	config.Status.ManagedBootImagesStatus = f.managers
	if v.options.Policies != nil {
		config.Status.NodeDisruptionPolicyStatus.ClusterPolicies = v.options.Policies(&config.Spec.NodeDisruptionPolicy)
	}
	isManaged := slices.ContainsFunc(f.managers.MachineManagers, func(m operatorv1.MachineManager) bool {
		return m.Resource == operatorv1.MachineSets && m.APIGroup == operatorv1.MachineAPI && m.Selection.Mode == openshiftv1.All
	})
	asked := config.Spec.BootImageSkewEnforcement
	// Machines there are made by hand, if any are.
	if asked.Mode == "" && (f.isSingleNode || slices.Contains([]string{"", "BareMetal", "None"}, f.platform)) {
		asked.Mode = openshiftv1.BootImageSkewEnforcementConfigModeNone
	}
	enforcement := skew.Status(asked, isManaged && f.platform != "", is.oldest)
	if !reflect.DeepEqual(config.Status.BootImageSkewEnforcementStatus, enforcement) {
		config.Status.BootImageSkewEnforcementStatus = enforcement
	}
	v.options.Metrics.SkewEnforced(enforcement.Mode != openshiftv1.BootImageSkewEnforcementModeStatusNone)

	degraded := f.problem
	if degraded == "" {
		degraded = named(is.failed)
	}
	now, generation := v.clock.Now(), config.Generation
	conditions := config.GetConditions()
	set := func(kind string, is bool, yes, no, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: no, Message: message, ObservedGeneration: generation}
		if is {
			c.Status, c.Reason = metav1.ConditionTrue, yes
		}
		status.Set(&conditions, now, c)
	}
	quiet := operatorv1.ReasonBootImagesUpToDate
	if f.idle != "" {
		quiet = operatorv1.ReasonBootImagesIdle
	}
	progress := v.progress(f, is)
	set(operatorv1.BootImageUpdateProgressing, f.idle == "" && len(is.waiting) > 0, operatorv1.ReasonBootImagesUpdating, quiet, progress)
	set(operatorv1.BootImageUpdateDegraded, f.idle == "" && degraded != "", operatorv1.ReasonBootImageUpdateFailed, quiet, degraded)
	blocked := skew.Upgradeable(enforcement, f.limits, degraded)
	set(operatorv1.BootImagesUpgradeable, blocked == "", status.ReasonSucceeded, operatorv1.ReasonClusterBootImageSkewError, blocked)
	status.SetSummary(&conditions, now, generation, summarize(f, is, degraded, progress))
	config.SetConditions(conditions)
}

// progress is the published message, and why not all are done.
func (v *overview) progress(f *facts, is *sum) string {
	if f.idle != "" {
		return "Boot images are not managed: " + f.idle
	}
	var counts []string
	for _, k := range v.kinds {
		counts = append(counts, fmt.Sprintf("Reconciled %d of %d %s", is.done[k.name], is.all[k.name], k.name))
	}
	message := strings.Join(counts, " | ")
	if len(is.skipped) > 0 {
		message += fmt.Sprintf("; skipped %d: %s", len(is.skipped), named(is.skipped))
	}
	for _, k := range v.kinds {
		if k.version == "" && k.isSelected(f.managers) {
			message += fmt.Sprintf("; the cluster had no %s when the controller started, restart it to have them managed", k.name)
		}
	}
	if len(is.waiting) > 0 {
		message += "; " + named(is.waiting)
	}
	return fault.Cut(message)
}

// summarize is Ready, with Reconciling or Stalled.
func summarize(f *facts, is *sum, degraded, progress string) status.Summary {
	switch {
	case f.idle != "":
		return status.Summary{State: status.StateReady, Reason: operatorv1.ReasonBootImagesIdle, Message: progress}
	case degraded != "":
		return status.Summary{State: status.StateFailing, Reason: operatorv1.ReasonBootImageUpdateFailed, Message: degraded}
	case len(is.waiting) > 0:
		return status.Summary{State: status.StateReconciling, Reason: operatorv1.ReasonBootImagesUpdating, Message: progress}
	}
	return status.Summary{State: status.StateReady, Reason: operatorv1.ReasonBootImagesUpToDate, Message: progress}
}

// named are the first of several texts.
func named(texts []string) string {
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(slices.Clone(texts[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
