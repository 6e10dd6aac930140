package pipelines

import (
	"context"
	"fmt"
	"strings"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

const (
	// whileLeaving is when to look again at what is left of an earlier run.
	whileLeaving = time.Second
	// tasksRefused is the reason of Tekton's event about a run whose tasks can't be made.
	tasksRefused = "TaskRunsCreationFailed"
	webhook      = "webhook.pipeline.tekton.dev"
	away         = "Tekton's webhook does not answer: see that the Deployment tekton-pipelines-webhook runs"
)

// requireNoneLeft waits until nothing is left of a run that is gone and had the name of one that is
// to be made.
func requireNoneLeft(ctx context.Context, from client.Reader, run *tektonv1.PipelineRun, reason string) error {
	left, err := leftOver(ctx, from, run)
	if left == "" || err != nil {
		return err
	}
	return fault.NewWaiting(reason, whileLeaving, fmt.Errorf(
		"%s of an earlier PipelineRun %q is still there; the next one of that name is made when it is gone", left, run.Name))
}

// leftOver is a TaskRun or a pod of a run that is gone and had the name of one that is to be made;
// empty where there is none, or the run is there.
func leftOver(ctx context.Context, from client.Reader, run *tektonv1.PipelineRun) (string, error) {
	if err := from.Get(ctx, client.ObjectKeyFromObject(run), &tektonv1.PipelineRun{}); !apierrors.IsNotFound(err) {
		return "", err
	}
	of := []client.ListOption{client.InNamespace(run.Namespace), client.MatchingLabels{labelPipelineRun: run.Name}}
	var tasks tektonv1.TaskRunList
	if err := from.List(ctx, &tasks, of...); err != nil {
		return "", fmt.Errorf("listing the TaskRuns of PipelineRun %q: %w", run.Name, err)
	}
	for i := range tasks.Items {
		return fmt.Sprintf("TaskRun %q", tasks.Items[i].Name), nil
	}
	var list corev1.PodList
	if err := from.List(ctx, &list, of...); err != nil {
		return "", fmt.Errorf("listing the pods of PipelineRun %q: %w", run.Name, err)
	}
	for i := range list.Items {
		return fmt.Sprintf("pod %q on node %q", list.Items[i].Name, list.Items[i].Spec.NodeName), nil
	}
	return "", nil
}

// isAway reports whether an API server could not ask Tekton's webhook.
func isAway(message string) bool {
	return strings.Contains(message, "failed calling webhook") && strings.Contains(message, webhook)
}

// whileAway waits for Tekton's webhook where that is the problem, with a reason of the caller's.
func whileAway(err error, reason string) error {
	if err == nil || !apierrors.IsInternalError(err) || !isAway(err.Error()) {
		return err
	}
	return fault.NewWaiting(reason, pods.WhileWaiting, fmt.Errorf(away+": %w", err)) //nolint:staticcheck // it begins with a name
}
