// Package maker makes an image from plain data: it finds what a registry has already, has content
// built, appends the configuration, and checks the result.
//
// Rule: who makes an image knows neither objects of the cluster nor who asks. An Order says
// everything, so a build, a trial and a test make the same image in the same way. InputsOf alone
// reads a MachineOSBuild, for provenance. What is asked of registries is asked
// here, with the trust that an answer needs; what is then done is decided by builder/plan.
package maker
