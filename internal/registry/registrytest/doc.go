// Package registrytest is a registry for tests, in their own process: it can be made to answer as
// broken ones do, and it knows what it was asked for.
//
// Rule: tests that need a registry with accounts, or one that is strict, pass a handler that is.
// The package is for tests only; it is apart from package registry so that no program links
// testing.
package registrytest
