// Package shell reads the commands of a shell script, as far as a check needs them: words, lines,
// what is piped, and which files are written.
//
// Rule: it reads every text and refuses none. It is by hand, because a RUN line is no whole script:
// continuation lines, comments in between and heredocs are the Containerfile's.
package shell
