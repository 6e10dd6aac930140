// Package signtest has keys for tests of what signs and verifies.
//
// Rule: it is for tests only, apart from package sign so that no program links it.
package signtest
