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
	answerFailed
)

// answerOf reads the error of an eviction. Where several budgets select the pod, the API server has
// an internal error; it has one too where an admission webhook does not answer.
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
	case errors.Is(err, context.DeadlineExceeded): // it waits for an admission webhook
		return answerRefused
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsInternalError(err):
		return answerRefused // by an admission webhook, or for want of the right
	default:
		return answerFailed
	}
}

// left is what one reconcile leaves on a node.
type left struct {
	// leaving is how many pods are on their way.
	leaving  int
	blockers []Blocker
}

func (l *left) isNothing() bool { return l.leaving == 0 && len(l.blockers) == 0 }

// empty evicts the pods of a node that should leave. With an error it left more than it says.
func (r *Reconciler) empty(ctx context.Context, node string, since time.Time) (left, error) {
	var pods corev1.PodList
	if err := r.reader.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return left{}, fmt.Errorf("listing pods of Node %q: %w", node, err)
	}
	var out left
	var errs []error
	known := budgets{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch fateOf(pod, r.clock.Now(), r.options.TerminationTimeout) {
		case fateStay:
		case fateWait:
			out.leaving++
		case fateStuck:
			out.blockers = append(out.blockers, Blocker{client.ObjectKeyFromObject(pod), "its own termination, which is overdue", pod.DeletionTimestamp.Time})
		case fateEvict:
			errs = append(errs, r.evict(ctx, pod, known, since, &out))
		}
	}
	return out, errors.Join(errs...)
}

// evict asks for the eviction of one pod, and notes what comes of it.
func (r *Reconciler) evict(ctx context.Context, pod *corev1.Pod, known budgets, since time.Time, out *left) error {
	key := client.ObjectKeyFromObject(pod)
	err := r.requestEviction(ctx, pod)
	var names []string
	if apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) {
		of, listErr := known.in(ctx, r.reader, pod.Namespace)
		if listErr != nil {
			return fmt.Errorf("evicting pod %q: %w", key, errors.Join(err, listErr))
		}
		names = budgetsOf(pod, of)
	}
	switch answerOf(err, len(names) > 1) {
	case answerGone:
	case answerLeaving:
		out.leaving++
		r.options.Metrics.Evicted(metrics.EvictionAccepted)
	case answerBudget:
		out.blockers = append(out.blockers, Blocker{key, byBudgets(names), since})
		r.options.Metrics.Evicted(metrics.EvictionBlocked)
	case answerRefused:
		why := fault.Message(err)
		if errors.Is(err, context.DeadlineExceeded) {
			why = fmt.Sprintf("no answer within %s: an admission webhook may be away", evictionTimeout)
		}
		out.blockers = append(out.blockers, Blocker{key, "the API server (" + why + ")", since})
		r.options.Metrics.Evicted(metrics.EvictionRefused)
	case answerFailed:
		return fmt.Errorf("evicting pod %q: %w", key, err)
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
