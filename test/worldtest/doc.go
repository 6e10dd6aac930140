// Package worldtest has what stories of the builder play in: a cluster in memory or a real API
// server, a registry, and the reconcilers of builds, images, signature policies and trials at work
// on them.
//
// Rule: it is for tests only. What only the tests of one package do is there.
package worldtest
