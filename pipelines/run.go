package pipelines

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tektoncd/pipeline/pkg/apis/pipeline/pod"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/attempts"
	"github.com/layerwright/layerwright/internal/names"
)

// aroundBuild is what the tasks around a build may take in addition to that, and how long the pod
// of a build may take to start.
const aroundBuild = 10 * time.Minute

const modePrivate, modeShared = int32(0o400), int32(0o444)

// maker makes the objects of one build.
type maker struct {
	pods.Maker
	options *Options
}

// run is the PipelineRun of the first attempt. All architectures have the same isolation, the
// weakest that any of them needs.
func (m *maker) run(isolations []pods.Isolation) (*tektonv1.PipelineRun, error) {
	isolated := isolations[0]
	for _, other := range isolations {
		if other.Kind == backend.IsolationCapabilities {
			isolated = other
		}
	}
	expected, err := m.expected()
	if err != nil {
		return nil, err
	}
	workspaces, err := m.workspaces()
	if err != nil {
		return nil, err
	}
	annotations := m.Annotations()
	annotations[mcfgv1.AnnotationBuildIsolation] = isolated.String()
	annotations[mcfgv1.AnnotationBuildSettings] = m.Spec.Settings()
	annotations[mcfgv1.AnnotationBuildAttempt] = "1"
	annotations[mcfgv1.AnnotationBuildAttempts] = strconv.Itoa(max(m.Spec.Retries, 0) + 1)
	annotations[mcfgv1.AnnotationBuildImage] = m.Spec.PushSpec
	annotations[mcfgv1.AnnotationBuildSecrets] = secretsOf(workspaces)
	annotations[pods.SafeToEvict], annotations[pods.DoNotDisrupt] = "false", "true"
	metadata := m.Meta(m.Name(pods.KindBuild, ""), annotations)
	metadata.Labels = maps.Clone(metadata.Labels)
	metadata.Labels[mcfgv1.LabelBuildImageTag] = names.BuildLabel(tagOf(m.Spec.PushSpec))
	timeout := m.Timeout()
	return &tektonv1.PipelineRun{
		TypeMeta:   metav1.TypeMeta{APIVersion: tektonv1.SchemeGroupVersion.String(), Kind: "PipelineRun"},
		ObjectMeta: metadata,
		Spec: tektonv1.PipelineRunSpec{
			PipelineRef: &tektonv1.PipelineRef{Name: cmp.Or(m.Spec.Pipeline, kind{isolated.Kind, len(m.Spec.Architectures) == 1}.pipeline())},
			Params:      m.params(isolated, expected),
			Workspaces:  workspaces,
			Timeouts: &tektonv1.TimeoutFields{
				Pipeline: &metav1.Duration{Duration: timeout + 3*aroundBuild}, Tasks: &metav1.Duration{Duration: timeout + 2*aroundBuild},
			},
			TaskRunTemplate: tektonv1.PipelineTaskRunTemplate{ServiceAccountName: m.options.ServiceAccount, PodTemplate: m.podTemplate()},
			TaskRunSpecs:    m.aroundBuild(m.building(isolated, timeout)),
		},
	}, nil
}

// building is what the task that builds has for itself.
func (m *maker) building(isolated pods.Isolation, timeout time.Duration) tektonv1.PipelineTaskRunSpec {
	template := m.podTemplate()
	template.NodeSelector = pods.NodeSelector(m.Spec.Placement, "")
	template.NodeSelector[corev1.LabelArchStable] = "$(params." + paramArchitecture + ")"
	if isolated.Kind == backend.IsolationUserNamespace {
		template.HostUsers = new(false)
	}
	return tektonv1.PipelineTaskRunSpec{
		PipelineTaskName: taskBuild, PodTemplate: template, StepSpecs: shares(pods.ResourcesOf(m.Spec.Resources)), Timeout: &metav1.Duration{Duration: timeout + aroundBuild},
	}
}

// shares divides what a build may have among its steps: Tekton starts their containers side by
// side, and a cluster counts them together. Half is for the step build, which has what can't be
// divided.
func shares(all corev1.ResourceRequirements) []tektonv1.TaskRunStepSpec {
	specs := make([]tektonv1.TaskRunStepSpec, 0, len(backend.Steps()))
	for _, step := range backend.Steps() {
		specs = append(specs, tektonv1.TaskRunStepSpec{Name: string(step), ComputeResources: corev1.ResourceRequirements{
			Requests: share(all.Requests, step), Limits: share(all.Limits, step),
		}})
	}
	return specs
}

// share is what a step has of some resources. Sixths that are not whole are left over.
func share(of corev1.ResourceList, step backend.Step) corev1.ResourceList {
	const parts, ofBuild = 6, 3
	part := int64(1)
	if step == backend.Build {
		part = ofBuild
	}
	out := corev1.ResourceList{}
	for name, quantity := range of {
		switch name {
		case corev1.ResourceCPU:
			out[name] = *resource.NewMilliQuantity(max(quantity.MilliValue()*part/parts, 1), quantity.Format)
		case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			out[name] = *resource.NewQuantity(quantity.Value()*part/parts, quantity.Format)
		default:
			if step == backend.Build {
				out[name] = quantity
			}
		}
	}
	return out
}

// timeoutOf is how long the steps of a run that build may take: they end by themselves and say
// where they were, since Tekton deletes the pod of a task that takes too long. Zero is not known.
func timeoutOf(run *tektonv1.PipelineRun) time.Duration {
	for _, spec := range run.Spec.TaskRunSpecs {
		if spec.PipelineTaskName == taskBuild && spec.Timeout != nil {
			return max(spec.Timeout.Duration-aroundBuild, 0)
		}
	}
	return 0
}

// aroundBuild gives what asks registries around the build the limits that the administrator sets
// and it has not, or only higher ones: a quota may want them of every container. Other Pipelines
// have their own tasks.
func (m *maker) aroundBuild(building tektonv1.PipelineTaskRunSpec) []tektonv1.PipelineTaskRunSpec {
	specs := []tektonv1.PipelineTaskRunSpec{building}
	if m.Spec.Pipeline != "" || m.Spec.Resources == nil {
		return specs
	}
	resources, own := asks().ComputeResources, 0
	for name, quantity := range m.Spec.Resources.Limits {
		limit, has := resources.Limits[name]
		if (!has || quantity.Cmp(limit) < 0) && (name == corev1.ResourceCPU || name == corev1.ResourceEphemeralStorage) {
			resources.Limits[name], own = quantity, own+1
			if request, asksFor := resources.Requests[name]; asksFor && request.Cmp(quantity) > 0 {
				resources.Requests[name] = quantity
			}
		}
	}
	switch {
	case own == 0:
	case len(m.Spec.Architectures) == 1: // preflight is a step of the task that builds
		specs[0].StepSpecs = append(specs[0].StepSpecs, tektonv1.TaskRunStepSpec{Name: taskPreflight, ComputeResources: resources})
	default:
		specs = append(specs, tektonv1.PipelineTaskRunSpec{PipelineTaskName: taskPreflight, ComputeResources: &resources},
			tektonv1.PipelineTaskRunSpec{PipelineTaskName: taskAssemble, ComputeResources: &resources})
	}
	return specs
}

// podTemplate is that of all tasks.
func (m *maker) podTemplate() *pod.PodTemplate {
	template := &pod.PodTemplate{
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		Tolerations: pods.TolerationsOf(m.Spec.Placement), SecurityContext: &corev1.PodSecurityContext{},
		NodeSelector: map[string]string{corev1.LabelOSStable: "linux"},
	}
	if m.Spec.Placement != nil {
		maps.Copy(template.NodeSelector, m.Spec.Placement.NodeSelector)
	}
	if m.options.PriorityClass != "" {
		template.PriorityClassName = &m.options.PriorityClass
	}
	return template
}

func (m *maker) params(isolated pods.Isolation, expected string) tektonv1.Params {
	list := tektonv1.ParamValue{Type: tektonv1.ParamTypeArray}
	for i := range m.Spec.Architectures {
		list.ArrayVal = append(list.ArrayVal, m.Spec.Architectures[i].Architecture.OCI())
	}
	out := tektonv1.Params{{Name: paramArchitectures, Value: list}}
	for _, p := range [][2]string{
		{paramImage, m.Spec.PushSpec},
		{paramBuilderImage, m.options.Image},
		{paramIsolation, parameterOf(isolated.Kind)},
		{paramExpected, expected},
		{paramPool, m.Spec.Pool},
		{paramConfig, m.Spec.Config},
		{paramBuild, m.Spec.Key.Build},
		{paramHTTPProxy, m.Spec.Proxy["HTTP_PROXY"]},
		{paramHTTPSProxy, m.Spec.Proxy["HTTPS_PROXY"]},
		{paramNoProxy, m.Spec.Proxy["NO_PROXY"]},
	} {
		out = append(out, tektonv1.Param{Name: p[0], Value: *tektonv1.NewStructuredValues(p[1])})
	}
	return out
}

// expected are the Fingerprints of all steps of all architectures, as JSON.
func (m *maker) expected() (string, error) {
	all := map[string]json.RawMessage{}
	for i := range m.Spec.Architectures {
		a := &m.Spec.Architectures[i]
		mounts, err := m.mounts(a)
		if err != nil {
			return "", err
		}
		for _, step := range backend.Steps() {
			text, err := pods.Expected(mounts, step)
			if err != nil {
				return "", fmt.Errorf("writing what step %s has to find: %w", step, err)
			}
			all[backend.ExpectedKey(a.Architecture.OCI(), step)] = json.RawMessage(text)
		}
	}
	text, err := json.Marshal(all)
	return string(text), err
}

func (m *maker) mounts(a *backend.ArchitectureSpec) ([]pods.Mount, error) {
	text, err := m.Instructions(a)
	if err != nil {
		return nil, err
	}
	return m.Mounts(a, text), nil
}

// workspaces bind what Jobs mount.
func (m *maker) workspaces() ([]tektonv1.WorkspaceBinding, error) {
	instructions, context := &corev1.ProjectedVolumeSource{DefaultMode: new(modeShared)}, &corev1.ProjectedVolumeSource{DefaultMode: new(modeShared)}
	bindings := map[string]tektonv1.WorkspaceBinding{
		workspacePrivate: {EmptyDir: &corev1.EmptyDirVolumeSource{}},
	}
	for i := range m.Spec.Architectures {
		a := &m.Spec.Architectures[i]
		mounts, err := m.mounts(a)
		if err != nil {
			return nil, err
		}
		for j := range mounts {
			mount := &mounts[j]
			switch mount.Path {
			case path.Dir(backend.InstructionsFile):
				instructions.Sources = append(instructions.Sources, folderOf(a.Architecture, mount))
				bindings[workspaceInstructions] = tektonv1.WorkspaceBinding{Projected: instructions}
			case backend.ContextDir:
				context.Sources = append(context.Sources, folderOf(a.Architecture, mount))
				bindings[workspaceContext] = tektonv1.WorkspaceBinding{Projected: context}
			default:
				if name := workspaceOf(mount.Path, mount.Steps); name != "" {
					bindings[name] = bindingOf(&mount.Volume)
				}
			}
		}
	}
	var out []tektonv1.WorkspaceBinding
	for _, u := range usages() {
		if binding, has := bindings[u.name]; has {
			binding.Name = u.name
			out = append(out, binding)
		}
	}
	return out, nil
}

// folderOf has the files of a ConfigMap in a folder that is called like the architecture.
func folderOf(architecture mcfgv1.Architecture, mount *pods.Mount) corev1.VolumeProjection {
	projection := &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: mount.Volume.ConfigMap.Name}}
	for _, file := range slices.Sorted(maps.Keys(mount.Files)) {
		projection.Items = append(projection.Items, corev1.KeyToPath{Key: file, Path: path.Join(architecture.OCI(), file)})
	}
	return corev1.VolumeProjection{ConfigMap: projection}
}

// workspaceOf is the workspace that has what Jobs mount at a place; empty for what the Task has
// itself.
func workspaceOf(dir string, steps []backend.Step) string {
	for _, u := range usages() {
		if at, has := u.at[steps[0]]; has && at == dir && u.name != workspacePrivate {
			return u.name
		}
	}
	return ""
}

// bindingOf is a volume as a workspace.
func bindingOf(v *corev1.Volume) tektonv1.WorkspaceBinding {
	return tektonv1.WorkspaceBinding{EmptyDir: v.EmptyDir, ConfigMap: v.ConfigMap, Secret: v.Secret, Projected: v.Projected}
}

// secretsOf are the names of the secrets among workspaces, with commas.
func secretsOf(workspaces []tektonv1.WorkspaceBinding) string {
	var secrets []string
	for _, w := range workspaces {
		if w.Secret != nil {
			secrets = append(secrets, w.Secret.SecretName)
		}
	}
	slices.Sort(secrets)
	return strings.Join(slices.Compact(secrets), ",")
}

// next is the run of the attempt after one.
func next(run *tektonv1.PipelineRun) *tektonv1.PipelineRun {
	attempt := countOf(run).Failed + 2 //nolint:mnd // the one after this one, and the first is 1
	return repeated(run, attempt, strconv.Itoa(attempt))
}

// again is the run of the same attempt, after one whose pod was refused. Its name says which run it
// replaces: Tekton's objects of that one may not have gone.
func again(run *tektonv1.PipelineRun) *tektonv1.PipelineRun {
	attempt := countOf(run).Failed + 1
	hash := sha256.Sum256([]byte(run.UID))
	return repeated(run, attempt, fmt.Sprintf("%d-%x", attempt, hash[:4]))
}

// repeated is a run of an attempt, with the settings of one before.
func repeated(run *tektonv1.PipelineRun, attempt int, suffix string) *tektonv1.PipelineRun {
	metadata := metav1.ObjectMeta{
		Namespace: run.Namespace, Labels: maps.Clone(run.Labels), Annotations: maps.Clone(run.Annotations), OwnerReferences: run.OwnerReferences,
		Name: names.BuildObject(pods.KindBuild, run.Annotations[mcfgv1.AnnotationMachineOSBuild], suffix),
	}
	delete(metadata.Labels, "tekton.dev/pipeline") // Tekton's
	metadata.Annotations[mcfgv1.AnnotationBuildAttempt] = strconv.Itoa(attempt)
	metadata.Annotations[mcfgv1.AnnotationBuildSecrets] = secretsOf(run.Spec.Workspaces)
	made := &tektonv1.PipelineRun{TypeMeta: run.TypeMeta, ObjectMeta: metadata, Spec: *run.Spec.DeepCopy()}
	made.Spec.Status = ""
	return made
}

// mostAttempts is what spec.buildRetryLimit allows at most. Annotations are anybody's who may
// change runs.
const mostAttempts = 11

// countOf is how many attempts had failed when a run was made, and how often there may be another.
func countOf(run *tektonv1.PipelineRun) attempts.Count {
	number := func(key string) int { return min(max(attempts.Written(run, key), 1), mostAttempts) }
	return attempts.Count{Failed: number(mcfgv1.AnnotationBuildAttempt) - 1, Retries: number(mcfgv1.AnnotationBuildAttempts) - 1}
}
