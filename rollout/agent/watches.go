package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	runnable "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
)

const (
	controllerName = "agent"
	// prefix is that of the annotations between controller and agent.
	prefix = "machineconfiguration.openshift.io/"

	firstRetry = time.Second
	lastRetry  = time.Minute
)

// SetupWithManager gives the agent the manager's clients, and makes it watch its own Node. The
// manager's cache is to have no other.
func (a *Agent) SetupWithManager(manager ctrl.Manager) error {
	if a.options.Node == "" {
		return errors.New("setting up the agent: the name of its Node is not known")
	}
	a.client, a.reader = manager.GetClient(), manager.GetAPIReader()
	a.events = events.NewPublisher(manager.GetEventRecorder("layerwright-agent"))
	look := manager.Add(runnable.RunnableFunc(func(ctx context.Context) error {
		return a.drifts.run(ctx, clock.RealClock{}, a.options.Node)
	}))
	err := ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		For(&corev1.Node{}, builder.WithPredicates(predicate.NewPredicateFuncs(a.isOwn), a.annotationsChanged())).
		WatchesRawSource(source.Channel(a.drifts.changed, &handler.EnqueueRequestForObject{})).
		Complete(a)
	if err = errors.Join(err, look); err != nil {
		return fmt.Errorf("setting up the agent: %w", err)
	}
	return nil
}

func (a *Agent) isOwn(o client.Object) bool { return o.GetName() == a.options.Node }

// annotationsChanged lets changes of the annotations through by which the controller and the agent
// talk, but for those that others read of them. A Node's heartbeat is none. A pull that is under
// way hears of them too.
func (a *Agent) annotationsChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		if maps.Equal(agentAnnotations(e.ObjectOld), agentAnnotations(e.ObjectNew)) {
			return false
		}
		select {
		case a.annotationEvents <- struct{}{}:
		default: // it has been told already
		}
		return true
	}}
}

func agentAnnotations(o client.Object) map[string]string {
	out := maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(out, func(key, _ string) bool {
		return !strings.HasPrefix(key, prefix) || key == mcfgv1.AnnotationCordonedAt
	})
	return out
}
