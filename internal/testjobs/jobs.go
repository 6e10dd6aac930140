package testjobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/attempts"
	"github.com/layerwright/layerwright/internal/quota"
)

// MaxAttempts is how often a test is run that something else than the test ends.
const MaxAttempts = 3

// How long a test waits before it is run again, the first time and at most.
const (
	firstRetry = 30 * time.Second
	lastRetry  = 5 * time.Minute
)

// Attempt is how many Jobs there were before for the same test.
func Attempt(job *batchv1.Job) int {
	return attempts.Written(job, mcfgv1.AnnotationVerificationAttempt)
}

// Interrupted counts how often the test of a Job was run that something else than the test ended,
// the Job among them.
func Interrupted(job *batchv1.Job) attempts.Count {
	return attempts.Count{Failed: Attempt(job) + 1, Retries: MaxAttempts - 1}
}

// RetryAt is when a test is run again whose Job something else ended.
func RetryAt(interrupted attempts.Count, ended time.Time) time.Time {
	return ended.Add(interrupted.Pause(firstRetry, lastRetry))
}

// Newest is the last Job of the test of a hash; nil where there is none.
func Newest(jobs []*batchv1.Job, hash string) *batchv1.Job {
	var newest *batchv1.Job
	for _, job := range jobs {
		if job.Annotations[mcfgv1.AnnotationVerificationTest] == hash && (newest == nil || Attempt(job) > Attempt(newest)) {
			newest = job
		}
	}
	return newest
}

// IsFinished reports whether a Job has ended, as it says itself.
func IsFinished(job *batchv1.Job) bool {
	return IsPassed(job) || conditionOf(job, batchv1.JobFailed) != nil
}

// IsPassed reports whether a Job has ended well, as it says itself.
func IsPassed(job *batchv1.Job) bool { return conditionOf(job, batchv1.JobComplete) != nil }

// conditionOf is a condition of a Job that is True; nil where it is not.
func conditionOf(job *batchv1.Job, of batchv1.JobConditionType) *batchv1.JobCondition {
	i := slices.IndexFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == of && c.Status == corev1.ConditionTrue })
	if i < 0 {
		return nil
	}
	return &job.Status.Conditions[i]
}

// Pods are the pods of a Job.
func Pods(ctx context.Context, reader client.Reader, job *batchv1.Job) (pods []corev1.Pod, _ error) {
	var list corev1.PodList
	err := reader.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabels{ComponentLabel: Component, batchv1.JobNameLabel: job.Name})
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], job) {
			pods = append(pods, list.Items[i])
		}
	}
	return pods, err
}

// Refusal is why the cluster makes no pod for a Job: its newest event says. It is empty where no
// event does.
func Refusal(ctx context.Context, reader client.Reader, job *batchv1.Job) (string, error) {
	var list corev1.EventList
	err := reader.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingFields{"involvedObject.uid": string(job.UID)})
	if err != nil {
		return "", fmt.Errorf("listing events about Job %q: %w", job.Name, err)
	}
	var at time.Time
	said := ""
	for i := range list.Items {
		e := &list.Items[i]
		when := e.LastTimestamp.Time
		if when.IsZero() {
			when = e.EventTime.Time
		}
		if e.Type == corev1.EventTypeWarning && e.Reason == "FailedCreate" && !when.Before(at) {
			at, said = when, "its pod is refused: "+cmp.Or(resourcesOf(job).Explain(e.Message), Clean(e.Message))
		}
	}
	return said, nil
}

// resourcesOf is where a test says what its containers may take.
func resourcesOf(job *batchv1.Job) *quota.Place {
	return &quota.Place{Namespace: job.Namespace, Field: "spec.template.spec.containers[].resources", Owner: "the test's Job"}
}
