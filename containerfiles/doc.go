// Package containerfiles reads what an administrator adds to an OS image, says what is wrong with
// it, and renders the Containerfile that a build runs.
//
// Rule: pure. Text in, text and findings out: no registry, no cluster, no clock, and the same bytes
// for the same input. BuildKit's packages parse, because they know lines, heredocs and directives
// best; Buildah runs the build, so what Buildah doesn't know, or reads differently, is a finding. A
// Containerfile with a finding of severity Error is never rendered. Nothing that could be a
// password or a token is repeated in a message.
package containerfiles
