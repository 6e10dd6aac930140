// Package lint says what is wrong with a Containerfile, and what could be better.
//
// Rule: it finds everything at once, each with its line and its fix, and repeats nothing that could
// be a password or a token. Each kind of finding is one of Rules.
package lint
