// Package testkind has two kinds for the tests of package status and statustest, so that these
// don't depend on the api packages.
//
// Rule: only tests import it.
package testkind
