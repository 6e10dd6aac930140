package pipelines

import (
	"path"
	"slices"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
)

const (
	// program is where the builder's image has it. Steps without a command would have Tekton ask a
	// registry for it.
	program = "/usr/bin/layerwright-builder"
	// tektonArtifacts is a folder that every step may write, and of which Tekton's own program
	// shows a file in the end, whatever that is a link to.
	tektonArtifacts = "/tekton/artifacts"
	smallVolume     = "64Mi"
)

// folders that Tekton shares among the steps of a Task, unless a step has something else there.
func folders() []string { return []string{"/workspace", "/tekton/home"} }

// Manifests are the objects in deploy/components/tekton.
func Manifests() []any {
	var all []any
	for _, k := range kinds() {
		all = append(all, pipeline(k))
	}
	for _, k := range kinds() {
		all = append(all, build(k))
	}
	return append(all, preflight(), assemble())
}

func metadataOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"app.kubernetes.io/name": "layerwright", "app.kubernetes.io/component": "build", "app.kubernetes.io/version": "v1",
	}}
}

func paramSpec(name, description string) tektonv1.ParamSpec {
	return tektonv1.ParamSpec{Name: name, Type: tektonv1.ParamTypeString, Description: description}
}

func optional(name, description string) tektonv1.ParamSpec {
	p := paramSpec(name, description)
	p.Default = tektonv1.NewStructuredValues("")
	return p
}

func architectures() tektonv1.ParamSpec {
	return tektonv1.ParamSpec{Name: paramArchitectures, Type: tektonv1.ParamTypeArray, Description: "The architectures to build for, by their names in OCI: amd64, arm64, ppc64le, s390x."}
}

// shared are the parameters of all Tasks.
func shared() tektonv1.ParamSpecs {
	return tektonv1.ParamSpecs{
		paramSpec(paramBuilderImage, "The image of the builder, the same in all steps."),
		paramSpec(paramExpected, "Fingerprints of the files that the controller made, as JSON; each step compares before it acts."),
		optional(paramHTTPProxy, "HTTP_PROXY of all steps."),
		optional(paramHTTPSProxy, "HTTPS_PROXY of all steps."),
		optional(paramNoProxy, "NO_PROXY of all steps."),
	}
}

func passed(names ...string) tektonv1.Params {
	var out tektonv1.Params
	for _, name := range names {
		out = append(out, tektonv1.Param{Name: name, Value: *tektonv1.NewStructuredValues("$(params." + name + ")")})
	}
	return out
}

func passedArray(name string) tektonv1.Param {
	return tektonv1.Param{Name: name, Value: tektonv1.ParamValue{Type: tektonv1.ParamTypeArray, ArrayVal: []string{"$(params." + name + "[*])"}}}
}

func all() []string {
	return []string{paramBuilderImage, paramExpected, paramHTTPProxy, paramHTTPSProxy, paramNoProxy}
}

// usage is a workspace, which steps have it where, and what it is for.
type usage struct {
	name, description  string
	readOnly, optional bool
	at                 map[backend.Step]string
	// perArchitecture reports whether it has a folder for each.
	perArchitecture bool
}

func everywhere(dir string) map[backend.Step]string {
	at := map[backend.Step]string{backend.Preflight: dir}
	for _, step := range backend.Steps() {
		at[step] = dir
	}
	return at
}

// usages are the workspaces of the Task that builds. A step that is not listed does not have the
// workspace.
func usages() []usage {
	input := func(name, description string) usage {
		return usage{name: name, description: description, readOnly: true, optional: true, at: map[backend.Step]string{backend.Build: path.Join(backend.InputsDir, name)}}
	}
	registries := path.Dir(backend.RegistriesFile)
	return []usage{
		{
			name: workspaceInstructions, description: "The instructions of the steps, in a folder for each architecture.", readOnly: true, perArchitecture: true,
			at: everywhere(path.Dir(backend.InstructionsFile)),
		},
		{
			name: workspaceContext, description: "Files that the Containerfile copies, in a folder for each architecture.", readOnly: true, optional: true, perArchitecture: true,
			at: map[backend.Step]string{backend.Build: backend.ContextDir},
		},
		{name: workspaceStore, description: "Where the image is built: an emptyDir, or a claim with a disk of its own.", at: map[backend.Step]string{
			backend.Fetch: backend.WorkDir, backend.Build: backend.WorkDir, backend.Export: backend.WorkDir,
		}},
		{name: workspacePullSecret, description: "The secret to pull images with.", readOnly: true, optional: true, at: map[backend.Step]string{
			backend.Fetch: backend.CredentialsDir, backend.Push: backend.BaseCredentialsDir, backend.Preflight: backend.BaseCredentialsDir,
		}},
		{name: workspacePushSecret, description: "The secret to push the image with.", readOnly: true, optional: true, at: map[backend.Step]string{
			backend.Push: backend.CredentialsDir, backend.Preflight: backend.CredentialsDir,
		}},
		{name: workspacePrivate, description: "An empty folder of the step push alone.", at: map[backend.Step]string{backend.Push: tektonArtifacts}},
		{name: workspaceRegistries, description: "registries.conf and policy.json of the pool.", readOnly: true, optional: true, at: map[backend.Step]string{
			backend.Fetch: registries, backend.Push: registries, backend.Preflight: registries,
		}},
		{name: workspaceTrust, description: "Additional certificate authorities.", readOnly: true, optional: true, at: everywhere(backend.TrustDir)},
		input(backend.InputEntitlement, "Certificates of subscriptions, for RUN lines."),
		input(backend.InputYumRepos, "Repository files, for RUN lines."),
		input(backend.InputRPMKeys, "Keys of repositories, for RUN lines."),
	}
}

// proxies are those of all steps.
func proxies() []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "HTTP_PROXY", Value: "$(params." + paramHTTPProxy + ")"},
		{Name: "HTTPS_PROXY", Value: "$(params." + paramHTTPSProxy + ")"},
		{Name: "NO_PROXY", Value: "$(params." + paramNoProxy + ")"},
	}
}

// titles are what consoles show for the steps.
func titles() map[backend.Step]string {
	return map[backend.Step]string{
		backend.Preflight: "Ask the registries",
		backend.Fetch:     "Pull the images that the Containerfile names",
		backend.Build:     "Run the Containerfile, without any secret",
		backend.Export:    "Write the new layers as plain files",
		backend.Push:      "Upload the image",
	}
}

func emptyDir(name string, limit *resource.Quantity) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: limit}}}
}

// build is the Task that builds for one architecture. It has no results of its own: Tekton's
// program would read them from a folder that RUN lines can write, in the container that has the
// push secret. Where there is one architecture, the step push gives them, in a folder that only
// that can write.
func build(k kind) *tektonv1.Task {
	task := &tektonv1.Task{
		TypeMeta:   metav1.TypeMeta{APIVersion: tektonv1.SchemeGroupVersion.String(), Kind: "Task"},
		ObjectMeta: metadataOf(k.task()),
		Spec: tektonv1.TaskSpec{
			DisplayName: "Build an operating-system image",
			Description: "Builds an operating-system image for one architecture. Lines of the Containerfile run in the step build alone, which has no secret.",
			Params:      append(tektonv1.ParamSpecs{paramSpec(paramArchitecture, "The architecture, by its name in OCI.")}, shared()...),
		},
	}
	spec := &task.Spec
	for _, u := range usages() {
		spec.Workspaces = append(spec.Workspaces, tektonv1.WorkspaceDeclaration{Name: u.name, Description: u.description, ReadOnly: u.readOnly, Optional: u.optional})
	}
	spec.Volumes = append(spec.Volumes, emptyDir("fetched", nil), emptyDir("layout", nil))
	for _, step := range k.steps() {
		small := resource.MustParse(smallVolume)
		spec.Volumes = append(spec.Volumes, emptyDir("tmp-"+string(step), &small), emptyDir("run-"+string(step), &small))
		spec.Steps = append(spec.Steps, k.step(step))
	}
	if k.isOne {
		push := &spec.Steps[len(spec.Steps)-1]
		push.Args = append(push.Args, "--results", "/tekton/steps/"+stepPrefix+string(backend.Push)+"/results")
		for _, result := range taskResults() {
			push.Results = append(push.Results, tektonv1.StepResult{Name: result.Name, Description: result.Description})
			result.Value = tektonv1.NewStructuredValues("$(steps." + string(backend.Push) + ".results." + result.Name + ")")
			spec.Results = append(spec.Results, result)
		}
	}
	return task
}

// step is one of the Task that builds.
func (k kind) step(step backend.Step) tektonv1.Step {
	tmp, run := "tmp-"+string(step), "run-"+string(step)
	s := tektonv1.Step{
		Name: string(step), DisplayName: titles()[step], Image: "$(params." + paramBuilderImage + ")", ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{program}, Args: []string{string(step), "--report", backend.TektonReportFile},
		Env: append([]corev1.EnvVar{
			{Name: backend.IsolationVariable, Value: string(k.isolation)},
			{Name: backend.ExpectedVariable, Value: "$(params." + paramExpected + ")"},
			{Name: backend.ExpectedOfVariable, Value: backend.ExpectedKey("$(params."+paramArchitecture+")", step)},
		}, proxies()...),
		SecurityContext: pods.Isolation{Kind: k.isolation}.SecurityContext(),
		VolumeMounts:    []corev1.VolumeMount{{Name: tmp, MountPath: backend.TempDir}, {Name: run, MountPath: backend.RunDir}},
	}
	if step == backend.Preflight {
		asking := asks()
		s.Env, s.SecurityContext, s.ComputeResources = slices.Concat(asking.Env, proxies()), asking.SecurityContext, asking.ComputeResources
		s.Args = append(s.Args, "--results", backend.TempDir, "$(params."+paramArchitecture+")")
	}
	for _, dir := range folders() {
		s.VolumeMounts = append(s.VolumeMounts, corev1.VolumeMount{Name: tmp, MountPath: dir})
	}
	if step == backend.Fetch || step == backend.Push {
		s.VolumeMounts = append(s.VolumeMounts, corev1.VolumeMount{Name: "fetched", MountPath: backend.FetchedDir})
	}
	if step == backend.Export || step == backend.Push {
		s.VolumeMounts = append(s.VolumeMounts, corev1.VolumeMount{Name: "layout", MountPath: backend.LayoutDir, ReadOnly: step == backend.Push})
	}
	for _, u := range usages() {
		if at, has := u.at[step]; has {
			s.Workspaces = append(s.Workspaces, tektonv1.WorkspaceUsage{Name: u.name, MountPath: at})
		}
	}
	return s
}

// asks is what a step has that only asks registries, and runs no one's lines.
func asks() tektonv1.Step {
	return tektonv1.Step{
		Env: []corev1.EnvVar{
			{Name: backend.ExpectedVariable, Value: "$(params." + paramExpected + ")"},
			{Name: "SSL_CERT_DIR", Value: "/etc/ssl/certs:" + backend.TrustDir},
		},
		ComputeResources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: new(int64), RunAsGroup: new(int64), // the owner of the secrets' files; it has no capability
			Privileged: new(bool), AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// around makes one of the two Tasks around the builds. No one's lines run there.
func around(name string, step backend.Step, title, description string, results []tektonv1.TaskResult, args ...string) *tektonv1.Task { //nolint:revive // each is used once, and belongs to the call
	small := resource.MustParse(smallVolume)
	args = append([]string{string(step), "--report", backend.TektonReportFile}, args...)
	asking := asks()
	return &tektonv1.Task{
		TypeMeta:   metav1.TypeMeta{APIVersion: tektonv1.SchemeGroupVersion.String(), Kind: "Task"},
		ObjectMeta: metadataOf(name),
		Spec: tektonv1.TaskSpec{
			DisplayName: title, Description: description, Params: append(tektonv1.ParamSpecs{architectures()}, shared()...),
			Workspaces: []tektonv1.WorkspaceDeclaration{
				{Name: workspaceInstructions, ReadOnly: true, MountPath: path.Dir(backend.InstructionsFile)},
				{Name: workspacePullSecret, ReadOnly: true, Optional: true, MountPath: backend.BaseCredentialsDir},
				{Name: workspacePushSecret, ReadOnly: true, Optional: true, MountPath: backend.CredentialsDir},
				{Name: workspaceRegistries, ReadOnly: true, Optional: true, MountPath: path.Dir(backend.RegistriesFile)},
				{Name: workspaceTrust, ReadOnly: true, Optional: true, MountPath: backend.TrustDir},
			},
			Results: results,
			Volumes: tektonv1.Volumes{emptyDir("tmp", &small)},
			Steps: []tektonv1.Step{{
				Name: string(step), DisplayName: title, Image: "$(params." + paramBuilderImage + ")", ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{program}, Args: append(args, "$(params."+paramArchitectures+"[*])"),
				Env:          append(asking.Env, proxies()...),
				VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: backend.TempDir}}, ComputeResources: asking.ComputeResources, SecurityContext: asking.SecurityContext,
			}},
		},
	}
}

func preflight() *tektonv1.Task {
	return around(preflightTask, backend.Preflight, "Ask the registries",
		"Asks whether the images are there and the result may be pushed, beside the builds, so that a run fails in seconds where it would fail in an hour.",
		[]tektonv1.TaskResult{{Name: backend.ResultStarted, Description: "When the run began, in seconds of Unix time."}})
}

// taskResults are those of all Pipelines.
func taskResults() []tektonv1.TaskResult {
	return []tektonv1.TaskResult{
		{Name: resultURL, Description: "The image, by its tag."},
		{Name: resultDigest, Description: "Its digest: that of the index, of several architectures."},
		{Name: resultImages, Description: "The image of each architecture by digest, in the order of the architectures, with commas between them."},
		{Name: resultSize, Description: "How many bytes the layers and configs of all of them have in the registry."},
		{Name: resultDuration, Description: "How many seconds lie between preflight and now."},
	}
}

func assemble() *tektonv1.Task {
	task := around(assembleTask, backend.Assemble, "Say what was pushed",
		"Resolves the tags that were pushed, joins those of several architectures, and gives the results. It takes no digest from a build.",
		taskResults(), "--image", "$(params."+paramImage+")", "--started", "$(params."+paramStarted+")")
	task.Spec.Params = append(task.Spec.Params, paramSpec(paramImage, "Repository and tag of the image."), optional(paramStarted, "When the run began, in seconds of Unix time."))
	return task
}

// pipeline is the graph: of one architecture it is the Task that builds alone.
func pipeline(k kind) *tektonv1.Pipeline {
	p := &tektonv1.Pipeline{
		TypeMeta:   metav1.TypeMeta{APIVersion: tektonv1.SchemeGroupVersion.String(), Kind: "Pipeline"},
		ObjectMeta: metadataOf(k.pipeline()),
		Spec: tektonv1.PipelineSpec{
			DisplayName: "Build an operating-system image",
			Description: "Builds the content of an operating-system image for each architecture, and says what was pushed. Layerwright appends the pool's " +
				"configuration to the result, signs it, and has it verified.",
			Params: append(tektonv1.ParamSpecs{
				paramSpec(paramImage, "Repository and tag of the image."), architectures(),
				{Name: paramIsolation, Type: tektonv1.ParamTypeString, Description: "user-namespace or capabilities: what building pods have."},
				optional(paramPool, "The MachineConfigPool that the image is for."),
				optional(paramConfig, "The MachineOSConfig that asks for it."),
				optional(paramBuild, "The MachineOSBuild that this run is for."),
			}, shared()...),
		},
	}
	spec := &p.Spec
	building := tektonv1.PipelineTask{
		Name: taskBuild, DisplayName: "Build for each architecture", TaskRef: &tektonv1.TaskRef{Name: k.task()},
		Params: passed(all()...),
		Matrix: &tektonv1.Matrix{Params: tektonv1.Params{{Name: paramArchitecture, Value: *tektonv1.NewStructuredValues("$(params." + paramArchitectures + "[*])")}}},
	}
	if k.isOne {
		building.DisplayName, building.Matrix = "Build", nil
		building.Params = append(building.Params, tektonv1.Param{Name: paramArchitecture, Value: *tektonv1.NewStructuredValues("$(params." + paramArchitectures + "[0])")})
	}
	for _, u := range usages() {
		spec.Workspaces = append(spec.Workspaces, tektonv1.PipelineWorkspaceDeclaration{Name: u.name, Description: u.description, Optional: u.optional})
		binding := tektonv1.WorkspacePipelineTaskBinding{Name: u.name, Workspace: u.name}
		if u.perArchitecture {
			binding.SubPath = "$(params." + paramArchitecture + ")"
		}
		building.Workspaces = append(building.Workspaces, binding)
	}
	last := taskAssemble
	if k.isOne {
		spec.Tasks, last = []tektonv1.PipelineTask{building}, taskBuild
	} else {
		spec.Tasks = withOthers(building)
	}
	for _, r := range taskResults() {
		spec.Results = append(spec.Results, tektonv1.PipelineResult{
			Name: r.Name, Description: r.Description, Value: *tektonv1.NewStructuredValues("$(tasks." + last + ".results." + r.Name + ")"),
		})
	}
	return p
}

// withOthers are the tasks of several architectures: preflight, the builds beside it, and assemble.
func withOthers(building tektonv1.PipelineTask) []tektonv1.PipelineTask {
	var few []tektonv1.WorkspacePipelineTaskBinding
	for _, name := range []string{workspaceInstructions, workspacePullSecret, workspacePushSecret, workspaceRegistries, workspaceTrust} {
		few = append(few, tektonv1.WorkspacePipelineTaskBinding{Name: name, Workspace: name})
	}
	started := tektonv1.Param{Name: paramStarted, Value: *tektonv1.NewStructuredValues("$(tasks." + taskPreflight + ".results." + backend.ResultStarted + ")")}
	return []tektonv1.PipelineTask{
		{
			Name: taskPreflight, DisplayName: "Ask the registries", TaskRef: &tektonv1.TaskRef{Name: preflightTask}, Workspaces: few,
			Params: append(passed(all()...), passedArray(paramArchitectures)),
			// The builds run meanwhile. It fails only where they would fail too: the controller
			// ends them.
		},
		building,
		{
			Name: taskAssemble, DisplayName: "Say what was pushed", TaskRef: &tektonv1.TaskRef{Name: assembleTask}, RunAfter: []string{taskBuild}, Workspaces: few,
			Params: append(passed(append(all(), paramImage)...), passedArray(paramArchitectures), started),
		},
	}
}
