// Command fuzz runs every fuzz target of the module that it is started in, one after the other, until one has a finding:
//
//	fuzz -time=10s
package main
