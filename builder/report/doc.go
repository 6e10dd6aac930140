// Package report tells people and monitoring about builds: events, metrics and the log.
//
// Rule: what is told is the difference of two states that was written, so that a restart tells
// nothing twice.
package report
