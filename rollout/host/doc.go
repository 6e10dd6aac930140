// Package host tells the programs that manage a host's deployments what to do, and reads what they
// say: bootc, or rpm-ostree where that is what the host has.
//
// Rule: what a program says is parsed by pure functions. Programs are run by a Runner, without a
// shell.
package host
