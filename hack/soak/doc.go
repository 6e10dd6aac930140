// Command soak repeats tests in random order while all processors are busy, and lists what failed.
//
// Rule: a test that fails here has a cause in the code or in the test; more patience is no remedy.
package main
