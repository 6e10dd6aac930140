// Package progress shows a person what a long command is doing: one line per
// step with the time it took, redrawn in place on a terminal, plain lines (and
// a sign of life for long steps) anywhere else.
package progress
