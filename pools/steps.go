package pools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/selected"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/streams"
)

// scope is what one reconcile knows. All but pool is shared with the cache, and only read.
type scope struct {
	pool *mcfgv1.MachineConfigPool

	isGathered bool
	pools      []*mcfgv1.MachineConfigPool
	configs    []*mcfgv1.MachineConfig          // what the pool's selector matches
	rendered   []*mcfgv1.MachineConfig          // what the pool owns
	inUse      map[string]*mcfgv1.MachineConfig // by name: what the pool and its nodes have
	streams    *mcfgv1.OSImageStream            // nil if there is none
	nodes      nodes.Membership
	layer      *mcfgv1.MachineOSConfig // nil if the pool has none
	isBuilt    bool                    // the newest image of layer is that of the pool's configuration
	images     []mcfgv1alpha1.MachineOSImage
	selectors  *nodes.Selectors
	observed   []nodes.Node
	onNodes    sets.Set[string] // images that nodes have, are told to have, or go back to

	// stream is the one that the pool follows; the zero Choice if it follows none, or none that it
	// can.
	stream streams.Choice
	in     inputs
	want   *outcome
}

// facts are what the pool's status is computed from.
func (s *scope) facts(now time.Time) facts {
	return facts{
		members: s.nodes.Members[s.pool.Name], disputed: s.nodes.Disputed[s.pool.Name], want: s.want, layer: s.layer, isBuilt: s.isBuilt, images: s.images,
		notices: func() []metav1.Condition {
			return []metav1.Condition{osStreamDeprecated(standings(s.streams, s.pool, now)), osStreamsMixed(s)}
		},
	}
}

// recheck is after how long the pool's status changes although nothing else does: when a date of
// one of its streams comes, or when rendering that waits is tried again.
func (s *scope) recheck(now time.Time) time.Duration {
	var after time.Duration
	if s.want != nil {
		after = fault.After(s.want.err)
	}
	at, changes := streams.NextChangeOf(s.streams, streams.InUse(s.pool), now)
	if next := min(at.Sub(now), maxRecheck); changes && (after == 0 || next < after) {
		return next
	}
	return after
}

// maxRecheck is how long no one looks at the clock: timers stand still while a machine sleeps.
const maxRecheck = 12 * time.Hour

// gather reads everything that the reconcile needs, from the cache.
func (r *Reconciler) gather(ctx context.Context, s *scope) error {
	var (
		pools  mcfgv1.MachineConfigPoolList
		all    corev1.NodeList
		images mcfgv1alpha1.MachineOSImageList
	)
	for _, list := range []client.ObjectList{&pools, &all, &images} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
	}
	s.streams = &mcfgv1.OSImageStream{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: mcfgv1.OSImageStreamName}, s.streams); apierrors.IsNotFound(err) {
		s.streams = nil
	} else if err != nil {
		return fmt.Errorf("reading OSImageStream %q: %w", mcfgv1.OSImageStreamName, err)
	}
	s.layer = &mcfgv1.MachineOSConfig{} // it has the pool's name
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(s.pool), s.layer); apierrors.IsNotFound(err) {
		s.layer = nil
	} else if err != nil {
		return fmt.Errorf("reading MachineOSConfig %q: %w", s.pool.Name, err)
	}
	s.pools = pointers(pools.Items)
	s.observed = make([]nodes.Node, len(all.Items))
	for i := range all.Items {
		s.observed[i] = nodes.Observe(&all.Items[i])
	}
	s.selectors = nodes.NewSelectors(s.pools)
	s.nodes = nodes.Assign(s.selectors, s.observed)
	s.images, s.onNodes = images.Items, onNodes(s.observed)
	s.isBuilt = s.layer != nil && slices.ContainsFunc(images.Items, func(i mcfgv1alpha1.MachineOSImage) bool {
		return i.Spec.PullSpec == s.layer.Status.CurrentImagePullSpec && i.Spec.MachineConfigPool == s.pool.Name &&
			i.Configuration() == s.pool.Spec.Configuration.Name
	})
	if err := r.gatherConfigs(ctx, s); err != nil {
		return err
	}
	s.isGathered = true
	return nil
}

// gatherConfigs reads the MachineConfigs that concern the pool, and no others: a list of all would
// be copied for every pool.
func (r *Reconciler) gatherConfigs(ctx context.Context, s *scope) error {
	var (
		rendered mcfgv1.MachineConfigList
		err      error
	)
	if s.configs, err = selected.Indexed(ctx, r.client, s.pool); err != nil {
		return err
	}
	if err := r.client.List(ctx, &rendered, client.MatchingFields{fieldPool: s.pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing rendered MachineConfigs: %w", err)
	}
	s.rendered = pointers(rendered.Items)
	names := sets.New(s.pool.Spec.Configuration.Name)
	for _, n := range s.nodes.Members[s.pool.Name] {
		names.Insert(n.CurrentConfig)
	}
	s.inUse = map[string]*mcfgv1.MachineConfig{}
	for name := range names {
		mc, err := r.config(ctx, name)
		if err != nil {
			return err
		}
		s.inUse[name] = mc
	}
	return nil
}

// config reads one MachineConfig from the cache; nil if there is none.
func (r *Reconciler) config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // there is none of no name
	}
	return readConfig(ctx, r.client, name, client.UnsafeDisableDeepCopy)
}

// readConfig reads one MachineConfig; nil if there is none.
func readConfig(ctx context.Context, from client.Reader, name string, options ...client.GetOption) (*mcfgv1.MachineConfig, error) {
	mc := &mcfgv1.MachineConfig{}
	if err := from.Get(ctx, client.ObjectKey{Name: name}, mc, options...); apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	} else if err != nil {
		return nil, fmt.Errorf("reading MachineConfig %q: %w", name, err)
	}
	return mc, nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// render finds out which rendered MachineConfig the pool should have. That it cannot be made is an
// outcome like any other, which ends up in a condition; the reconcile goes on.
func (r *Reconciler) render(ctx context.Context, s *scope) error {
	stream, err := r.chooseStream(s)
	if err != nil {
		s.want = &outcome{err: streamFault(err)}
		return nil
	}
	s.stream = stream
	configs, err := machineconfigs.Select(s.pool, stream.Name, s.configs)
	if err != nil {
		s.want = &outcome{err: renderFault(err)}
		return nil
	}
	content := func(ctx context.Context) ([]*mcfgv1.MachineConfig, error) {
		return r.contents(ctx, s.pool, stream.Name)
	}
	s.in = inputs{stream: stream, configs: configs, content: content, accepted: s.pool.Annotations[mcfgv1.AnnotationAcceptBlockers], options: machineconfigs.Options{
		Pool: s.pool.Name, ControllerVersion: r.options.ControllerVersion,
		// Builders take no rendered MachineConfig without the annotation; where there are no
		// releases, the program is one.
		ReleaseVersion: cmp.Or(r.options.ReleaseVersion, r.options.ControllerVersion),
		Images: machineconfigs.Images{
			OSImage: string(stream.Images.OSImage), ExtensionsImage: string(stream.Images.OSExtensionsImage),
			Stream: s.mark(stream), Explicit: stream.Explicit,
		},
	}}
	s.want = r.renders.of(ctx, s.in)
	return nil
}

// contents asks the API server for the MachineConfigs that a pool joins: the cache has them without
// their content.
func (r *Reconciler) contents(ctx context.Context, pool *mcfgv1.MachineConfigPool, stream string) ([]*mcfgv1.MachineConfig, error) {
	all, err := selected.Configs(ctx, r.reader, pool, machineconfigs.IsRendered)
	if err != nil {
		return nil, err
	}
	configs, err := machineconfigs.Select(pool, stream, all)
	if err == nil && r.options.Check != nil {
		err = r.options.Check(pool.Name, configs)
	}
	if err != nil {
		err = renderFault(err)
	}
	return configs, err
}

func (r *Reconciler) chooseStream(s *scope) (streams.Choice, error) {
	if err := streams.CheckRelease(s.streams, r.options.ReleaseVersion); err != nil {
		return streams.Choice{}, err
	}
	subject := streams.Subject{Pool: s.pool, Worker: s.poolNamed(mcfgv1.PoolWorker), Rendered: s.inUse[s.pool.Spec.Configuration.Name]}
	configs := sets.New[string]()
	for _, n := range s.nodes.Members[s.pool.Name] {
		subject.Kernels = append(subject.Kernels, n.Kernel)
		configs.Insert(n.CurrentConfig)
	}
	for _, name := range sets.List(configs) {
		if mc := s.inUse[name]; mc != nil && mc.Annotations[mcfgv1.AnnotationOSImageStream] != "" {
			subject.On = append(subject.On, mc.Annotations[mcfgv1.AnnotationOSImageStream])
		}
	}
	return streams.ForPool(subject, s.streams)
}

// poolNamed is the pool of a name; nil if there is none.
func (s *scope) poolNamed(name string) *mcfgv1.MachineConfigPool {
	for _, pool := range s.pools {
		if pool.Name == name {
			return pool
		}
	}
	return nil
}

// mark is the stream that a rendered MachineConfig with the stream's OS image is marked with. The
// image that a pool is frozen at is the stream's only if what it was taken from says so: it may be
// an administrator's own.
func (s *scope) mark(stream streams.Choice) string {
	if frozenAt := s.inUse[s.pool.Spec.Configuration.Name]; stream.Frozen && frozenAt != nil {
		return frozenAt.Annotations[mcfgv1.AnnotationOSImageStream]
	}
	return stream.Name
}

// canMove reports whether there is a configuration that the pool may be given. A paused pool gets
// it too: its image is built, and only its nodes keep what they have.
func (s *scope) canMove() bool { return s.want.err == nil }

// storeRendered sees to it that the rendered MachineConfig is in the cluster with the content that
// it should have, and that it goes when the pool goes. Someone may have edited it: nodes and builds
// trust its name, so it is put right again.
func (r *Reconciler) storeRendered(ctx context.Context, s *scope) error {
	if !s.canMove() {
		return nil
	}
	existing, err := r.config(ctx, s.want.name)
	if err != nil {
		return err
	}
	if existing == nil && s.want.stored != "" { // it was deleted, or the cache has not seen it yet
		existing, err = readConfig(ctx, r.reader, s.want.name)
		if err != nil {
			return err
		}
	}
	if existing != nil && s.want.stored == versionOf(existing) {
		return nil // what differs from now on is an edit
	}
	content, err := r.renders.contentOf(ctx, s.in, s.want)
	if err != nil {
		return err
	}
	if existing == nil {
		existing, err = r.createRendered(ctx, s, content)
	}
	if err == nil && existing != nil {
		err = r.repairRendered(ctx, s, existing, content)
	}
	if fault.IsTerminal(err) { // no other reconcile can do better with these MachineConfigs
		s.want.err, err = err, nil
	}
	if s.want.err != nil || s.want.stored != "" {
		s.want.content = nil // the cluster has it
	}
	return err
}

// versionOf identifies one state of one object.
func versionOf(mc *mcfgv1.MachineConfig) string { return string(mc.UID) + "/" + mc.ResourceVersion }

// createRendered stores the rendered MachineConfig. If there is one of its name, which the cache
// had not seen, it is returned.
func (r *Reconciler) createRendered(ctx context.Context, s *scope, content *mcfgv1.MachineConfig) (*mcfgv1.MachineConfig, error) {
	mc := content.DeepCopy()
	if err := controllerutil.SetControllerReference(s.pool, mc, r.client.Scheme()); err != nil {
		return nil, fmt.Errorf("setting the owner of rendered MachineConfig %q: %w", mc.Name, err)
	}
	err := r.client.Create(ctx, mc)
	if apierrors.IsAlreadyExists(err) {
		return readConfig(ctx, r.reader, mc.Name)
	}
	if err != nil {
		return nil, storeFault(mc.Name, err)
	}
	s.want.stored = versionOf(mc)
	ctrl.LoggerFrom(ctx).Info("Rendered", "machineConfig", mc.Name, "sources", s.want.sources, "stream", s.want.stream.Name)
	r.events.Publish(s.pool, events.RenderedConfigGenerated(mc.Name, len(s.want.sources)))
	return nil, nil
}

// repairRendered makes a rendered MachineConfig that is there what it should be.
func (r *Reconciler) repairRendered(ctx context.Context, s *scope, existing, content *mcfgv1.MachineConfig) error {
	if !existing.DeletionTimestamp.IsZero() {
		return fmt.Errorf("rendered MachineConfig %q is being deleted, but the pool needs it", existing.Name)
	}
	isSame := isSameContent(existing, content)
	isMarked := existing.Annotations[mcfgv1.AnnotationOSImageStream] == content.Annotations[mcfgv1.AnnotationOSImageStream]
	if isSame && isMarked && metav1.IsControlledBy(existing, s.pool) {
		s.want.stored = versionOf(existing)
		return nil
	}
	mc := existing.DeepCopy()
	setContent(mc, content)
	mc.OwnerReferences = slices.DeleteFunc(mc.OwnerReferences, func(o metav1.OwnerReference) bool {
		return ptr.Deref(o.Controller, false) // a pool of that name that is gone
	})
	if err := controllerutil.SetControllerReference(s.pool, mc, r.client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of rendered MachineConfig %q: %w", mc.Name, err)
	}
	if err := r.client.Update(ctx, mc); err != nil {
		return storeFault(mc.Name, err)
	}
	s.want.stored = versionOf(mc)
	if !isSame {
		ctrl.LoggerFrom(ctx).Info("Put an edited rendered MachineConfig right", "machineConfig", mc.Name)
		r.events.Publish(s.pool, events.RenderedConfigRepaired(mc.Name))
	}
	return nil
}

// contentAnnotations are annotations of a rendered MachineConfig that are content, as its spec is.
var contentAnnotations = []string{mcfgv1.AnnotationNodeOnlyContent}

// isSameContent reports whether two rendered MachineConfigs say the same. The API server leaves
// empty lists out, and the cache what is in spec.config.
func isSameContent(a, b *mcfgv1.MachineConfig) bool {
	for _, key := range contentAnnotations {
		if a.Annotations[key] != b.Annotations[key] {
			return false
		}
	}
	restA, restB := a.Spec, b.Spec
	restA.Config.Raw, restB.Config.Raw = nil, nil
	return machineconfigs.IsSameContent(a, b) && apiequality.Semantic.DeepEqual(restA, restB)
}

// setContent makes a rendered MachineConfig say what another one says, also of its stream. That is
// no content: two streams may have the same image.
func setContent(mc, content *mcfgv1.MachineConfig) {
	mc.Spec = *content.Spec.DeepCopy()
	machineconfigs.Untrim(mc)
	for _, key := range append([]string{mcfgv1.AnnotationOSImageStream}, contentAnnotations...) {
		if value, has := content.Annotations[key]; has {
			metav1.SetMetaDataAnnotation(&mc.ObjectMeta, key, value)
		} else {
			delete(mc.Annotations, key)
		}
	}
}

// setConfiguration names the rendered MachineConfig in the pool's spec, with what it was rendered
// from, and writes down which stream that is of. One write does both, bound to the version that was
// read: there is no moment at which the pool has an OS image and no one knows of which stream, and
// no reconcile that goes by an older state of the pool can change it.
func (r *Reconciler) setConfiguration(ctx context.Context, s *scope) error {
	if !s.canMove() {
		return nil
	}
	before := s.pool.DeepCopy()
	configuration := &s.pool.Spec.Configuration
	from := configuration.Name
	configuration.Name, configuration.Source = s.want.name, sourceReferences(s.want.sources)
	if s.stream.Name != "" {
		metav1.SetMetaDataAnnotation(&s.pool.ObjectMeta, mcfgv1.AnnotationRememberedStream, s.stream.Name)
	}
	isRemembered := maps.Equal(before.Annotations, s.pool.Annotations)
	if isRemembered && apiequality.Semantic.DeepEqual(before.Spec.Configuration, *configuration) {
		return nil
	}
	stored := s.pool.DeepCopy() // the API server's answer has its own idea of the status
	if err := r.client.Patch(ctx, stored, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		s.pool.Spec.Configuration, s.pool.Annotations = before.Spec.Configuration, before.Annotations
		err = fmt.Errorf("setting spec.configuration of MachineConfigPool %q: %w", s.pool.Name, err)
		if apierrors.IsInvalid(err) { // a policy that is younger than the pool refuses every change of it
			return fault.NewTerminal(mcfgv1.ReasonInvalid, err)
		}
		return err
	}
	s.pool.ResourceVersion, s.pool.Generation = stored.ResourceVersion, stored.Generation
	if from != s.want.name {
		ctrl.LoggerFrom(ctx).Info("Configuration changed", "from", from, "to", s.want.name, "stream", s.stream.Name, "because", s.stream.Reason)
		r.events.Publish(s.pool, events.RenderedConfigChanged(from, s.want.name))
	}
	return nil
}

func sourceReferences(names []string) []corev1.ObjectReference {
	var references []corev1.ObjectReference
	for _, name := range names {
		references = append(references, corev1.ObjectReference{
			APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig", Name: name,
		})
	}
	return references
}

// removeRendered deletes the pool's rendered MachineConfigs that no one needs any more. What refers
// to them is only looked for where there are more than the limit.
func (r *Reconciler) removeRendered(ctx context.Context, s *scope) error {
	own := renderedOf(s.pool, s.rendered)
	if len(own) <= r.options.RenderedConfigLimit {
		return nil
	}
	var builds mcfgv1.MachineOSBuildList
	if err := r.client.List(ctx, &builds, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing MachineOSBuilds: %w", err)
	}
	keep := referenced(s.pools, s.observed, builds.Items, s.images).Insert(s.pool.Spec.Configuration.Name, s.want.name)
	var errs []error
	for _, mc := range prune(own, keep, r.options.RenderedConfigLimit) {
		err := r.client.Delete(ctx, mc.DeepCopy(), client.Preconditions{UID: &mc.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // another one of its name is not meant
			errs = append(errs, fmt.Errorf("deleting rendered MachineConfig %q: %w", mc.Name, err))
			continue
		}
		ctrl.LoggerFrom(ctx).Info("Deleted a rendered MachineConfig that nothing refers to", "machineConfig", mc.Name)
	}
	return errors.Join(errs...)
}

// removeImages deletes the MachineOSImages that a deleted MachineOSConfig has left to the pool,
// once no node needs them.
func (r *Reconciler) removeImages(ctx context.Context, s *scope) error {
	var errs []error
	for _, image := range abandoned(s) {
		err := r.client.Delete(ctx, image.DeepCopy(), client.Preconditions{UID: &image.UID, ResourceVersion: &image.ResourceVersion})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // someone may have taken it over
			errs = append(errs, fmt.Errorf("deleting MachineOSImage %q: %w", image.Name, err))
			continue
		}
		ctrl.LoggerFrom(ctx).Info("Deleted a MachineOSImage that no node needs", "machineOSImage", image.Name)
	}
	return errors.Join(errs...)
}

// checkSelector ends the reconcile of a pool whose nodes no one can tell.
func (*Reconciler) checkSelector(_ context.Context, s *scope) error {
	if err := s.selectors.Invalid(s.pool.Name); err != nil {
		return fault.NewTerminal(mcfgv1.ReasonInvalid, err)
	}
	return nil
}
