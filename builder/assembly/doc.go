// Package assembly is what a PipelineRun runs before and after its builds: it asks the registries
// beforehand, and says in the end what was pushed.
//
// Rule: no line of a Containerfile runs beside it, so what it says is believed. It reads tags
// itself, and takes no digest from a build.
package assembly
