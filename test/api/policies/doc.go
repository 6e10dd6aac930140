// Package policies holds the tests of the admission policies in deploy/policies on a real API
// server, both ways. It has no code but tests.
package policies
