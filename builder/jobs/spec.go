package jobs

import (
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
)

// patience is how long a build may wait, for a secret or a node, in addition to what its attempts
// may take. A Job that nothing ever lets run ends after that.
const patience = 24 * time.Hour

// objects are everything that a build consists of, in the order in which it is made: a pod finds
// all that it mounts.
type objects struct {
	configMaps []*corev1.ConfigMap
	jobs       []*batchv1.Job
}

// newObjects makes the objects of a build. isolations are those of its architectures, in their
// order.
func newObjects(o *Options, spec *backend.Spec, isolations []pods.Isolation) (*objects, error) {
	m := &maker{Maker: pods.Maker{Namespace: o.Namespace, Spec: spec}, options: o}
	configMaps, err := m.ConfigMaps()
	if err != nil {
		return nil, err
	}
	made := &objects{configMaps: configMaps}
	for i, isolated := range isolations {
		a := &spec.Architectures[i]
		text, err := m.Instructions(a)
		if err != nil {
			return nil, err
		}
		job, err := m.job(a, text, isolated)
		if err != nil {
			return nil, err
		}
		made.jobs = append(made.jobs, job)
	}
	return made, nil
}

// maker makes the Jobs of one build.
type maker struct {
	pods.Maker
	options *Options
}

func (m *maker) job(a *backend.ArchitectureSpec, instructions []byte, isolated pods.Isolation) (*batchv1.Job, error) {
	pod, err := m.pod(a, instructions, isolated)
	if err != nil {
		return nil, fmt.Errorf("making the pod of %s: %w", a.Architecture, err)
	}
	annotations := m.Annotations()
	annotations[mcfgv1.AnnotationBuildArchitecture] = string(a.Architecture)
	annotations[mcfgv1.AnnotationBuildIsolation] = isolated.String()
	annotations[mcfgv1.AnnotationBuildSettings] = m.Spec.Settings()
	podAnnotations := maps.Clone(annotations)
	podAnnotations[pods.SafeToEvict], podAnnotations[pods.DoNotDisrupt] = "false", "true"
	retries := int32(max(m.Spec.Retries, 0)) //nolint:gosec // at most 10
	return &batchv1.Job{
		ObjectMeta: m.Meta(m.Name(pods.KindBuild, m.Suffix(a.Architecture)), annotations),
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)),
			BackoffLimit:          &retries,
			ActiveDeadlineSeconds: pods.Seconds(time.Duration(retries+1)*m.Timeout() + patience),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				{
					Action: batchv1.PodFailurePolicyActionFailJob,
					OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
						Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{backend.ExitAdmin},
					},
				},
				{ // an eviction counts: what a build does to its node may be why, and it would be evicted for ever
					Action:          batchv1.PodFailurePolicyActionCount,
					OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
				},
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: m.Labels(), Annotations: podAnnotations},
				Spec:       pod,
			},
		},
	}, nil
}

func (m *maker) pod(a *backend.ArchitectureSpec, instructions []byte, isolated pods.Isolation) (corev1.PodSpec, error) {
	mounts := m.Mounts(a, instructions)
	containers := []corev1.Container{}
	for _, step := range backend.Steps() {
		files, err := pods.Expected(mounts, step)
		if err != nil {
			return corev1.PodSpec{}, err
		}
		containers = append(containers, m.container(step, mounts, files, isolated))
	}
	pod := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		InitContainers:                containers[:len(containers)-1],
		Containers:                    containers[len(containers)-1:],
		Volumes:                       pods.VolumesOf(mounts),
		ActiveDeadlineSeconds:         pods.Seconds(m.Timeout()),
		TerminationGracePeriodSeconds: pods.Seconds(pods.GracePeriod),
		ServiceAccountName:            m.options.ServiceAccount,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		PriorityClassName:             m.options.PriorityClass,
		NodeSelector:                  pods.NodeSelector(m.Spec.Placement, a.Architecture),
		Tolerations:                   pods.TolerationsOf(m.Spec.Placement),
		SecurityContext:               &corev1.PodSecurityContext{},
	}
	if isolated.Kind == backend.IsolationUserNamespace {
		pod.HostUsers = new(false)
	}
	return pod, nil
}

func (m *maker) container(step backend.Step, mounts []pods.Mount, files string, isolated pods.Isolation) corev1.Container {
	c := corev1.Container{
		Name: string(step), Image: m.options.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{string(step)},
		Env: []corev1.EnvVar{
			{Name: backend.IsolationVariable, Value: string(isolated.Kind)}, {Name: backend.ExpectedVariable, Value: files},
		},
		Resources:       pods.ResourcesOf(m.Spec.Resources),
		SecurityContext: isolated.SecurityContext(),
		// A step that could not leave a report, because it crashed, leaves its last lines.
		TerminationMessagePath: backend.ReportFile, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	for _, name := range slices.Sorted(maps.Keys(m.Spec.Proxy)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: m.Spec.Proxy[name]})
	}
	for _, mounted := range mounts {
		if slices.Contains(mounted.Steps, step) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
				Name: mounted.Volume.Name, MountPath: mounted.Path, ReadOnly: mounted.IsReadOnly(step),
			})
		}
	}
	return c
}
