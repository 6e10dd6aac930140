package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

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

// Cluster reads and writes the objects of builds in one namespace.
type Cluster struct {
	Namespace string
	// Client reads from the cache, Reader asks the API server.
	Client client.Client
	Reader client.Reader
	// Logs reads how far a step is; nil where no one needs to know.
	Logs Logs
}

// RequireInputs asks for everything that pods mount and no backend makes. A pod without it would
// hang.
func (c *Cluster) RequireInputs(ctx context.Context, spec *backend.Spec) error {
	wanted := []Object{}
	for _, secret := range []string{spec.PullSecret, spec.PushSecret} {
		if secret != "" {
			wanted = append(wanted, Object{KindSecret, secret})
		}
	}
	for _, input := range spec.Inputs {
		if input.Secret != "" {
			wanted = append(wanted, Object{KindSecret, input.Secret})
		} else {
			wanted = append(wanted, Object{KindConfigMap, input.ConfigMap})
		}
	}
	for _, o := range wanted {
		is, err := c.exists(ctx, o)
		if err != nil {
			return err
		}
		if !is {
			reason := mcfgv1.ReasonWaitingForSecret
			if o.Kind == KindConfigMap {
				reason = mcfgv1.ReasonWaitingForConfigMap
			}
			return fault.NewWaiting(reason, WhileWaiting, fmt.Errorf("%s %q is not in namespace %q", o.Kind, o.Name, c.Namespace))
		}
	}
	return nil
}

func (c *Cluster) exists(ctx context.Context, o Object) (bool, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(o.Kind))
	err := c.Reader.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: o.Name}, meta)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("looking for %s %q: %w", o.Kind, o.Name, err)
	}
	return err == nil, nil
}

// Isolations are the strongest that each architecture's nodes offer.
func (c *Cluster) Isolations(ctx context.Context, setting UserNamespaces, spec *backend.Spec) ([]Isolation, error) {
	var nodes corev1.NodeList
	if setting == UserNamespacesAuto {
		if err := c.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing nodes: %w", err)
		}
	}
	chosen := make([]Isolation, len(spec.Architectures))
	for i := range spec.Architectures {
		chosen[i] = ChooseIsolation(setting, nodes.Items, NodeSelector(spec.Placement, spec.Architectures[i].Architecture))
	}
	return chosen, nil
}

// Probe is the isolation that a Job keeps when the API server takes it: it silently drops hostUsers
// where user namespaces are turned off, and would leave the capabilities. Nothing is made.
func (c *Cluster) Probe(ctx context.Context, setting UserNamespaces, job *batchv1.Job, chosen Isolation) (Isolation, error) {
	if chosen.Kind != backend.IsolationUserNamespace {
		return chosen, nil
	}
	err := c.Client.Create(ctx, job, client.DryRunAll)
	if apierrors.IsAlreadyExists(err) {
		return chosen, nil
	}
	if err != nil {
		return chosen, c.classified(err, "Job", job.Name)
	}
	if users := job.Spec.Template.Spec.HostUsers; users != nil && !*users {
		return chosen, nil
	}
	if setting == UserNamespacesAlways {
		return chosen, fault.NewTerminal(mcfgv1.ReasonBuilderNotAvailable, errors.New(
			"the API server drops hostUsers: user namespaces are required, and this cluster has none"))
	}
	return Isolation{Kind: backend.IsolationCapabilities, Why: "the API server drops hostUsers"}, nil
}

// RequireNoOthers waits until no pod is left of what built before, which is every one whose
// controller is of another kind. A kubelet keeps a ConfigMap that does not change as long as one of
// its pods has it, and would give a new pod the old files.
func (c *Cluster) RequireNoOthers(ctx context.Context, key *backend.Key, kind string) error {
	var list corev1.PodList
	if err := c.Reader.List(ctx, &list, c.OfBuild(key)...); err != nil {
		return fmt.Errorf("listing the pods of build %q: %w", key.Build, err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind != kind {
			return inTheWay("%s %q of what built before imageBuilderType was changed has not ended yet", "pod", pod.Name)
		}
	}
	return nil
}

// Ensure creates an object, unless the build has it. One of an earlier build is removed first.
func (c *Cluster) Ensure(ctx context.Context, o client.Object, key *backend.Key) error {
	kind, name := c.kindOf(o), o.GetName()
	err := c.Client.Create(ctx, o)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return c.classified(err, kind, name)
	}
	there := c.MetadataOf(o)
	if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
		return fmt.Errorf("reading %s %q, which exists: %w", kind, name, err)
	}
	switch {
	case !there.DeletionTimestamp.IsZero():
		return leaving(there, kind)
	case IsOf(there, key):
		return c.requireSame(ctx, o)
	case kind == KindConfigMap && there.Annotations[mcfgv1.AnnotationMachineOSBuild] != key.Build:
		return c.replace(ctx, there)
	case there.Annotations[mcfgv1.AnnotationMachineOSBuild] != key.Build:
		return fault.NewWaiting(mcfgv1.ReasonWaiting, whileRefused, fmt.Errorf(
			"%s %q does not belong to this build, but has the name that it needs: delete it", kind, name))
	}
	if err := c.Delete(ctx, there); err != nil {
		return err
	}
	return inTheWay("%s %q of an earlier build is removed first", kind, name)
}

// requireSame replaces a ConfigMap that differs in anything from the one that pods are to read. Its
// annotations say nothing: whoever may create ConfigMaps can see the build and be first.
func (c *Cluster) requireSame(ctx context.Context, wanted client.Object) error {
	configMap, isConfigMap := wanted.(*corev1.ConfigMap)
	if !isConfigMap {
		return nil
	}
	there := &corev1.ConfigMap{}
	if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(configMap), there); err != nil {
		return fmt.Errorf("reading ConfigMap %q: %w", configMap.Name, err)
	}
	if isSame(configMap, there) {
		return nil
	}
	return c.replace(ctx, there)
}

// replace removes an object that was there before the build, so that it can be made.
func (c *Cluster) replace(ctx context.Context, there client.Object) error {
	if err := c.Delete(ctx, there); err != nil {
		return err
	}
	return fault.NewWaiting(mcfgv1.ReasonInputsChanged, whileDeleting, fmt.Errorf(
		"%s %q existed before the build, and the controller did not create it; it is replaced: find out who created it", c.kindOf(there), there.GetName()))
}

// isSame reports whether a ConfigMap has the files of another one, for good, and goes with its
// owner.
func isSame(wanted, there *corev1.ConfigMap) bool {
	return maps.Equal(wanted.Data, there.Data) && maps.EqualFunc(wanted.BinaryData, there.BinaryData, bytes.Equal) &&
		there.Immutable != nil && *there.Immutable && equality.Semantic.DeepEqual(wanted.OwnerReferences, there.OwnerReferences)
}

func inTheWay(format, kind, name string) error {
	return fault.NewWaiting(mcfgv1.ReasonPreparing, whileDeleting, fmt.Errorf(format, kind, name))
}

// leaving waits for an object that is being deleted, and says who keeps it.
func leaving(there *metav1.PartialObjectMetadata, kind string) error {
	if len(there.Finalizers) == 0 {
		return inTheWay("%s %q of an earlier build is being deleted", kind, there.Name)
	}
	return fault.NewWaiting(mcfgv1.ReasonWaiting, WhileWaiting, fmt.Errorf(
		"%s %q of an earlier build is being deleted, and waits for its finalizers %s; find out who set them, or remove them from the object",
		kind, there.Name, strings.Join(there.Finalizers, ", ")))
}

// classified says who can do something about an object that was refused.
func (c *Cluster) classified(err error, kind, name string) error {
	refused := placeOfResources(c.Namespace, nil).Explain(err.Error())
	err = fmt.Errorf("creating %s %q: %w", kind, name, err)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return fault.NewTerminal(mcfgv1.ReasonInvalid, err)
	case refused != "":
		return fault.NewWaiting(mcfgv1.ReasonWaiting, whileRefused, fmt.Errorf("the cluster refuses to create %s %q: %s", kind, name, refused))
	case apierrors.IsForbidden(err): // a quota, a policy, or a right that is missing
		return fault.NewWaiting(mcfgv1.ReasonWaiting, whileRefused, err)
	}
	return err
}

// IsOf reports whether an object is of a build, and not of an earlier one of its name.
func IsOf(o client.Object, key *backend.Key) bool {
	a := o.GetAnnotations()
	return a[mcfgv1.AnnotationMachineOSBuild] == key.Build && a[mcfgv1.AnnotationMachineOSBuildUID] == key.UID
}

// Remove removes every object of a kind that the build has.
func (c *Cluster) Remove(ctx context.Context, key *backend.Key, kinds ...client.Object) error {
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(c.MetadataOf(kind).GroupVersionKind())
		if err := c.Reader.List(ctx, list, c.OfBuild(key)...); err != nil {
			return fmt.Errorf("listing every %s of build %q: %w", c.kindOf(kind), key.Build, err)
		}
		for i := range list.Items {
			there := &list.Items[i]
			there.SetGroupVersionKind(c.MetadataOf(kind).GroupVersionKind()) // items of a list have none
			if !IsOf(there, key) || !there.DeletionTimestamp.IsZero() {
				continue
			}
			if err := c.Delete(ctx, there); err != nil {
				return err
			}
		}
	}
	return nil
}

// Delete deletes this object, and none that has taken its place. Pods follow what made them, which
// waits for nothing.
func (c *Cluster) Delete(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	err := c.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	if err = client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting %s %q: %w", c.kindOf(o), o.GetName(), err)
	}
	return nil
}

// OfBuild selects the objects of builds of a name.
func (c *Cluster) OfBuild(key *backend.Key) []client.ListOption {
	return []client.ListOption{client.InNamespace(c.Namespace), client.MatchingLabels{mcfgv1.LabelMachineOSBuild: names.BuildLabel(key.Build)}}
}

func (c *Cluster) kindOf(o client.Object) string { return c.MetadataOf(o).Kind }

// MetadataOf is an object of the same kind, without content.
func (c *Cluster) MetadataOf(o client.Object) *metav1.PartialObjectMetadata {
	meta := &metav1.PartialObjectMetadata{}
	if kind, err := apiutil.GVKForObject(o, c.Client.Scheme()); err == nil {
		meta.SetGroupVersionKind(kind)
	}
	return meta
}

// Gather reads the pods of a build.
func (c *Cluster) Gather(ctx context.Context, from client.Reader, key *backend.Key, now time.Time) (Facts, error) {
	f := Facts{Now: now, Warnings: map[types.UID]string{}, Missing: map[types.UID][]Object{}}
	if c.Logs != nil {
		f.Progress = map[types.UID]backend.Progress{}
	}
	var list corev1.PodList
	if err := from.List(ctx, &list, c.OfBuild(key)...); err != nil {
		return f, fmt.Errorf("listing the pods of build %q: %w", key.Build, err)
	}
	f.Pods = list.Items
	var err error
	f.Silent, err = c.SilentNodes(ctx, f.Pods)
	return f, err
}

// Explain reads what keeps a pod from starting, and how far one is that runs.
func (c *Cluster) Explain(ctx context.Context, f *Facts, pod *corev1.Pod, step backend.Step) error {
	if needsHelp(pod, f.Now) {
		if err := c.findMissing(ctx, f, pod); err != nil {
			return err
		}
		return c.Warn(ctx, f, pod, "FailedMount", "FailedCreatePodSandBox", "FailedAttachVolume")
	}
	if c.Logs != nil && HasStarted(pod) && pod.DeletionTimestamp.IsZero() && !f.Silent[pod.Spec.NodeName] {
		ctx, cancel := context.WithTimeout(ctx, whileAsking)
		defer cancel()
		if p, found, err := c.Logs.Progress(ctx, client.ObjectKeyFromObject(pod), step); err != nil {
			log.FromContext(ctx).V(4).Info("Progress is not known", "pod", pod.Name, "reason", err.Error())
		} else if found {
			f.Progress[pod.UID] = p
		}
	}
	return nil
}

// Warn keeps the newest Warning event about an object, if it has one of the reasons. A pod that was
// made since makes older ones history.
func (c *Cluster) Warn(ctx context.Context, f *Facts, about client.Object, reasons ...string) error {
	var events corev1.EventList
	err := c.Reader.List(ctx, &events, client.InNamespace(c.Namespace), client.MatchingFields{"involvedObject.uid": string(about.GetUID())})
	if err != nil {
		return fmt.Errorf("listing events about %q: %w", about.GetName(), err)
	}
	since := about.GetCreationTimestamp().Time
	for i := range f.Pods {
		if made := f.Pods[i].CreationTimestamp; metav1.IsControlledBy(&f.Pods[i], about) && made.After(since) {
			since = made.Time
		}
	}
	for i := range events.Items {
		e := &events.Items[i]
		at := e.LastTimestamp.Time
		if at.IsZero() {
			at = e.EventTime.Time
		}
		for _, reason := range reasons {
			if e.Type == corev1.EventTypeWarning && e.Reason == reason && !at.Before(since) {
				f.Warnings[about.GetUID()], since = sentence(e.Message), at
			}
		}
	}
	c.NameLimitRanges(ctx, f, f.Warnings[about.GetUID()])
	return nil
}

// findMissing finds the objects that a pod wants to mount and that are not there.
func (c *Cluster) findMissing(ctx context.Context, f *Facts, pod *corev1.Pod) error {
	var wanted []Object
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.Secret != nil:
			wanted = append(wanted, Object{KindSecret, v.Secret.SecretName})
		case v.ConfigMap != nil:
			wanted = append(wanted, Object{KindConfigMap, v.ConfigMap.Name})
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				if source.ConfigMap != nil {
					wanted = append(wanted, Object{KindConfigMap, source.ConfigMap.Name})
				}
			}
		}
	}
	for _, o := range wanted {
		is, err := c.exists(ctx, o)
		if err != nil {
			return err
		}
		if !is {
			f.Missing[pod.UID] = append(f.Missing[pod.UID], o)
		}
	}
	return nil
}
