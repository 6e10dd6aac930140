// Package pipelines is the backend that builds with Tekton: one PipelineRun for each attempt, of
// the Pipeline in deploy/components/tekton or of one of the administrator's that keeps the same
// contract (docs/pipelines.md). It also runs administrators' Pipelines that verify images.
//
// Rule: tasks.go and run.go make objects, status.go, taskruns.go and reasons.go make a
// backend.State of objects, and these are pure; backend.go, inway.go, tests.go and presence ask the
// API server. No one else knows Tekton, and no digest is taken from where lines of a Containerfile
// ran.
package pipelines
