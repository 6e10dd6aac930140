// Package buildlog finds what the pods of a build print, step by step and architecture by
// architecture, and follows it.
//
// Rule: it reads pods and their logs, and nothing else. Lines are those of RUN lines, which print
// what they like: nothing that controls a terminal gets through.
package buildlog
