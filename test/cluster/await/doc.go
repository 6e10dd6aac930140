// Package await waits for objects of a Kubernetes API to reach a state. It
// watches, so nothing is asked for twice and nothing sleeps; every wait ends
// with its context and then says what it waited for and what it saw last.
package await
