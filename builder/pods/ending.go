package pods

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

// Ending is how an attempt failed.
type Ending struct {
	Failure *backend.Failure
	At      time.Time
}

// OOMKilled is the reason of a container that had too little memory, as the kubelet writes it.
const OOMKilled = "OOMKilled"

// Other reasons and signals as the kubelet and runtimes write them.
const (
	podEvicted          = "Evicted"
	podDeadlineExceeded = "DeadlineExceeded"
	containerUnknown    = "ContainerStatusUnknown" // the kubelet does not know
	containerForgotten  = "Unknown"                // the runtime does not know
	exitKilled          = 137
	exitTerminated      = 143
)

// IsOver reports whether a pod has ended for good.
func IsOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// EndingOf says how a pod failed; nil where it did not. An administrator's error counts as soon as
// its container has ended.
func EndingOf(pod *corev1.Pod) *Ending {
	step, end := FailedStep(pod)
	if end != nil && end.ExitCode == backend.ExitAdmin {
		return &Ending{Failure: stepFailure(pod, step, end), At: end.FinishedAt.Time}
	}
	if pod.Status.Phase != corev1.PodFailed {
		return nil
	}
	e := &Ending{At: endOf(pod, end)}
	switch disruption := disruptionOf(pod); {
	case pod.Status.Reason == podDeadlineExceeded, isOverdue(pod, step, end):
		e.Failure = backend.NewFailure(fault.Transient, mcfgv1.ReasonTimedOut, fmt.Sprintf("%s took longer than %s, which is spec.buildTimeout of the MachineOSConfig: "+
			"raise it, or find out what takes so long%s", stepOrAttempt(step), duration(pod.Spec.ActiveDeadlineSeconds), placeOf(step, end)))
	case pod.Status.Reason == podEvicted:
		e.Failure = backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryingBuild, fmt.Sprintf("the pod was evicted from node %s: %s; "+
			"if the build needs that much, raise ephemeral-storage or memory in spec.buildResources of the MachineOSConfig",
			nodeOf(pod), sentence(pod.Status.Message)))
	case pod.Status.Reason == ReasonNodeLost:
		e.Failure = backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryingBuild, fmt.Sprintf("node %s stopped answering while the build ran there", nodeOf(pod)))
		if at := pod.DeletionTimestamp; at != nil {
			e.At = at.Time
		}
	case disruption != nil:
		e.Failure = backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryingBuild, fmt.Sprintf("the pod was ended on node %s: %s (%s)",
			nodeOf(pod), sentence(disruption.Message), disruption.Reason))
	case end != nil:
		e.Failure = stepFailure(pod, step, end)
	default:
		e.Failure = backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryingBuild, fmt.Sprintf("node %s did not run the pod: %s (%s)",
			nodeOf(pod), sentence(pod.Status.Message), pod.Status.Reason))
	}
	return e
}

// FailedStep is the first step that ended with an error.
func FailedStep(pod *corev1.Pod) (backend.Step, *corev1.ContainerStateTerminated) {
	for _, status := range Statuses(pod) {
		if end := status.State.Terminated; end != nil && end.ExitCode != 0 {
			return backend.Step(status.Name), end
		}
	}
	return "", nil
}

// reasonsOf are the reasons that each step may give. RUN lines can write the report of their step,
// and what other reasons mean is for the controller alone to say.
var reasonsOf = map[backend.Step][]string{
	backend.Fetch: {mcfgv1.ReasonInvalid, mcfgv1.ReasonInputsChanged, mcfgv1.ReasonFailed, mcfgv1.ReasonImageNotFound},
	backend.Build: {
		mcfgv1.ReasonInvalid, mcfgv1.ReasonInputsChanged, mcfgv1.ReasonFailed, mcfgv1.ReasonImageNotFound, mcfgv1.ReasonInvalidContainerfile,
	},
	backend.Export:    {mcfgv1.ReasonInvalid, mcfgv1.ReasonInputsChanged, mcfgv1.ReasonFailed},
	backend.Preflight: {mcfgv1.ReasonInvalid, mcfgv1.ReasonInputsChanged, mcfgv1.ReasonFailed, mcfgv1.ReasonImageNotFound, mcfgv1.ReasonPushDenied},
	backend.Assemble:  {mcfgv1.ReasonInvalid, mcfgv1.ReasonInputsChanged, mcfgv1.ReasonFailed, mcfgv1.ReasonImageNotFound, mcfgv1.ReasonPushDenied},
	backend.Push: {
		mcfgv1.ReasonInvalid, mcfgv1.ReasonInputsChanged, mcfgv1.ReasonFailed, mcfgv1.ReasonImageNotFound, mcfgv1.ReasonPushDenied,
	},
}

// stepFailure is why a step failed: what it says itself, and otherwise what the node says. The
// class is that of the exit code, which is what the Job acts on.
func stepFailure(pod *corev1.Pod, step backend.Step, end *corev1.ContainerStateTerminated) *backend.Failure {
	f := &backend.Failure{Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild}
	if end.ExitCode == backend.ExitAdmin {
		f.Class, f.Reason = fault.Terminal, mcfgv1.ReasonBuildFailed
	}
	told := toldBy(step, end)
	switch {
	case told != nil && told.Reason == mcfgv1.ReasonInterrupted && f.Class != fault.Terminal:
		f.Message = fault.Clean(fmt.Sprintf("step %s was stopped, for example by a deletion, an eviction or a drain%s", step, placeOf(step, end)))
	case told != nil:
		if f.Class == fault.Terminal && slices.Contains(reasonsOf[step], told.Reason) {
			f.Reason = told.Reason
		}
		f.Message = strings.Join(append([]string{told.Message}, told.Output...), "\n")
		if end.Reason == OOMKilled && !strings.Contains(f.Message, backend.MoreMemory) { // of what the step had started, which it only saw end
			f.Message = outOfMemory(pod, step) + "; " + f.Message
		}
		f.Message = fault.Clean(f.Message)
	case end.Reason == OOMKilled:
		f.Message = outOfMemory(pod, step)
	case IsForgotten(end):
		f.Message = fmt.Sprintf("node %s lost %s, for example by a restart", nodeOf(pod), stepOrAttempt(step))
	default:
		f.Message = fault.Clean(fmt.Sprintf("%s %s%s", stepOrAttempt(step), exitText(end), lastLines(end.Message)))
	}
	return f
}

// IsForgotten reports whether a step ended in a way that no one on its node knows.
func IsForgotten(end *corev1.ContainerStateTerminated) bool {
	return end.Reason == containerUnknown || end.Reason == containerForgotten
}

// WithoutCause is the failure of a step that an administrator has to mend, after its pod is gone.
func WithoutCause(step, message string) *backend.Failure {
	return backend.NewFailure(fault.Terminal, mcfgv1.ReasonBuildFailed, step+" failed, and its pod, which had the cause, was deleted: "+message)
}

// AfterAll is the failure of the last attempt of several, made that of the build.
func AfterAll(last *backend.Failure, attempts int) *backend.Failure {
	reason, text := mcfgv1.ReasonRetryLimitReached, last.Message
	if last.Reason == mcfgv1.ReasonTimedOut {
		reason = mcfgv1.ReasonTimedOut
	}
	if attempts > 1 {
		text = fmt.Sprintf("%d attempts failed; the last: %s", attempts, text)
	}
	return backend.NewFailure(fault.Transient, reason, text)
}

// toldBy is what a step itself says of its failure; nil where it could not.
func toldBy(step backend.Step, end *corev1.ContainerStateTerminated) *backend.StepFailure {
	if end == nil {
		return nil
	}
	report, err := ReadReport(step, end.Message)
	if err != nil {
		return nil
	}
	return report.Failure
}

// placeOf is what a step was doing when it was told to end, as the end of a sentence; empty where
// it did not say.
func placeOf(step backend.Step, end *corev1.ContainerStateTerminated) string {
	if told := toldBy(step, end); told != nil && told.At != "" {
		return "; it was at " + told.At
	}
	return ""
}

// isOverdue reports whether a step was told to end when the time of its attempt was over, also
// where the kubelet does not say so.
func isOverdue(pod *corev1.Pod, step backend.Step, end *corev1.ContainerStateTerminated) bool {
	if end == nil || pod.Status.StartTime == nil || pod.Spec.ActiveDeadlineSeconds == nil {
		return false
	}
	told := toldBy(step, end)
	return told != nil && told.Reason == mcfgv1.ReasonInterrupted && end.FinishedAt.Sub(pod.Status.StartTime.Time) >= duration(pod.Spec.ActiveDeadlineSeconds)
}

// outOfMemory says which limit is too low. Depending on the node's control groups the kernel ends
// all of a step, or one process of a RUN line.
func outOfMemory(pod *corev1.Pod, step backend.Step) string {
	return fmt.Sprintf("%s used more than %s of memory and was killed: %s", stepOrAttempt(step), memoryLimit(pod, step), backend.MoreMemory)
}

func exitText(end *corev1.ContainerStateTerminated) string {
	switch {
	case end.ExitCode == exitKilled:
		return "was killed"
	case end.ExitCode == exitTerminated:
		return "was ended by SIGTERM"
	case end.Reason != "" && end.Reason != "Error":
		return fmt.Sprintf("ended with exit code %d (%s)", end.ExitCode, end.Reason)
	}
	return fmt.Sprintf("ended with exit code %d and no report", end.ExitCode)
}

// lastLines are what a container without a report leaves: the end of its log. Progress is not for
// people.
func lastLines(text string) string {
	const enough = 10
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); line != "" && !strings.HasPrefix(line, backend.ProgressPrefix) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return ":\n" + strings.Join(lines[max(0, len(lines)-enough):], "\n")
}

// ReadReport reads the report of a step; what another one has left is none.
func ReadReport(step backend.Step, text string) (*backend.Report, error) {
	report, err := backend.ReadReport(text)
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", step, err)
	}
	if report.Step != step {
		return nil, fmt.Errorf("step %s left the report of step %s", step, report.Step)
	}
	return report, nil
}

// ReportsOf are the reports of a pod's steps, in their order.
func ReportsOf(pod *corev1.Pod) []backend.Report {
	var reports []backend.Report
	for _, status := range Statuses(pod) {
		if status.State.Terminated == nil {
			continue
		}
		if report, err := ReadReport(backend.Step(status.Name), status.State.Terminated.Message); err == nil {
			reports = append(reports, *report)
		}
	}
	return reports
}

// Statuses are those of the steps, in their order. Sidecars (init containers that are always
// restarted), which others put into pods, are none.
func Statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.DeleteFunc(allStatuses(pod), func(s corev1.ContainerStatus) bool {
		return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
			return c.Name == s.Name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		})
	})
}

func allStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// Terminated is how a container ended; nil while it has not.
func Terminated(pod *corev1.Pod, step backend.Step) *corev1.ContainerStateTerminated {
	for _, status := range Statuses(pod) {
		if status.Name == string(step) {
			return status.State.Terminated
		}
	}
	return nil
}

// ImageOf is the image that a step ran, by digest; empty where the node does not say it so.
func ImageOf(pod *corev1.Pod, step backend.Step) string {
	for _, status := range Statuses(pod) {
		if _, id, hasScheme := strings.Cut(status.ImageID, "://"); status.Name == string(step) && strings.Contains(status.ImageID, "@") {
			if hasScheme { // of container runtimes that are no more, such as docker-pullable://
				return id
			}
			return status.ImageID
		}
	}
	return ""
}

// disruptionOf is what the cluster says of a pod that it has taken away.
func disruptionOf(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// StartOf is when the first step started.
func StartOf(pod *corev1.Pod) time.Time {
	var at time.Time
	for _, status := range Statuses(pod) {
		if running := status.State.Running; running != nil {
			at = Earliest(at, running.StartedAt.Time)
		}
		if end := status.State.Terminated; end != nil {
			at = Earliest(at, end.StartedAt.Time)
		}
	}
	return at
}

// endOf is when a pod ended.
func endOf(pod *corev1.Pod, end *corev1.ContainerStateTerminated) time.Time {
	if end != nil {
		return end.FinishedAt.Time
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func stepOrAttempt(step backend.Step) string {
	if step == "" {
		return "the attempt"
	}
	return "step " + string(step)
}

func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		return "(none)"
	}
	return pod.Spec.NodeName
}

func memoryLimit(pod *corev1.Pod, step backend.Step) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == string(step) {
			return c.Resources.Limits.Memory().String()
		}
	}
	return "its limit"
}

// Sentence is the text of others, made part of one of ours.
func sentence(text string) string {
	if text = strings.TrimRight(strings.TrimSpace(text), "."); text == "" {
		return "no reason is given"
	}
	return text
}
