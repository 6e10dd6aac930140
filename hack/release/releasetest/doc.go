// Package releasetest has what tests of releases share: small programs, and registries that count
// what they are asked.
//
// Rule: it is for tests only.
package releasetest
