// Package freeport finds ports for programs that can't take over a listener.
//
// Rule: the ports are outside of the range that the kernel gives to connections and to listeners on
// port 0, so that nothing takes one between its choice and the start of the program.
package freeport
