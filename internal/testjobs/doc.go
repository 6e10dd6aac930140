// Package testjobs has the Jobs that administrators write as tests of images and of nodes, and that
// Layerwright creates for them.
//
// Rule: manifest.go reads a Job, rule.go says what it may not be, make.go completes it, and
// observe.go says what became of it; all four are pure. What a test is about, and when it runs, is
// the business of who has it run.
package testjobs
