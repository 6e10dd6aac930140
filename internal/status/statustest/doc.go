// Package statustest checks in tests that a status makes sense: every condition for itself, all of
// them together (RequireConsistent), and a later one after an earlier one (RequireStep).
//
// Rule: call RequireConsistent after every test that writes a status, whatever the test is about.
// The package is for tests only; it is apart from package status so that no program links testing.
package statustest
