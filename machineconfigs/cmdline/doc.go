// Package cmdline reads kernel arguments as the kernel does.
//
// Rule: pure. A command line is words in an order: what is there twice is there twice, and what a
// word says may depend on those before it. No message has more of a word than its name.
package cmdline
