// Package presence watches whether Tekton is installed, and its objects while it is.
package presence
