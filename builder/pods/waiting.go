package pods

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
)

// Follow says what a pod does that has not ended. Attempt says which one it is, and isRepeated
// whether there was another before.
func (o *ArchitectureState) Follow(f *Facts, pod *corev1.Pod, attempt string, isRepeated bool) {
	switch {
	case !pod.DeletionTimestamp.IsZero():
		o.leave(f, pod)
	case o.isUnschedulable(pod), o.isStuck(f, pod):
	case HasStarted(pod):
		o.run(f, pod, attempt, isRepeated)
	default:
		o.Message, o.After = fmt.Sprintf("%s is being started on node %s", attempt, nodeOf(pod)), Settling
		if pod.Spec.NodeName == "" {
			o.Message = attempt + " is being scheduled"
		}
	}
}

// leave is about a pod that was deleted. Its Job makes another one when it has ended, or was given
// up.
func (o *ArchitectureState) leave(f *Facts, pod *corev1.Pod) {
	o.Phase = backend.Running
	o.Message, o.After = fmt.Sprintf("a pod is being ended on node %s; another attempt follows", nodeOf(pod)), WhileWaiting
	if disruption := disruptionOf(pod); disruption != nil {
		o.Message = fmt.Sprintf("a pod is being ended on node %s: %s; another attempt follows", nodeOf(pod), sentence(disruption.Message))
	}
	if f.Silent[pod.Spec.NodeName] {
		o.Message = fmt.Sprintf("node %s does not answer; another attempt follows at %s, elsewhere",
			nodeOf(pod), pod.DeletionTimestamp.UTC().Format("15:04:05 MST"))
		o.After = max(pod.DeletionTimestamp.Sub(f.Now), time.Second)
	}
}

func (o *ArchitectureState) isUnschedulable(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			o.Wait(mcfgv1.ReasonWaiting, "no node can run the build: %s; "+
				"change spec.buildPlacement or spec.buildResources of the MachineOSConfig, or add a node with the labels %s",
				sentence(c.Message), selectorText(pod.Spec.NodeSelector))
			return true
		}
	}
	return false
}

// isStuck reports whether a container does not start, and says why.
func (o *ArchitectureState) isStuck(f *Facts, pod *corev1.Pod) bool {
	for _, m := range f.Missing[pod.UID] {
		switch {
		case m.Kind == KindConfigMap && slices.Contains(o.Related, m.Name):
			o.IsIncomplete, o.After = true, WhileWaiting
			o.Message = fmt.Sprintf("ConfigMap %q was deleted; the controller creates it again", m.Name)
		case m.Kind == KindSecret:
			o.Wait(mcfgv1.ReasonWaitingForSecret, "secret %q is not in namespace %q", m.Name, pod.Namespace)
			return true
		default:
			o.Wait(mcfgv1.ReasonWaitingForConfigMap, "ConfigMap %q is not in namespace %q", m.Name, pod.Namespace)
			return true
		}
	}
	if o.IsIncomplete {
		return true
	}
	for _, status := range allStatuses(pod) {
		waits := status.State.Waiting
		if waits == nil {
			continue
		}
		switch waits.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
			"ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
			o.Wait(mcfgv1.ReasonWaiting, "node %s cannot pull the builder image %s: %s (%s)",
				nodeOf(pod), status.Image, sentence(waits.Message), waits.Reason)
			return true
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			o.Wait(mcfgv1.ReasonWaiting, "node %s cannot start step %s: %s (%s)", nodeOf(pod), status.Name, sentence(waits.Message), waits.Reason)
			return true
		}
	}
	if warning := f.Warnings[pod.UID]; warning != "" && !HasStarted(pod) {
		o.Wait(mcfgv1.ReasonWaiting, "node %s cannot start the pod: %s", nodeOf(pod), warning)
		return true
	}
	return false
}

// run says which step runs, and how far it is.
func (o *ArchitectureState) run(f *Facts, pod *corev1.Pod, attempt string, isRepeated bool) {
	o.Phase = backend.Running
	step := CurrentStep(pod)
	if f.Silent[pod.Spec.NodeName] {
		o.Message, o.After = fmt.Sprintf("step %s runs on node %s, which does not answer; if that lasts, another attempt follows", step, nodeOf(pod)), whileRunning
		return
	}
	o.Message = "step " + string(step)
	if p, known := f.Progress[pod.UID]; known && p.Step == step {
		o.Message += ", " + p.String()
	}
	if isRepeated {
		o.Message += " (" + attempt + ")"
	}
	if f.Progress != nil {
		o.After = whileRunning
	}
}

// CurrentStep is the step that runs, or is about to.
func CurrentStep(pod *corev1.Pod) backend.Step {
	step := backend.Push
	for _, status := range slices.Backward(Statuses(pod)) {
		if status.State.Terminated == nil {
			step = backend.Step(status.Name)
		}
	}
	return step
}

// HasStarted reports whether a container of the pod has started.
func HasStarted(pod *corev1.Pod) bool { return !StartOf(pod).IsZero() }

// needsHelp reports whether a pod has had time enough to start and has not, so that it is worth
// asking why.
func needsHelp(pod *corev1.Pod, now time.Time) bool {
	return !IsOver(pod) && pod.Spec.NodeName != "" && pod.DeletionTimestamp.IsZero() && !HasStarted(pod) && now.Sub(pod.CreationTimestamp.Time) >= Settling
}

func selectorText(selector map[string]string) string {
	var parts []string
	for key, value := range selector {
		parts = append(parts, key+"="+value)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
