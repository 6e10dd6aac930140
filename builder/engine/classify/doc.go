// Package classify says what an error of containers/image means for a build: who has to act, and
// what may pass by itself.
package classify
