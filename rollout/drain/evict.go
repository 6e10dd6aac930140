package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/rollout/drain/eviction"
)

// evictionTimeout bounds one request: the client repeats it where the API server asks for patience,
// and one pod must not keep the others of its node waiting.
const evictionTimeout = 5 * time.Second

// answer is what the API server made of an eviction.
type answer int

const (
	answerGone answer = iota // there is no such pod any more
	answerLeaving
	answerBudget
	answerRefused
)

// answerOf reads the error of an eviction: whatever it is, the pod has stayed, and is asked to
// leave again. Where several budgets select the pod, the API server has an internal error; it has
// one too where an admission webhook does not answer.
func answerOf(err error, hasSeveralBudgets bool) answer {
	_, isBudget := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	switch {
	case err == nil:
		return answerLeaving
	case apierrors.IsNotFound(err):
		return answerGone
	case apierrors.IsConflict(err): // there is another one of its name, or this one changes all the time
		return answerLeaving
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return answerLeaving // the namespace controller deletes it
	case apierrors.IsTooManyRequests(err) && isBudget, apierrors.IsInternalError(err) && hasSeveralBudgets:
		return answerBudget
	default: // an admission webhook says no, with any code, or does not answer; the right is missing; ...
		return answerRefused
	}
}

// left is what one reconcile leaves on a node.
type left struct {
	// leaving is how many pods are on their way.
	leaving int
	// ending are those of them that know until when they have to.
	ending   []*corev1.Pod
	blockers []Blocker
}

func (l *left) isNothing() bool { return l.leaving == 0 && len(l.blockers) == 0 }

// pass is one reconcile of the pods of a node.
type pass struct {
	*Reconciler
	node *corev1.Node
	// since is when the drain was first seen blocked.
	since time.Time
	known budgets
	left  left
}

// empty evicts the pods of a node that should leave. With an error it left more than it says.
func (p *pass) empty(ctx context.Context) error {
	var pods corev1.PodList
	if err := p.reader.List(ctx, &pods, client.MatchingFields{"spec.nodeName": p.node.Name}); err != nil {
		return fmt.Errorf("listing pods of Node %q: %w", p.node.Name, err)
	}
	now := p.clock.Now()
	found := p.rosters.of(p.node)
	found.add(pods.Items, now)
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !found.leaves[pod.UID] {
			continue
		}
		switch eviction.FateOf(pod, now, p.options.TerminationTimeout) {
		case eviction.Stay:
		case eviction.Wait:
			p.left.leaving++
			p.left.ending = append(p.left.ending, pod)
		case eviction.Stuck:
			p.block(pod, byTermination(pod), pod.DeletionTimestamp.Time)
		case eviction.Evict:
			switch isOwn := client.ObjectKeyFromObject(pod) == p.options.OwnPod; {
			case isOwn && hasReturned(pod, p.node):
			case isOwn:
				errs = append(errs, p.evictSelf(ctx, pod))
			default:
				errs = append(errs, p.evict(ctx, pod))
			}
		}
	}
	return errors.Join(errs...)
}

func (p *pass) block(pod *corev1.Pod, by string, since time.Time) {
	p.left.blockers = append(p.left.blockers, Blocker{client.ObjectKeyFromObject(pod), by, since})
}

// evict asks for the eviction of one pod, and notes what comes of it.
func (p *pass) evict(ctx context.Context, pod *corev1.Pod) error {
	err := p.requestEviction(ctx, pod)
	var names []string
	if apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) {
		of, listErr := p.known.in(ctx, p.reader, pod.Namespace)
		if listErr != nil {
			return fmt.Errorf("evicting pod %q: %w", client.ObjectKeyFromObject(pod), errors.Join(err, listErr))
		}
		names = eviction.BudgetsOf(pod, of)
	}
	switch answerOf(err, len(names) > 1) {
	case answerGone:
	case answerLeaving:
		p.left.leaving++
		p.options.Metrics.Evicted(metrics.EvictionAccepted)
	case answerBudget:
		p.block(pod, eviction.ByBudgets(names), p.since)
		p.options.Metrics.Evicted(metrics.EvictionBlocked)
	case answerRefused:
		why := fault.Message(err)
		if errors.Is(err, context.DeadlineExceeded) {
			why = fmt.Sprintf("no answer within %s: an admission webhook may be away", evictionTimeout)
		}
		p.block(pod, "the API server ("+why+")", p.since)
		p.options.Metrics.Evicted(metrics.EvictionRefused)
	}
	return nil
}

func (r *Reconciler) requestEviction(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if grace := r.options.GracePeriod; grace != nil {
		options.GracePeriodSeconds = new(int64(grace.Seconds()))
	}
	return r.client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: options,
	})
}

// budgets are the PodDisruptionBudgets of the namespaces that one reconcile has asked for.
type budgets map[string][]policyv1.PodDisruptionBudget

func (b budgets) in(ctx context.Context, reader client.Reader, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	if of, isKnown := b[namespace]; isKnown {
		return of, nil
	}
	var list policyv1.PodDisruptionBudgetList
	if err := reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets of namespace %q: %w", namespace, err)
	}
	b[namespace] = slices.Clip(list.Items)
	return b[namespace], nil
}
