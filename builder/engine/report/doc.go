// Package report is what a step of a build says: to its backend by a report and lines of progress,
// to people by everything else.
//
// Rule: no I/O but the writers and the one file that it is given, and nothing of Buildah's, so that
// all of it is tested without root and without C. What a RUN line writes is someone else's text:
// it is cut, made printable, and never taken for a line of ours.
package report
