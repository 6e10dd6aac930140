// Package maker makes an image to order: it has content built, appends the configuration, and
// checks the result.
//
// Rule: who makes an image knows neither objects of the cluster nor who asks. An Order says
// everything, so a build, a trial and a test make the same image in the same way. What a registry
// has already is found by builder/reuse; what is then done is decided by builder/plan.
package maker
