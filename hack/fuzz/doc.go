// Command fuzz runs every fuzz target of the module that it is started in, until one has a finding:
//
//	fuzz -time=30s
//
// With -print-findings all targets run, from their seeds alone, and findings are printed at the
// end.
//
// Each target has one worker, and as many run at once as there are CPUs: that takes the time of `go
// test -fuzz` for one after the other, divided by their number.
package main
