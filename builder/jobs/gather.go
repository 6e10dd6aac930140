package jobs

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/builder/backend"
)

// gather reads everything that is known of a build. What only explains a delay is read where there is one.
func (b *Backend) gather(ctx context.Context, from client.Reader, key *backend.Key) (*facts, error) {
	f := &facts{now: b.options.Clock.Now(), warnings: map[types.UID]string{}, missing: map[types.UID][]object{}}
	if b.options.Logs != nil {
		f.progress = map[types.UID]backend.Progress{}
	}
	var jobs batchv1.JobList
	if err := from.List(ctx, &jobs, b.ofBuild(key)...); err != nil {
		return nil, fmt.Errorf("listing the Jobs of build %q: %w", key.Build, err)
	}
	for i := range jobs.Items {
		if isOf(&jobs.Items[i], key) {
			f.jobs = append(f.jobs, jobs.Items[i])
		}
	}
	if len(f.jobs) == 0 {
		return f, nil
	}
	var pods corev1.PodList
	if err := from.List(ctx, &pods, b.ofBuild(key)...); err != nil {
		return nil, fmt.Errorf("listing the pods of build %q: %w", key.Build, err)
	}
	f.pods = pods.Items
	var err error
	if f.silent, err = b.silentNodes(ctx, f.pods); err != nil {
		return nil, err
	}
	for i := range f.jobs {
		if err := b.explain(ctx, f, &f.jobs[i]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// explain reads what is in the way of a Job that has no pod, or whose pod does not start, and how far a running one is.
func (b *Backend) explain(ctx context.Context, f *facts, job *batchv1.Job) error {
	if ended(job) != nil {
		return nil
	}
	pods := podsOf(f.pods, job)
	if len(pods) == 0 || isOver(pods[len(pods)-1]) {
		if f.now.Sub(job.CreationTimestamp.Time) < settling {
			return nil
		}
		return b.warn(ctx, f, job, "FailedCreate")
	}
	pod := pods[len(pods)-1]
	if needsHelp(pod, f.now) {
		if err := b.findMissing(ctx, f, pod); err != nil {
			return err
		}
		return b.warn(ctx, f, pod, "FailedMount", "FailedCreatePodSandBox", "FailedAttachVolume")
	}
	if b.options.Logs != nil && hasStarted(pod) && pod.DeletionTimestamp.IsZero() && !f.silent[pod.Spec.NodeName] {
		ctx, cancel := context.WithTimeout(ctx, whileAsking)
		defer cancel()
		if p, found, err := b.options.Logs.Progress(ctx, client.ObjectKeyFromObject(pod), currentStep(pod)); err != nil {
			ctrl.LoggerFrom(ctx).V(4).Info("Progress is not known", "pod", pod.Name, "reason", err.Error())
		} else if found {
			f.progress[pod.UID] = p
		}
	}
	return nil
}

// warn keeps the newest Warning event about an object, if it has one of the reasons. A pod that was made since makes older ones history.
func (b *Backend) warn(ctx context.Context, f *facts, about client.Object, reasons ...string) error {
	var events corev1.EventList
	err := b.reader.List(ctx, &events, client.InNamespace(b.options.Namespace), client.MatchingFields{"involvedObject.uid": string(about.GetUID())})
	if err != nil {
		return fmt.Errorf("listing events about %q: %w", about.GetName(), err)
	}
	since := about.GetCreationTimestamp().Time
	for i := range f.pods {
		if made := f.pods[i].CreationTimestamp; metav1.IsControlledBy(&f.pods[i], about) && made.After(since) {
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
				f.warnings[about.GetUID()], since = sentence(e.Message), at
			}
		}
	}
	return nil
}

// findMissing finds the objects that a pod wants to mount and that are not there.
func (b *Backend) findMissing(ctx context.Context, f *facts, pod *corev1.Pod) error {
	var wanted []object
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.Secret != nil:
			wanted = append(wanted, object{kindSecret, v.Secret.SecretName})
		case v.ConfigMap != nil:
			wanted = append(wanted, object{kindConfigMap, v.ConfigMap.Name})
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				if source.ConfigMap != nil {
					wanted = append(wanted, object{kindConfigMap, source.ConfigMap.Name})
				}
			}
		}
	}
	for _, o := range wanted {
		is, err := b.exists(ctx, o)
		if err != nil {
			return err
		}
		if !is {
			f.missing[pod.UID] = append(f.missing[pod.UID], o)
		}
	}
	return nil
}
