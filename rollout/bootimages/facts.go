package bootimages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	openshiftv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
	"github.com/layerwright/layerwright/rollout/bootimages/skew"
	"github.com/layerwright/layerwright/streams"
)

// ConfigMapName is the ConfigMap with the boot images, in Layerwright's namespace.
const ConfigMapName = "coreos-bootimages"

// MachineConfigurationName is the one MachineConfiguration there is.
const MachineConfigurationName = operatorv1.MachineConfigurationName

// Kinds of OpenShift that say what cluster this is.
var (
	clusterVersionKind = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterVersion"}
	infrastructureKind = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "Infrastructure"}
)

// facts are what all resources depend on.
type facts struct {
	// config is the MachineConfiguration; nil where there is none, and then nothing is touched.
	config   *operatorv1.MachineConfiguration
	managers operatorv1.ManagedBootImages
	platform string
	// isSingleNode reports whether the control plane has one node, by the topology of OpenShift.
	isSingleNode bool
	// images are the boot images; nil where problem says why there are none.
	images *plan.BootImages
	// version is that of the ConfigMap.
	version int64
	// idle is why there is nothing to do; problem why there is, and it can't be done.
	idle, problem string
	// unstable is why nothing is changed yet.
	unstable string
	// late is what the cluster should bring about by itself, and has not yet; from lateAt on that
	// is a failure.
	late   string
	lateAt time.Time
	limits skew.Limits
	// architecture and region are those of the nodes, controlPlane is the architecture of its
	// nodes; empty where there are several.
	architecture, controlPlane, region string
	// install is the release that the cluster was installed with; empty where that is not known.
	install string
	// installed is the oldest boot image that a node of the control plane was installed from; empty
	// where none says it.
	installed string
	selectors *nodes.Selectors
	streams   map[string]string
	main      string // default stream
}

// world gathers facts, and keeps them until something changes that they are made of.
type world struct {
	cache  client.Reader // of the manager
	reader client.Reader // past the cache
	// namespace of the ConfigMap.
	namespace string
	has       struct{ clusterVersion, infrastructure bool }
	clock     clock.PassiveClock
	// degradeAfter is how long the ConfigMap may be missing where the release brings it.
	degradeAfter time.Duration

	mu    sync.Mutex
	known *facts
	// late is what facts.late said last, since lateSince.
	late      string
	lateSince time.Time
}

// updateTakes is the longest that an update of OpenShift may take to reach a node of the control
// plane. Most take one or two hours.
const updateTakes = 4 * time.Hour

// invalidate has the facts be gathered anew. Watches call it after the cache has what changed.
func (w *world) invalidate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = nil
}

// facts are those of now. They are shared: no one may change them.
func (w *world) facts(ctx context.Context) (*facts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known != nil {
		return w.known, nil
	}
	f, err := w.gather(ctx)
	if err != nil {
		return nil, err
	}
	w.known = f
	return f, nil
}

func (w *world) gather(ctx context.Context) (*facts, error) {
	f := &facts{streams: map[string]string{}, limits: skew.Floor()}
	config := &operatorv1.MachineConfiguration{}
	err := w.cache.Get(ctx, client.ObjectKey{Name: MachineConfigurationName}, config)
	if apierrors.IsNotFound(err) {
		f.idle = fmt.Sprintf("there is no MachineConfiguration %q", MachineConfigurationName)
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the MachineConfiguration: %w", err)
	}
	f.config = config
	if config.Spec.ManagementState == openshiftv1.Unmanaged || config.Spec.ManagementState == openshiftv1.Removed {
		f.idle = fmt.Sprintf("spec.managementState is %s", config.Spec.ManagementState)
	}
	cloud, err := w.readPlatform(ctx, f)
	if err != nil {
		return nil, err
	}
	f.managers = plan.Managers(config.Spec.ManagedBootImages, f.platform, cloud)
	if err := w.readPools(ctx, f); err != nil {
		return nil, err
	}
	at, err := w.readPlace(ctx)
	if err != nil {
		return nil, err
	}
	f.architecture, f.controlPlane, f.region, f.installed = at.architecture, at.controlPlane, cmp.Or(f.region, at.region), at.installed
	if err := w.readImages(ctx, f); err != nil {
		return nil, err
	}
	if err := w.readProgress(ctx, f); err != nil {
		return nil, err
	}
	w.noteLate(f)
	return f, nil
}

// noteLate finds out since when something is late.
func (w *world) noteLate(f *facts) {
	allowed := w.degradeAfter
	if f.late == "" && w.has.clusterVersion {
		f.late, allowed = f.unstable, updateTakes
	}
	if f.late != w.late {
		w.late, w.lateSince = f.late, w.clock.Now()
	}
	f.lateAt = w.lateSince.Add(allowed)
}

// overdue is what has been late for too long; empty where nothing has.
func (f *facts) overdue(now time.Time) string {
	if f.late == "" || now.Before(f.lateAt) {
		return ""
	}
	return f.late + ", and this has lasted too long; look at the conditions of ClusterVersion \"version\""
}

// readPlatform finds out which cloud the cluster is in.
func (w *world) readPlatform(ctx context.Context, f *facts) (cloud string, err error) {
	if !w.has.infrastructure {
		return "", nil
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(infrastructureKind)
	if err := w.cache.Get(ctx, client.ObjectKey{Name: "cluster"}, o); client.IgnoreNotFound(err) != nil { //nolint:gocritic // what is not found is no error
		return "", fmt.Errorf("reading Infrastructure %q: %w", "cluster", err)
	}
	f.platform, _, _ = unstructured.NestedString(o.Object, "status", "platformStatus", "type")
	cloud, _, _ = unstructured.NestedString(o.Object, "status", "platformStatus", "azure", "cloudName")
	topology, _, _ := unstructured.NestedString(o.Object, "status", "controlPlaneTopology")
	f.isSingleNode = topology == "SingleReplica"
	f.region, _, _ = unstructured.NestedString(o.Object, "status", "platformStatus", "aws", "region")
	return cloud, nil
}

// readPools finds out which stream each pool is on.
func (w *world) readPools(ctx context.Context, f *facts) error {
	var pools mcfgv1.MachineConfigPoolList
	if err := w.cache.List(ctx, &pools); err != nil {
		return fmt.Errorf("listing pools: %w", err)
	}
	var each []*mcfgv1.MachineConfigPool
	for i := range pools.Items {
		pool := &pools.Items[i]
		each = append(each, pool)
		if inUse := streams.InUse(pool); len(inUse) > 0 {
			f.streams[pool.Name] = inUse[0]
		}
	}
	f.selectors = nodes.NewSelectors(each)
	set := &mcfgv1.OSImageStream{}
	if err := w.cache.Get(ctx, client.ObjectKey{Name: mcfgv1.OSImageStreamName}, set); client.IgnoreNotFound(err) != nil { //nolint:gocritic // what is not found is no error
		return fmt.Errorf("reading the OSImageStream: %w", err)
	}
	f.main = set.Status.DefaultStream
	limits, err := skew.ParseLimits(set.Annotations[mcfgv1.AnnotationBootImageSkewLimits])
	if err != nil {
		f.problem = fmt.Sprintf("annotation %s of OSImageStream %q cannot be used: %v", mcfgv1.AnnotationBootImageSkewLimits, mcfgv1.OSImageStreamName, err)
	}
	f.limits = limits
	return nil
}

// place is the architecture and the region that all nodes have in common, and the architecture of
// those of the control plane, empty where there are several, and the oldest boot image that a node
// of the control plane was installed from, empty where none says it.
type place struct{ architecture, controlPlane, region, installed string }

func placeOf(o client.Object) place {
	labels := o.GetLabels()
	is := place{architecture: labels[corev1.LabelArchStable], region: labels[corev1.LabelTopologyRegion]}
	_, isMaster := labels[nodes.KeyMaster]
	_, isControlPlane := labels[nodes.KeyControlPlane]
	if isMaster || isControlPlane {
		is.controlPlane = is.architecture
		if version := o.GetAnnotations()[mcfgv1.AnnotationBootImageVersion]; plan.IsRHCOS(version) {
			is.installed = version
		}
	}
	return is
}

// readPlace finds out what all nodes have in common.
func (w *world) readPlace(ctx context.Context) (place, error) {
	var list corev1.NodeList
	if err := w.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return place{}, fmt.Errorf("listing nodes: %w", err)
	}
	all := make([]place, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, placeOf(&list.Items[i]))
	}
	common := func(of func(place) string) string {
		value := ""
		for _, each := range all {
			switch is := of(each); {
			case is == "" || is == value:
			case value != "":
				return ""
			default:
				value = is
			}
		}
		return value
	}
	is := place{
		architecture: common(func(p place) string { return p.architecture }), controlPlane: common(func(p place) string { return p.controlPlane }),
		region: common(func(p place) string { return p.region }),
	}
	for _, each := range all {
		if is.installed == "" || each.installed == "" {
			is.installed = cmp.Or(is.installed, each.installed)
			continue
		}
		is.installed = skew.Oldest(skew.BootImage{RHCOSVersion: is.installed}, skew.BootImage{RHCOSVersion: each.installed}).RHCOSVersion
	}
	return is, nil
}

// readImages reads the ConfigMap, past the cache, which knows no contents.
func (w *world) readImages(ctx context.Context, f *facts) error {
	configMap := &corev1.ConfigMap{}
	err := w.reader.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: ConfigMapName}, configMap)
	if apierrors.IsNotFound(err) {
		missing := fmt.Sprintf("there is no ConfigMap %q in namespace %q, which has the boot images", ConfigMapName, w.namespace)
		if w.has.clusterVersion {
			f.late = missing + " and comes with each release"
		} else {
			f.idle = cmp.Or(f.idle, missing)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ConfigMap %q: %w", ConfigMapName, err)
	}
	// The API server keeps no generation of ConfigMaps; resource versions are numbers that grow.
	f.version, _ = strconv.ParseInt(configMap.ResourceVersion, 10, 64)
	images, parseErr := plan.Parse(configMap.Data, streams.EnterpriseMajor, streams.Variant)
	f.images = images
	limits, limitsErr := skew.ParseLimits(configMap.Data[skew.KeyLimits])
	if limitsErr != nil {
		limitsErr = fmt.Errorf("reading key %q: %w", skew.KeyLimits, limitsErr)
	}
	f.limits = skew.Stricter(f.limits, limits)
	if err := errors.Join(parseErr, limitsErr); err != nil {
		f.problem = cmp.Or(f.problem, fmt.Sprintf("ConfigMap %q cannot be used: %v", ConfigMapName, err))
	}
	return nil
}

// readProgress finds out whether the cluster is where the boot images are.
func (w *world) readProgress(ctx context.Context, f *facts) error {
	p := plan.Progress{HasClusterVersion: w.has.clusterVersion}
	if w.has.clusterVersion {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(clusterVersionKind)
		if err := w.cache.Get(ctx, client.ObjectKey{Name: "version"}, o); client.IgnoreNotFound(err) != nil { //nolint:gocritic // what is not found is no error
			return fmt.Errorf("reading ClusterVersion %q: %w", "version", err)
		}
		p.IsCompleted, p.Desired, f.install = progressOf(o)
	} else {
		pool := &mcfgv1.MachineConfigPool{}
		err := w.cache.Get(ctx, client.ObjectKey{Name: mcfgv1.PoolMaster}, pool)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading pool %q: %w", mcfgv1.PoolMaster, err)
		}
		if err == nil {
			p.ControlPlane = pool
		}
	}
	if f.images != nil {
		f.unstable = plan.Unstable(p, f.images)
	}
	return nil
}

// progressOf reads a ClusterVersion: whether its newest update is done, the release it is to have,
// and the one it was installed with.
func progressOf(o *unstructured.Unstructured) (isCompleted bool, desired, install string) {
	desired, _, _ = unstructured.NestedString(o.Object, "status", "desired", "version")
	history, _, _ := unstructured.NestedSlice(o.Object, "status", "history")
	for i, each := range history { // the newest first
		entry, _ := each.(map[string]any)
		if entry["state"] == "Completed" {
			isCompleted = isCompleted || i == 0
			version, _ := entry["version"].(string)
			install, _, _ = strings.Cut(version, "-") // status takes no candidates and nightlies
		}
	}
	return isCompleted, desired, install
}

// poolOf is the pool that the machines of a resource will join: what selects the labels of their
// nodes, else the one that the name of their user data says, else the one for all others.
func (f *facts) poolOf(r *resource) string {
	if len(r.nodeLabels) > 0 {
		if pool := nodes.PoolOf(f.selectors.Selecting(r.nodeLabels)); pool != "" {
			return pool
		}
	}
	if r.id.kind.resource == operatorv1.ControlPlaneMachineSets {
		return mcfgv1.PoolMaster
	}
	for pool := range f.streams {
		if r.userData == pool+userDataSuffix || r.userData == pool+userDataSuffix+managedSuffix {
			return pool
		}
	}
	return mcfgv1.PoolWorker
}

// architectureOf is the one of the nodes that the machines of a resource will be beside. Those of
// the control plane have one also where workers have several.
func (f *facts) architectureOf(r *resource) string {
	if f.poolOf(r) == mcfgv1.PoolMaster {
		return cmp.Or(f.controlPlane, f.architecture)
	}
	return f.architecture
}

// streamOf is the stream of the pool that the machines of a resource will join.
func (f *facts) streamOf(r *resource) string {
	return cmp.Or(f.streams[f.poolOf(r)], f.main)
}

// Secrets with stubs are named after their pool; the ones that the machine-config-operator keeps
// have another suffix.
const (
	userDataSuffix = "-user-data"
	managedSuffix  = "-managed"
)

// recheck is how soon what no watch tells about is looked at again.
const recheck = 10 * time.Minute
