package bootimages

import (
	"cmp"
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
	if left := f.lateAt.Sub(v.clock.Now()); f.late != "" && left > 0 {
		is.sooner(left)
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
	kinds   map[string]*tally
	waiting []string // why some wait
	failed  []string // those that have failed for long
	skipped []string // why some are skipped
	unseen  int      // resources that have not been looked at
	// oldest is the oldest boot image that machines of MachineSets of the Machine API start with.
	oldest skew.BootImage
	// after is when a resource will have failed for long.
	after time.Duration
}

// tally counts the resources of a kind: all that should be managed and, of those, the ones that
// need nothing more, that are skipped, and that have failed for long.
type tally struct{ all, done, skipped, failed int }

// sooner notes when something will have failed for long.
func (s *sum) sooner(left time.Duration) {
	if s.after == 0 || left < s.after {
		s.after = left
	}
}

func (v *overview) sum(ctx context.Context, f *facts) (*sum, error) {
	is := &sum{kinds: map[string]*tally{}, oldest: f.firstImage()}
	for _, k := range v.kinds {
		is.kinds[k.name] = &tally{}
	}
	known := map[string]int{}
	var versions []skew.BootImage
	for _, e := range v.ledger.entries() {
		name := e.id.kind.name
		known[name]++
		v.judge(is, &e)
		if e.id.kind == v.kinds[0] && e.state != metrics.BootImageUnmanaged {
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
			is.kinds[k.name].all += unseen
			is.waiting = append(is.waiting, fmt.Sprintf("%d %s have not been looked at", unseen, k.name))
		}
	}
	return is, nil
}

// judge counts a resource.
func (v *overview) judge(is *sum, e *entry) {
	of := is.kinds[e.id.kind.name]
	if e.state != metrics.BootImageUnmanaged {
		of.all++
	}
	switch e.state {
	case metrics.BootImageUnmanaged:
	case metrics.BootImageUpToDate:
		of.done++
	case metrics.BootImageSkipped:
		of.skipped++
		is.skipped = append(is.skipped, e.id.String()+": "+e.message)
	case metrics.BootImageFailed:
		left := v.options.DegradeAfter - v.clock.Since(e.since)
		if left > 0 && e.reason != plan.ReasonHotLoop {
			is.sooner(left)
			is.waiting = append(is.waiting, e.id.String()+" is tried again: "+e.message)
			return
		}
		of.failed++
		is.failed = append(is.failed, asPublished(e))
	default:
		is.waiting = append(is.waiting, e.id.String()+": "+e.message)
	}
}

// asPublished is the error of a resource, in the words that OpenShift's users and tests look for.
func asPublished(e *entry) string {
	kind, name := e.id.kind.groupKind.Kind, e.id.Name
	if e.id.Namespace != machineAPINamespace {
		name = e.id.Namespace + "/" + name
	}
	if e.id.kind.name == "MAPI MachineSets" {
		kind = strings.ToLower(kind)
	}
	return fmt.Sprintf("error syncing %s %s: failed to reconcile %s %s, err: %s", strings.TrimSuffix(e.id.kind.name, "s"), name, kind, name, e.message)
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

	now, generation := v.clock.Now(), config.Generation
	degraded := cmp.Or(f.problem, f.overdue(now), named(is.failed))
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
	progress, failures := v.progress(f, is), v.failures(is, degraded)
	set(operatorv1.BootImageUpdateProgressing, f.idle == "" && len(is.waiting) > 0, operatorv1.ReasonBootImagesUpdating, quiet, progress)
	set(operatorv1.BootImageUpdateDegraded, f.idle == "" && degraded != "", operatorv1.ReasonBootImageUpdateFailed, quiet, failures)
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
		of := is.kinds[k.name]
		count := fmt.Sprintf("Reconciled %d of %d %s", of.done, of.all, k.name)
		if of.skipped > 0 {
			count += fmt.Sprintf(" (%d skipped)", of.skipped)
		}
		counts = append(counts, count)
	}
	message := strings.Join(counts, " | ")
	if len(is.skipped) > 0 {
		message += "; skipped: " + named(is.skipped)
	}
	if len(is.skipped) > maxNamed {
		message += " (metric layerwright_boot_image_skipped has all)"
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

// failures is the published message of what has failed, and why.
func (v *overview) failures(is *sum, degraded string) string {
	var counts []string
	for _, k := range v.kinds {
		counts = append(counts, fmt.Sprintf("%d Degraded %s", is.kinds[k.name].failed, k.name))
	}
	message := strings.Join(counts, " | ")
	if degraded != "" {
		message += " | Error(s): " + degraded
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
