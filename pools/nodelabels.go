package pools

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/nodes"
)

// nodeLabelsName is the name of the NodeLabels reconciler in logs and metrics.
const nodeLabelsName = "node-labels"

// nodeLabelKeys are the labels that a stream gives its nodes, and no others.
var nodeLabelKeys = []string{mcfgv1.LabelNodeOSID, mcfgv1.LabelNodeOSVersionID}

// NodeLabels gives nodes that have arrived on a stream the labels of its operating system. Whoever
// else has set one of them, such as a kubelet or a person, keeps it: each is applied under a field
// manager of its own and never forced, and the API server knows whose it is.
type NodeLabels struct {
	client client.Client

	mu sync.Mutex
	// left are labels that the API server left as they were, so that it is not asked again before
	// something differs.
	left map[leftLabel]string // the value that was wanted
}

// leftLabel is one label of one node as it is.
type leftLabel struct {
	node  string
	uid   types.UID
	key   string
	value string
}

// NewNodeLabels makes the reconciler; SetupWithManager gives it what it works with.
func NewNodeLabels() *NodeLabels { return &NodeLabels{left: map[leftLabel]string{}} }

// SetupWithManager gives the reconciler the manager's client. Nodes are looked at when they change,
// and all of them when the streams do.
func (l *NodeLabels) SetupWithManager(manager ctrl.Manager) error {
	l.client = manager.GetClient()
	return ctrl.NewControllerManagedBy(manager).
		Named(nodeLabelsName).
		For(&corev1.Node{}, builder.WithPredicates(nodeChanged())).
		Watches(&mcfgv1.OSImageStream{}, handler.EnqueueRequestsFromMapFunc(l.everyNode)).
		Watches(&mcfgv1.MachineConfig{}, handler.EnqueueRequestsFromMapFunc(l.nodesHaving), builder.WithPredicates(predicate.NewPredicateFuncs(isMarked))).
		Watches(&mcfgv1alpha1.MachineOSImage{}, handler.EnqueueRequestsFromMapFunc(l.everyNode), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(l)
}

// isMarked reports whether a MachineConfig is a rendered one of a stream.
func isMarked(mc client.Object) bool {
	return mc.GetAnnotations()[mcfgv1.AnnotationOSImageStream] != ""
}

func (l *NodeLabels) everyNode(ctx context.Context, _ client.Object) []reconcile.Request {
	return l.nodes(ctx, func(*corev1.Node) bool { return true })
}

func (l *NodeLabels) nodesHaving(ctx context.Context, mc client.Object) []reconcile.Request {
	return l.nodes(ctx, func(n *corev1.Node) bool { return n.Annotations[mcfgv1.AnnotationCurrentConfig] == mc.GetName() })
}

func (l *NodeLabels) nodes(ctx context.Context, isMeant func(*corev1.Node) bool) []reconcile.Request {
	var list corev1.NodeList
	if err := l.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing nodes")
	}
	var out []reconcile.Request
	for i := range list.Items {
		if isMeant(&list.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return out
}

// Reconcile reconciles one node.
func (l *NodeLabels) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	n := &corev1.Node{}
	if err := l.client.Get(ctx, req.NamespacedName, n); err != nil {
		if apierrors.IsNotFound(err) {
			l.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	wanted, isKnown, err := l.wanted(ctx, n)
	if err != nil || !isKnown {
		return ctrl.Result{}, err
	}
	for _, key := range nodeLabelKeys {
		if err := l.set(ctx, n, key, wanted[key]); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// wanted reads what says which labels a node should have.
func (l *NodeLabels) wanted(ctx context.Context, n *corev1.Node) (labels map[string]string, isKnown bool, err error) {
	o := nodes.Observe(n)
	if o.CurrentConfig == "" {
		return nil, false, nil
	}
	mc := &mcfgv1.MachineConfig{}
	if err := l.client.Get(ctx, client.ObjectKey{Name: o.CurrentConfig}, mc); err != nil {
		return nil, false, client.IgnoreNotFound(err)
	}
	set := &mcfgv1.OSImageStream{}
	if err := l.client.Get(ctx, client.ObjectKey{Name: mcfgv1.OSImageStreamName}, set); err != nil {
		return nil, false, client.IgnoreNotFound(err)
	}
	var images mcfgv1alpha1.MachineOSImageList
	if o.CurrentImage != "" {
		if err := l.client.List(ctx, &images, client.UnsafeDisableDeepCopy); err != nil {
			return nil, false, fmt.Errorf("listing images: %w", err)
		}
	}
	labels, isKnown = labelsOf(&o, mc, images.Items, set)
	return labels, isKnown, nil
}

// labelsOf says which of the labels a node should have, and whether that is known: a node that is
// on its way, or on an image of the stream that is not its present one, keeps what it has. A node
// that is on no stream should have none.
func labelsOf(n *nodes.Node, config *mcfgv1.MachineConfig, images []mcfgv1alpha1.MachineOSImage, set *mcfgv1.OSImageStream) (map[string]string, bool) {
	if n.IsMoving() || n.State != mcfgv1.NodeStateDone {
		return nil, false
	}
	stream, base := config.Annotations[mcfgv1.AnnotationOSImageStream], config.Spec.OSImageURL
	if n.CurrentImage != "" && n.CurrentImage != base {
		i := slices.IndexFunc(images, func(i mcfgv1alpha1.MachineOSImage) bool { return string(i.Spec.PullSpec) == n.CurrentImage })
		if i < 0 || images[i].Spec.BaseOSImagePullSpec == "" {
			return nil, false
		}
		if string(images[i].Spec.BaseOSImagePullSpec) != base { // built on another one than the stream's
			return nil, true
		}
	}
	if stream == "" {
		return nil, true
	}
	for i := range set.Status.AvailableStreams {
		if s := &set.Status.AvailableStreams[i]; s.Name == stream && string(s.OSImage) == base {
			return s.NodeLabels, true
		}
	}
	return nil, false
}

// set gives a node one label, or takes it away where nothing is wanted, unless it is someone
// else's.
func (l *NodeLabels) set(ctx context.Context, n *corev1.Node, key, value string) error {
	is, has := n.Labels[key]
	if is == value && has == (value != "") || len(validation.IsValidLabelValue(value)) > 0 {
		return nil
	}
	left := leftLabel{n.Name, n.UID, key, is}
	if l.isLeft(left, value) {
		return nil
	}
	apply := corev1apply.Node(n.Name).WithUID(n.UID) // without the UID, a node that is gone would be made
	if value != "" {
		apply = apply.WithLabels(map[string]string{key: value})
	}
	err := l.client.Apply(ctx, apply, client.FieldOwner("layerwright-"+key[len("node.openshift.io/"):]))
	switch {
	case apierrors.IsConflict(err), err == nil && value == "":
		l.leave(left, value) // another's, or now none of ours: what it is then comes with the node's next change
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("setting label %q of Node %q: %w", key, n.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Labelled a node", "label", key, "from", is, "to", value)
	return nil
}

func (l *NodeLabels) isLeft(label leftLabel, wanted string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, is := l.left[label]
	return is && last == wanted
}

func (l *NodeLabels) leave(label leftLabel, wanted string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left[label] = wanted
}

// forget drops what is known of a node that is gone.
func (l *NodeLabels) forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for label := range l.left {
		if label.node == node {
			delete(l.left, label)
		}
	}
}
