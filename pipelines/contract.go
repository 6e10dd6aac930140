package pipelines

import "github.com/layerwright/layerwright/builder/backend"

// Pipelines in deploy/components/tekton, one for each kind: no parameter can change capabilities,
// or which Task is meant. v1 is the version of the contract: one that breaks it has other names.
const (
	severalPipeline = "layerwright-os-image-v1"
	onePipeline     = "layerwright-os-image-one-v1"
	ofCapabilities  = "-capabilities"
)

// Tasks of the graph, by their names in the Pipeline.
const (
	taskPreflight = string(backend.Preflight)
	taskBuild     = string(backend.Build)
	taskAssemble  = string(backend.Assemble)
)

// Names of the Tasks in deploy/components/tekton.
const (
	preflightTask = "layerwright-os-image-preflight-v1"
	assembleTask  = "layerwright-os-image-assemble-v1"
)

// kind is which of the Pipelines builds.
type kind struct {
	isolation backend.Isolation
	// isOne reports whether there is one architecture: all is done in one pod.
	isOne bool
}

// kinds are all of them.
func kinds() []kind {
	var all []kind
	for _, isolation := range []backend.Isolation{backend.IsolationUserNamespace, backend.IsolationCapabilities} {
		all = append(all, kind{isolation, true}, kind{isolation, false})
	}
	return all
}

// task is the name of the Task that builds.
func (k kind) task() string {
	if k.isOne {
		return "layerwright-os-image-build-one-" + parameterOf(k.isolation) + "-v1"
	}
	return "layerwright-os-image-build-" + parameterOf(k.isolation) + "-v1"
}

// steps are those of the Task that builds.
func (k kind) steps() []backend.Step {
	if k.isOne {
		return append([]backend.Step{backend.Preflight}, backend.Steps()...)
	}
	return backend.Steps()
}

// parameterOf is the value of the parameter isolation.
func parameterOf(isolation backend.Isolation) string {
	if isolation == backend.IsolationUserNamespace {
		return isolationUserNamespace
	}
	return isolationCapabilities
}

// pipeline is the name of the Pipeline.
func (k kind) pipeline() string {
	name := severalPipeline
	if k.isOne {
		name = onePipeline
	}
	if k.isolation == backend.IsolationCapabilities {
		name += ofCapabilities
	}
	return name
}

// Values of the parameter isolation.
const (
	isolationUserNamespace = "user-namespace"
	isolationCapabilities  = "capabilities"
)

// Parameters of the Pipeline.
const (
	paramImage         = "image"
	paramArchitectures = "architectures"
	paramArchitecture  = "architecture" // of the Task that builds
	paramBuilderImage  = "builder-image"
	paramIsolation     = "isolation"
	paramExpected      = "expected"
	paramStarted       = "started" // of the Task that assembles
	paramHTTPProxy     = "http-proxy"
	paramHTTPSProxy    = "https-proxy"
	paramNoProxy       = "no-proxy"
	paramPool          = "pool"
	paramConfig        = "machine-os-config"
	paramBuild         = "machine-os-build"
)

// Workspaces of the Pipeline. Inputs have the names that backend gives them.
const (
	workspaceInstructions = "instructions"
	workspaceContext      = "context"
	workspaceRegistries   = "registries"
	workspaceTrust        = "trust"
	workspacePullSecret   = "pull-secret"
	workspacePushSecret   = "push-secret"
	workspaceStore        = "store"
	// workspacePrivate covers, in the step that has the push secret, a folder that Tekton would
	// share with RUN lines and read in the end.
	workspacePrivate = "private"
)

// Results of the Pipeline.
const (
	resultURL      = backend.ResultURL
	resultDigest   = backend.ResultDigest
	resultImages   = backend.ResultImages
	resultSize     = backend.ResultSize
	resultDuration = backend.ResultDuration
)

// Labels of Tekton's objects.
const (
	labelPipelineTask = "tekton.dev/pipelineTask"
	labelPipelineRun  = "tekton.dev/pipelineRun"
	labelTaskRun      = "tekton.dev/taskRun"
)
