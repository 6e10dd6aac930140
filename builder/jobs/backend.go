package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
)

// Waits before an object that is in the way is looked at again.
const (
	whileDeleting = time.Second
	whileRefused  = 30 * time.Second
)

// Options are what a Backend works with. Namespace and Image are required.
type Options struct {
	// Namespace is where builds run; it has their secrets.
	Namespace string
	// Image is that of the builder, whose program gets the name of a step as its argument.
	Image string
	// ServiceAccount is that of the pods, "layerwright-build" where empty. It needs no rights, and its token is not mounted.
	ServiceAccount string
	// PriorityClass is that of the pods; empty for the cluster's default.
	PriorityClass string
	// UserNamespaces is UserNamespacesAuto where empty.
	UserNamespaces UserNamespaces
	// Logs reads how far a step is; nil where nobody needs to know.
	Logs Logs
	// Clock is the real one where nil.
	Clock clock.PassiveClock
}

// Backend builds with Jobs.
type Backend struct {
	options Options
	// client reads from the cache, reader asks the API server.
	client client.Client
	reader client.Reader
}

// New makes a Backend. The client has to read Jobs, pods and nodes; the reader is asked for what is not cached, and for everything once more
// before a build is said to have ended or to be gone.
func New(options Options, c client.Client, reader client.Reader) (*Backend, error) {
	if options.Namespace == "" || options.Image == "" {
		return nil, errors.New("setting up Jobs: the namespace of builds, or the image of the builder, is not known")
	}
	options.ServiceAccount = cmp.Or(options.ServiceAccount, defaultAccount)
	options.UserNamespaces = cmp.Or(options.UserNamespaces, UserNamespacesAuto)
	switch options.UserNamespaces {
	case UserNamespacesAuto, UserNamespacesAlways, UserNamespacesNever:
	default:
		return nil, fmt.Errorf("setting up Jobs: user namespaces can be %s, %s or %s, and not %q",
			UserNamespacesAuto, UserNamespacesAlways, UserNamespacesNever, options.UserNamespaces)
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Backend{options: options, client: c, reader: reader}, nil
}

// Ensure makes what is missing of the build. It waits, in the sense of fault.Waiting, for secrets and ConfigMaps that are not there, and for the
// objects of an earlier build of the same name to go.
func (b *Backend) Ensure(ctx context.Context, spec backend.Spec) error {
	if err := b.requireInputs(ctx, &spec); err != nil {
		return err
	}
	isolations, err := b.isolations(ctx, &spec)
	if err != nil {
		return err
	}
	made, err := newObjects(&b.options, &spec, isolations)
	if err != nil {
		return err
	}
	for _, c := range made.configMaps {
		if err := b.ensure(ctx, c, &spec.Key); err != nil {
			return err
		}
	}
	for _, job := range made.jobs {
		if err := b.ensure(ctx, job, &spec.Key); err != nil {
			return err
		}
	}
	return nil
}

// requireInputs asks for everything that pods mount and this package does not make. A pod without it would hang.
func (b *Backend) requireInputs(ctx context.Context, spec *backend.Spec) error {
	wanted := []object{}
	for _, secret := range []string{spec.PullSecret, spec.PushSecret} {
		if secret != "" {
			wanted = append(wanted, object{kindSecret, secret})
		}
	}
	for _, input := range spec.Inputs {
		if input.Secret != "" {
			wanted = append(wanted, object{kindSecret, input.Secret})
		} else {
			wanted = append(wanted, object{kindConfigMap, input.ConfigMap})
		}
	}
	for _, o := range wanted {
		is, err := b.exists(ctx, o)
		if err != nil {
			return err
		}
		if !is {
			reason := mcfgv1.ReasonWaitingForSecret
			if o.kind == kindConfigMap {
				reason = mcfgv1.ReasonWaitingForConfigMap
			}
			return fault.NewWaiting(reason, whileWaiting, fmt.Errorf("%s %q is not in namespace %q", o.kind, o.name, b.options.Namespace))
		}
	}
	return nil
}

func (b *Backend) exists(ctx context.Context, o object) (bool, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(o.kind))
	err := b.reader.Get(ctx, client.ObjectKey{Namespace: b.options.Namespace, Name: o.name}, meta)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("looking for %s %q: %w", o.kind, o.name, err)
	}
	return err == nil, nil
}

// isolations are the strongest that each architecture's nodes offer, and that the API server does not take out of the pod: it silently drops the
// field where user namespaces are turned off, and would leave the capabilities.
func (b *Backend) isolations(ctx context.Context, spec *backend.Spec) ([]isolation, error) {
	var nodes corev1.NodeList
	if b.options.UserNamespaces == UserNamespacesAuto {
		if err := b.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing nodes: %w", err)
		}
	}
	chosen := make([]isolation, len(spec.Architectures))
	for i := range spec.Architectures {
		chosen[i] = chooseIsolation(b.options.UserNamespaces, nodes.Items, nodeSelector(spec.Placement, spec.Architectures[i].Architecture))
	}
	made, err := newObjects(&b.options, spec, chosen)
	if err != nil {
		return nil, err
	}
	for i, job := range made.jobs {
		if chosen[i].kind != backend.IsolationUserNamespace {
			continue
		}
		err := b.client.Create(ctx, job, client.DryRunAll)
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return nil, classified(err, "Job", job.Name)
		}
		if users := job.Spec.Template.Spec.HostUsers; users != nil && !*users {
			continue
		}
		if b.options.UserNamespaces == UserNamespacesAlways {
			return nil, fault.NewTerminal(mcfgv1.ReasonBuilderNotAvailable, errors.New(
				"the API server drops hostUsers: user namespaces are required, and this cluster has none"))
		}
		chosen[i] = isolation{kind: backend.IsolationCapabilities, why: "the API server drops hostUsers"}
	}
	return chosen, nil
}

// ensure creates an object, unless the build has it. One of an earlier build is removed first.
func (b *Backend) ensure(ctx context.Context, o client.Object, key *backend.Key) error {
	kind, name := kindOf(o), o.GetName()
	err := b.client.Create(ctx, o)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return classified(err, kind, name)
	}
	there := metadataOf(o)
	if err := b.reader.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
		return fmt.Errorf("reading %s %q, which is said to exist: %w", kind, name, err)
	}
	switch {
	case !there.DeletionTimestamp.IsZero():
		return inTheWay("%s %q of an earlier build is being deleted", kind, name)
	case isOf(there, key):
		return b.requireSame(ctx, o)
	case kind == kindConfigMap && there.Annotations[mcfgv1.AnnotationMachineOSBuild] != key.Build:
		return b.replace(ctx, there)
	case there.Annotations[mcfgv1.AnnotationMachineOSBuild] != key.Build:
		return fault.NewWaiting(mcfgv1.ReasonWaiting, whileRefused, fmt.Errorf(
			"%s %q is somebody else's, and has the name that this build needs: delete it", kind, name))
	}
	if err := b.delete(ctx, there); err != nil {
		return err
	}
	return inTheWay("%s %q of an earlier build is removed first", kind, name)
}

// requireSame replaces a ConfigMap that differs in anything from the one that pods are to read. Its annotations say nothing: whoever
// may create ConfigMaps can see the build and be first.
func (b *Backend) requireSame(ctx context.Context, wanted client.Object) error {
	c, isConfigMap := wanted.(*corev1.ConfigMap)
	if !isConfigMap {
		return nil
	}
	there := &corev1.ConfigMap{}
	if err := b.reader.Get(ctx, client.ObjectKeyFromObject(c), there); err != nil {
		return fmt.Errorf("reading ConfigMap %q: %w", c.Name, err)
	}
	if isSame(c, there) {
		return nil
	}
	return b.replace(ctx, there)
}

// replace removes an object that was there before the build, so that it can be made.
func (b *Backend) replace(ctx context.Context, there client.Object) error {
	if err := b.delete(ctx, there); err != nil {
		return err
	}
	return fault.NewWaiting(mcfgv1.ReasonInputsChanged, whileDeleting, fmt.Errorf(
		"%s %q was there before the build, and the controller did not make it; it is replaced: find out who made it", kindOf(there), there.GetName()))
}

// isSame reports whether a ConfigMap has the files of another one, for good, and goes with its owner.
func isSame(wanted, there *corev1.ConfigMap) bool {
	return maps.Equal(wanted.Data, there.Data) && maps.EqualFunc(wanted.BinaryData, there.BinaryData, bytes.Equal) &&
		there.Immutable != nil && *there.Immutable && equality.Semantic.DeepEqual(wanted.OwnerReferences, there.OwnerReferences)
}

func inTheWay(format, kind, name string) error {
	return fault.NewWaiting(mcfgv1.ReasonPreparing, whileDeleting, fmt.Errorf(format, kind, name))
}

// classified says who can do something about an object that was refused.
func classified(err error, kind, name string) error {
	err = fmt.Errorf("creating %s %q: %w", kind, name, err)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return fault.NewTerminal(mcfgv1.ReasonInvalid, err)
	case apierrors.IsForbidden(err): // a quota, a policy, or a right that is missing
		return fault.NewWaiting(mcfgv1.ReasonWaiting, whileRefused, err)
	}
	return err
}

// isOf tells whether an object is of a build, and not of an earlier one of its name.
func isOf(o client.Object, key *backend.Key) bool {
	a := o.GetAnnotations()
	return a[mcfgv1.AnnotationMachineOSBuild] == key.Build && a[mcfgv1.AnnotationMachineOSBuildUID] == key.UID
}

// Observe says how far the build is. That it is gone or has ended is said only after the API server was asked, whose word is final: a cache
// may not have heard of a Job that was just made, or of what its pod left behind.
func (b *Backend) Observe(ctx context.Context, key backend.Key) (backend.State, error) {
	known, err := b.gather(ctx, b.client, &key)
	if err == nil {
		err = b.giveUp(ctx, known)
	}
	if err != nil {
		return backend.State{}, err
	}
	state := observe(known)
	switch state.Phase {
	case backend.Pending, backend.Running:
		return state, nil
	case backend.Absent, backend.Succeeded, backend.Failed:
	}
	if known, err = b.gather(ctx, b.reader, &key); err != nil {
		return backend.State{}, err
	}
	state = observe(known)
	if state.Phase == backend.Failed {
		err = b.stopOthers(ctx, known)
	}
	return state, err
}

// stopOthers ends what the other architectures of a failed build still do. Their pods go with their Jobs; the one that failed stays.
func (b *Backend) stopOthers(ctx context.Context, known *facts) error {
	for _, job := range present(known.jobs) {
		if o := observeJob(known, job); o.phase == backend.Pending || o.phase == backend.Running {
			if err := b.delete(ctx, job); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove removes everything of the build, its Jobs first.
func (b *Backend) Remove(ctx context.Context, key backend.Key) error {
	for _, kind := range []client.Object{&batchv1.Job{}, &corev1.ConfigMap{}} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(metadataOf(kind).GroupVersionKind())
		if err := b.reader.List(ctx, list, b.ofBuild(&key)...); err != nil {
			return fmt.Errorf("listing every %s of build %q: %w", kindOf(kind), key.Build, err)
		}
		for i := range list.Items {
			there := &list.Items[i]
			there.SetGroupVersionKind(metadataOf(kind).GroupVersionKind()) // items of a list have none
			if !isOf(there, &key) || !there.DeletionTimestamp.IsZero() {
				continue
			}
			if err := b.delete(ctx, there); err != nil {
				return err
			}
		}
	}
	return nil
}

// delete deletes this object, and none that has taken its place. Pods follow their Job, which waits for nothing.
func (b *Backend) delete(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	err := b.client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	if err = client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting %s %q: %w", kindOf(o), o.GetName(), err)
	}
	return nil
}

// ofBuild selects the objects of builds of a name.
func (b *Backend) ofBuild(key *backend.Key) []client.ListOption {
	return []client.ListOption{client.InNamespace(b.options.Namespace), client.MatchingLabels{mcfgv1.LabelMachineOSBuild: names.BuildLabel(key.Build)}}
}

func kindOf(o client.Object) string { return metadataOf(o).Kind }

// metadataOf is an object of the same kind, without content.
func metadataOf(o client.Object) *metav1.PartialObjectMetadata {
	meta := &metav1.PartialObjectMetadata{}
	switch typed := o.(type) {
	case *batchv1.Job:
		meta.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	case *corev1.ConfigMap:
		meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kindConfigMap))
	case *metav1.PartialObjectMetadata:
		meta.SetGroupVersionKind(typed.GroupVersionKind())
	}
	return meta
}
