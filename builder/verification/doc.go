// Package verification has an administrator's test run on each image of a MachineOSConfig that asks
// for one, as a Job, and writes down what came of it: the condition Verified of MachineOSImages and
// their status.verification.
//
// Rule: internal/testjobs reads a Job, says what it may not be and what became of it; job.go says
// what is of images in it. What is known of a test is in its Jobs, but for what a Job that is gone
// cannot say: that an image has passed, and that a test had begun.
package verification
