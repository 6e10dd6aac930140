package await

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// TimeoutError says what a wait was for and what was seen last.
type TimeoutError struct {
	What, LastSeen string
	Waited         time.Duration
	cause          error
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("waited %s for %s; last seen: %s", e.Waited.Round(time.Millisecond), e.What, e.LastSeen)
}

func (e *TimeoutError) Unwrap() error { return e.cause }

// Target is one object. Client is that of its API group; Resource its kind in
// lower case and plural.
type Target struct {
	Client                    rest.Interface
	Resource, Namespace, Name string
}

func (t Target) String() string {
	return strings.Join(slices.DeleteFunc([]string{t.Resource, t.Namespace, t.Name}, func(s string) bool { return s == "" }), "/")
}

// Object waits until reached says so of the target, which is of the type of
// the prototype. reached also describes what it sees.
func Object[T runtime.Object](ctx context.Context, target Target, prototype T, reached func(T) (bool, string)) error {
	begin := time.Now()
	lastSeen := "it does not exist"
	source := cache.NewListWatchFromClient(target.Client, target.Resource, target.Namespace, fields.OneTermEqualSelector("metadata.name", target.Name))
	_, err := watchtools.UntilWithSync(ctx, source, prototype, nil, func(event watch.Event) (bool, error) {
		object, ok := event.Object.(T)
		if !ok || event.Type == watch.Deleted {
			lastSeen = "it does not exist"
			return false, nil
		}
		done, seen := reached(object)
		lastSeen = seen
		return done, nil
	})
	return ended(ctx, err, target.String(), lastSeen, begin)
}

// ended turns what a wait ended with into what its caller is told.
func ended(ctx context.Context, err error, what, lastSeen string, begin time.Time) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return &TimeoutError{What: what, LastSeen: lastSeen, Waited: time.Since(begin), cause: err}
}

// ServiceAccount waits until a ServiceAccount exists: without it no Pod can be
// created in its namespace.
func ServiceAccount(ctx context.Context, clients kubernetes.Interface, namespace, name string) error {
	return Object(ctx, Target{clients.CoreV1().RESTClient(), "serviceaccounts", namespace, name}, &corev1.ServiceAccount{},
		func(*corev1.ServiceAccount) (bool, string) { return true, "it exists" })
}

// NodeReady waits until a Node is Ready.
func NodeReady(ctx context.Context, clients kubernetes.Interface, name string) error {
	return NodeReadyAgain(ctx, clients, name, "")
}

// NodeReadyAgain waits until a Node is Ready after another boot than the given one: what a machine
// said before it went away stands for a while.
func NodeReadyAgain(ctx context.Context, clients kubernetes.Interface, name, before string) error {
	return Object(ctx, Target{clients.CoreV1().RESTClient(), "nodes", "", name}, &corev1.Node{}, func(node *corev1.Node) (bool, string) {
		if before != "" && node.Status.NodeInfo.BootID == before {
			return false, "it has not joined since it began to boot"
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue, fmt.Sprintf("Ready is %s, %s: %s", c.Status, c.Reason, c.Message)
			}
		}
		return false, "it has no Ready condition yet"
	})
}

// PodReady waits until a Pod is Ready.
func PodReady(ctx context.Context, clients kubernetes.Interface, namespace, name string) error {
	return Object(ctx, Target{clients.CoreV1().RESTClient(), "pods", namespace, name}, &corev1.Pod{}, func(pod *corev1.Pod) (bool, string) {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return true, "Ready"
			}
		}
		return false, DescribePod(pod)
	})
}

// JobComplete waits until a Job has completed.
func JobComplete(ctx context.Context, clients kubernetes.Interface, namespace, name string) error {
	return Object(ctx, Target{clients.BatchV1().RESTClient(), "jobs", namespace, name}, &batchv1.Job{}, func(job *batchv1.Job) (bool, string) {
		seen := fmt.Sprintf("%d active, %d succeeded, %d failed", job.Status.Active, job.Status.Succeeded, job.Status.Failed)
		for _, c := range job.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				seen += fmt.Sprintf(", %s: %s %s", c.Type, c.Reason, c.Message)
			}
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
				return true, seen
			}
		}
		return false, seen
	})
}

// DeploymentAvailable waits until the newest generation of a Deployment has
// all its replicas available.
func DeploymentAvailable(ctx context.Context, clients kubernetes.Interface, namespace, name string) error {
	return Object(ctx, Target{clients.AppsV1().RESTClient(), "deployments", namespace, name}, &appsv1.Deployment{}, func(d *appsv1.Deployment) (bool, string) {
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		s := d.Status
		done := s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.AvailableReplicas == want && s.Replicas == want
		return done, fmt.Sprintf("%d of %d replicas updated, %d available", s.UpdatedReplicas, want, s.AvailableReplicas)
	})
}

// Namespace and Deployments of Tekton.
const (
	TektonNamespace  = "tekton-pipelines"
	TektonController = "tekton-pipelines-controller"
	tektonWebhook    = "tekton-pipelines-webhook"
)

// Tekton waits until Tekton's controller and webhook are Available, and the webhook has told the
// API server what to ask it, and whom to trust.
func Tekton(ctx context.Context, clients kubernetes.Interface) error {
	for _, name := range []string{tektonWebhook, TektonController} {
		if err := DeploymentAvailable(ctx, clients, TektonNamespace, name); err != nil {
			return err
		}
	}
	webhooks := Target{Client: clients.AdmissionregistrationV1().RESTClient(), Resource: "mutatingwebhookconfigurations", Name: "webhook.pipeline.tekton.dev"}
	return Object(ctx, webhooks, &admissionv1.MutatingWebhookConfiguration{}, func(c *admissionv1.MutatingWebhookConfiguration) (bool, string) {
		return len(c.Webhooks) > 0 && len(c.Webhooks[0].ClientConfig.CABundle) > 0 && len(c.Webhooks[0].Rules) > 0, "it is not filled in"
	})
}

// DescribePod says in a line why a Pod is not Ready.
func DescribePod(pod *corev1.Pod) string {
	text := "phase " + string(pod.Status.Phase)
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			text += "; " + c.Message
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			text += fmt.Sprintf("; container %s waits: %s %s", s.Name, w.Reason, w.Message)
		}
		if e := s.State.Terminated; e != nil {
			text += fmt.Sprintf("; container %s ended: %s exit code %d", s.Name, e.Reason, e.ExitCode)
		}
	}
	return text
}

// serverReadyPoll is the pause between two looks at /readyz, the one thing
// here that the API server gives no event for.
const serverReadyPoll = 50 * time.Millisecond

// ServerReady waits until an API server says that it is ready.
func ServerReady(ctx context.Context, clients kubernetes.Interface) error {
	begin := time.Now()
	lastSeen := "nothing"
	err := wait.PollUntilContextCancel(ctx, serverReadyPoll, true, func(ctx context.Context) (bool, error) {
		body, err := clients.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil {
			lastSeen = fmt.Sprintf("%v %s", err, body)
		}
		return err == nil, nil
	})
	return ended(ctx, err, "the API server's /readyz", lastSeen, begin)
}

// policiesPoll is the pause between two looks at admission policies, for which the API server gives
// no event.
const policiesPoll = 200 * time.Millisecond

// Policies waits until an API server enforces the admission policies of deploy/policies. One that
// looked for kinds just before theirs were established looks again after up to half a minute, and
// refuses pools until then, with "failed to configure policy".
func Policies(ctx context.Context, clients kubernetes.Interface) error {
	begin := time.Now()
	create := func(pool string) error {
		return clients.Discovery().RESTClient().Post().AbsPath("/apis/machineconfiguration.openshift.io/v1/machineconfigpools").
			Param("dryRun", "All").SetHeader("Content-Type", "application/json").Body([]byte(pool)).Do(ctx).Error()
	}
	var lastSeen error
	err := wait.PollUntilContextCancel(ctx, policiesPoll, true, func(context.Context) (bool, error) {
		if lastSeen = create(poolOf("another")); lastSeen == nil {
			lastSeen = errors.New("a custom pool without MachineConfigs of worker is accepted")
			return false, nil
		}
		lastSeen = create(poolOf("worker"))
		return lastSeen == nil, nil
	})
	return ended(ctx, err, "the admission policies", fmt.Sprint(lastSeen), begin)
}

// poolOf is a custom pool that takes its MachineConfigs from a role.
func poolOf(role string) string {
	return `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfigPool","metadata":{"name":"are-policies-there"},"spec":{` +
		`"machineConfigSelector":{"matchLabels":{"machineconfiguration.openshift.io/role":"` + role + `"}},"nodeSelector":{}}}`
}
