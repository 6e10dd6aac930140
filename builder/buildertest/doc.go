// Package buildertest has builds for tests of what builds them.
//
// Rule: it is for tests only, and what a backend makes of a build is none of its business.
package buildertest
