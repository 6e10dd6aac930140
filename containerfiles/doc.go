// Package containerfiles reads what an administrator adds to an OS image: its stages, its images and
// what a build of it needs. Package lint says what is wrong with it, and package render renders the
// Containerfile that a build runs.
//
// Rule: pure. Text in, text and findings out: no registry, no cluster, no clock, and the same bytes
// for the same input. BuildKit's packages parse, because they know lines, heredocs and directives
// best; Buildah runs the build, so what Buildah doesn't know, or reads differently, is a finding.
// Nothing that could be a password or a token is repeated in a message.
package containerfiles
