package jobs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
)

// betweenPods says why nothing runs: a pod is about to be made, perhaps after a pause, or something refuses it.
func (o *one) betweenPods(f *facts, last *corev1.Pod) {
	o.after = whileWaiting
	switch {
	case last != nil && last.Status.Phase == corev1.PodSucceeded:
		o.phase, o.message = backend.Running, "the image has been pushed"
	case last != nil:
		o.phase, o.message, o.failure = backend.Running, o.attempt()+" follows", before(o.job, []*corev1.Pod{last})
	case o.job.Status.Failed > 0:
		o.phase, o.message, o.failure = backend.Running, o.attempt()+" follows", before(o.job, nil)
	default:
		o.message = "its pod is being made"
		if f.now.Sub(o.job.CreationTimestamp.Time) < settling {
			o.after = settling
		}
	}
	if warning := f.warnings[o.job.UID]; warning != "" {
		o.phase = backend.Pending
		o.wait(mcfgv1.ReasonWaiting, "the cluster does not let the pod be made: %s; "+
			"what refuses it is a quota, a policy, or the security level of namespace %q", warning, o.job.Namespace)
		return
	}
}

// follow says what a pod does that has not ended.
func (o *one) follow(f *facts, pod *corev1.Pod) {
	switch {
	case !pod.DeletionTimestamp.IsZero():
		o.leave(f, pod)
	case o.isUnschedulable(pod), o.isStuck(f, pod):
	case hasStarted(pod):
		o.run(f, pod)
	default:
		o.message, o.after = fmt.Sprintf("%s is being started on node %s", o.attempt(), nodeOf(pod)), settling
		if pod.Spec.NodeName == "" {
			o.message = o.attempt() + " is being scheduled"
		}
	}
}

// leave is about a pod that was deleted. Its Job makes another one when it has ended, or was given up.
func (o *one) leave(f *facts, pod *corev1.Pod) {
	o.phase = backend.Running
	o.message, o.after = fmt.Sprintf("a pod is being ended on node %s; another attempt follows", nodeOf(pod)), whileWaiting
	if disruption := disruptionOf(pod); disruption != nil {
		o.message = fmt.Sprintf("a pod is being ended on node %s: %s; another attempt follows", nodeOf(pod), sentence(disruption.Message))
	}
	if f.silent[pod.Spec.NodeName] {
		o.message = fmt.Sprintf("node %s does not answer; another attempt follows at %s, elsewhere",
			nodeOf(pod), pod.DeletionTimestamp.UTC().Format("15:04:05 MST"))
		o.after = max(pod.DeletionTimestamp.Sub(f.now), time.Second)
	}
}

func (o *one) isUnschedulable(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			o.wait(mcfgv1.ReasonWaiting, "no node can take the build: %s; "+
				"change spec.buildPlacement or spec.buildResources of the MachineOSConfig, or add a node; it has to have %s",
				sentence(c.Message), selectorText(pod.Spec.NodeSelector))
			return true
		}
	}
	return false
}

// isStuck tells whether a container does not start, and says why.
func (o *one) isStuck(f *facts, pod *corev1.Pod) bool {
	if missing := f.missing[pod.UID]; len(missing) > 0 {
		m := missing[0]
		if m.kind == kindSecret {
			o.wait(mcfgv1.ReasonWaitingForSecret, "secret %q is not in namespace %q", m.name, pod.Namespace)
		} else {
			o.wait(mcfgv1.ReasonWaitingForConfigMap, "ConfigMap %q is not in namespace %q", m.name, pod.Namespace)
		}
		return true
	}
	for _, status := range statuses(pod) {
		waits := status.State.Waiting
		if waits == nil {
			continue
		}
		switch waits.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
			"ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
			o.wait(mcfgv1.ReasonWaiting, "node %s cannot have the image of the builder, %s: %s (%s)",
				nodeOf(pod), status.Image, sentence(waits.Message), waits.Reason)
			return true
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			o.wait(mcfgv1.ReasonWaiting, "node %s cannot start step %s: %s (%s)", nodeOf(pod), status.Name, sentence(waits.Message), waits.Reason)
			return true
		}
	}
	if warning := f.warnings[pod.UID]; warning != "" && !hasStarted(pod) {
		o.wait(mcfgv1.ReasonWaiting, "node %s cannot start the pod: %s", nodeOf(pod), warning)
		return true
	}
	return false
}

// run says which step runs, and how far it is.
func (o *one) run(f *facts, pod *corev1.Pod) {
	o.phase = backend.Running
	step := currentStep(pod)
	if f.silent[pod.Spec.NodeName] {
		o.message, o.after = fmt.Sprintf("step %s runs on node %s, which does not answer; if that lasts, another attempt follows", step, nodeOf(pod)), whileRunning
		return
	}
	o.message = "step " + string(step)
	if p, known := f.progress[pod.UID]; known && p.Step == step {
		o.message += ", " + progressText(p)
	}
	if o.job.Status.Failed > 0 {
		o.message += " (" + o.attempt() + ")"
	}
	if f.progress != nil {
		o.after = whileRunning
	}
}

// currentStep is the step that runs, or is about to.
func currentStep(pod *corev1.Pod) backend.Step {
	step := backend.Push
	for _, status := range slices.Backward(statuses(pod)) {
		if status.State.Terminated == nil {
			step = backend.Step(status.Name)
		}
	}
	return step
}

// progressText is how far a step is, for people.
func progressText(p backend.Progress) string {
	text := ""
	switch unit := int64(1e6); {
	case p.Step == backend.Build && p.Total > 0:
		text = fmt.Sprintf("instruction %d of %d", p.Done, p.Total)
	case p.Step == backend.Build:
		text = fmt.Sprintf("instruction %d", p.Done)
	case p.Step == backend.Export:
		text = fmt.Sprintf("layer %d of %d", p.Done, p.Total)
	case p.Total > 0:
		text = fmt.Sprintf("%d of %d MB", p.Done/unit, p.Total/unit)
	default:
		text = fmt.Sprintf("%d MB", p.Done/unit)
	}
	if p.Now != "" {
		text += ": " + cutLine(p.Now)
	}
	return text
}

// cutLine keeps what is shown of an instruction or an image to a line.
func cutLine(text string) string {
	const width = 120
	text, _, _ = strings.Cut(text, "\n")
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width]) + "..."
	}
	return text
}

func hasStarted(pod *corev1.Pod) bool { return !startOf(pod).IsZero() }

// needsHelp tells whether a pod has had time enough to start and has not, so that it is worth asking why.
func needsHelp(pod *corev1.Pod, now time.Time) bool {
	return !isOver(pod) && pod.Spec.NodeName != "" && pod.DeletionTimestamp.IsZero() && !hasStarted(pod) && now.Sub(pod.CreationTimestamp.Time) >= settling
}

func selectorText(selector map[string]string) string {
	var parts []string
	for key, value := range selector {
		parts = append(parts, key+"="+value)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
