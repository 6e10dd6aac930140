package pipelines

import "github.com/layerwright/layerwright/builder/backend"

// Pipelines in deploy/components/tekton, one for each isolation: no parameter can change
// capabilities, or which Task is meant. v1 is the version of the contract: one that breaks it has
// other names.
const (
	DefaultPipeline      = "layerwright-os-image-v1"
	capabilitiesPipeline = DefaultPipeline + "-capabilities"
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

// buildTask is the name of the Task that builds with an isolation.
func buildTask(isolation backend.Isolation) string {
	return "layerwright-os-image-build-" + parameterOf(isolation) + "-v1"
}

// parameterOf is the value of the parameter isolation.
func parameterOf(isolation backend.Isolation) string {
	if isolation == backend.IsolationUserNamespace {
		return isolationUserNamespace
	}
	return isolationCapabilities
}

// pipelineOf is the Pipeline that builds with an isolation.
func pipelineOf(isolation backend.Isolation) string {
	if isolation == backend.IsolationUserNamespace {
		return DefaultPipeline
	}
	return capabilitiesPipeline
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
