package verification

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/testjobs"
)

// kindJob is the kind of what runs tests that are no Pipelines.
const kindJob = "Job"

// maxNews is how many changes of runs wait until the controller takes them.
const maxNews = 1024

// Pipelines runs tests that are Pipelines. Its runs are Jobs of the kind PipelineRun, which say of
// themselves what a Job that does the same would say, and so are their pods.
type Pipelines interface {
	// Runs are those of all images. They wait, in the sense of fault.Waiting, while Tekton is not
	// there.
	Runs(ctx context.Context) ([]batchv1.Job, error)
	// Create makes a run of a Pipeline. The variables of the Job's container are its parameters. It
	// waits for a Pipeline that is not there.
	Create(ctx context.Context, job *batchv1.Job, pipeline string) error
	Delete(ctx context.Context, job *batchv1.Job, options ...client.DeleteOption) error
	Pods(ctx context.Context, reader client.Reader, job *batchv1.Job) ([]corev1.Pod, error)
	// Notify has a function called with every object that changes, and with nil when Tekton has
	// come or gone.
	Notify(changed func(object client.Object))
}

// pipeline is the name of the Pipeline that tests the image; empty where a Job does.
func (s *scope) pipeline() string {
	if s.config == nil || s.config.Spec.Verification == nil || s.config.Spec.Verification.Pipeline == nil {
		return ""
	}
	return s.config.Spec.Verification.Pipeline.Name
}

// kind is what runs the test.
func (s *scope) kind() string {
	if s.pipeline() != "" {
		return testjobs.KindPipelineRun
	}
	return kindJob
}

// forPipeline is the manifest of a Job whose pod and container have what is set for all pods of a
// run.
func forPipeline() *batchv1.Job {
	return &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}}}
}

// make makes a Job or a run.
func (v *Verifier) make(ctx context.Context, s *scope, job *batchv1.Job) error {
	if name := s.pipeline(); name != "" {
		return v.options.Pipelines.Create(ctx, job, name)
	}
	return v.client.Create(ctx, job)
}

// gatherRuns adds the image's runs to its Jobs. Where Tekton is not there, there are none.
func (v *Verifier) gatherRuns(ctx context.Context, s *scope) error {
	if v.options.Pipelines == nil {
		return nil
	}
	runs, err := v.options.Pipelines.Runs(ctx)
	if fault.IsWaiting(err) {
		s.missing = fault.NewWaiting(mcfgv1alpha1.ReasonVerificationPending, fault.After(err), err)
		return nil
	}
	for i := range runs {
		if run := &runs[i]; metav1.IsControlledBy(run, s.image) && run.DeletionTimestamp.IsZero() {
			s.jobs = append(s.jobs, run)
		}
	}
	return err
}

// runsChanged asks for a look at the image that a run is about, or at all that a Pipeline tests.
func (v *Verifier) runsChanged() source.Source {
	changes := make(chan event.GenericEvent, maxNews)
	v.options.Pipelines.Notify(func(object client.Object) {
		if object == nil {
			object = &mcfgv1.MachineOSConfig{}
		}
		changes <- event.GenericEvent{Object: object}
	})
	return source.Channel(changes, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		if _, isAll := object.(*mcfgv1.MachineOSConfig); !isAll {
			return imageOf(ctx, object)
		}
		return v.imagesTested(ctx, func(test *mcfgv1.ImageVerification) bool { return test.Pipeline != nil })
	}))
}

// imagesTested are requests for the images that some tests are for.
func (v *Verifier) imagesTested(ctx context.Context, isMeant func(*mcfgv1.ImageVerification) bool) []reconcile.Request {
	var list mcfgv1.MachineOSConfigList
	if err := v.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MachineOSConfigs")
	}
	owners := map[types.UID]bool{}
	for i := range list.Items {
		if test := list.Items[i].Spec.Verification; test != nil && isMeant(test) {
			owners[list.Items[i].UID] = true
		}
	}
	return v.imagesThat(ctx, owners)
}
