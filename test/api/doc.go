// Package api holds the tests of the kinds in api/ on a real API server: that they accept what the
// published kinds accept, that every rule has an object that it accepts and one that it refuses,
// and that the examples apply. It has no code but tests.
package api
